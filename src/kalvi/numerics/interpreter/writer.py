"""A jaxpr as lines of Python.

Three forms of a value:

    a number     a Python number; also for an array with a single entry, or with equal entries
    an array     a NumPy array
    entries      a Python number for each of at most `FEW` entries of an array

A call of NumPy takes longer than twenty operations on Python numbers, so short vectors are faster as
entries, and reshaping, transposing or slicing them takes no line at all. Arrays and entries may be held in
a shape that broadcasts to their own, with axes of length one: most operations broadcast, so the larger
array is never made; `whole` makes it if it is needed.

A line is placed in the innermost loop that its operands depend on; a line without operands is run once,
when the program is made. Values that depend only on literal numbers are computed at once and take no line.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import numpy as np
from jax.extend import core

Shape = tuple[int, ...]

FEW = 9
"""The most entries that are kept as numbers, as in 3 × 3 matrices; from about 16 on NumPy is as fast."""
SMALL_CONSTANT = 2**16
"""Arrays with more entries are not made in advance and kept with a program."""

LARGE = 2**16
"""Arrays with at least so many bytes are released when they are no longer needed, so that the next one
reuses their memory; new memory would have to be fetched page by page."""

KEY = np.dtype([("first", np.uint32), ("second", np.uint32)])
"""The type of random keys; a single key is held as a pair of numbers."""
KINDS = "biuf"
"""The kinds of numbers that programs compute with; complex numbers are not supported."""


class NotInterpretable(TypeError):
    """A program has an operation that is not supported here; the message names it."""


@dataclass(frozen=True, eq=False)
class Value:
    """An operand or a result: its text, its shape and dtype, and how it is held."""

    text: str
    shape: Shape
    dtype: np.dtype
    held: Shape
    depth: int = 0  # loops and branches around the line that computes it
    known: Any = None  # the number that the text stands for, if it is a literal
    entries: np.ndarray | None = (
        None  # numbers in the shape `held`, each a Value, instead of a text
    )

    @property
    def is_number(self) -> bool:
        """Whether the value is held as one Python number."""
        return self.held == ()

    @property
    def is_numbers(self) -> bool:
        """Whether the value is held as one Python number or several."""
        return self.held == () or self.entries is not None

    def numbers(self) -> np.ndarray:
        """The value as an array of Python numbers in the shape `held`, if `is_numbers`."""
        if self.entries is not None:
            return self.entries
        alone = np.empty((), object)
        alone[()] = self
        return alone

    def with_shape(self, shape: Shape) -> "Value":
        """The same value for an array of another shape to which it broadcasts."""
        return replace(self, shape=shape)


class Block:
    """Lines that run together, such as the body of a loop."""

    def __init__(self, *, pinned: bool):
        self.lines: list[str] = []
        self.values: dict[str, str] = {}  # the name for each text that computes a value
        self.pinned = pinned  # whether lines must stay inside, as in a branch


Rule = Callable[["Writer", Any, list[Value]], Sequence[Value]]


@dataclass(frozen=True)
class Entry:
    """The rule for a primitive: rule(writer, equation, operands) gives the results."""

    write: Rule
    takes_entries: bool  # whether operands may be entries; otherwise they are made arrays


RULES: dict[str, Entry] = {}
"""The rules by the names of the primitives."""


def rule(*names: str, takes_entries: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule for primitives with these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has two rules.")
            RULES[name] = Entry(function, takes_entries)
        return function

    return register


class Writer:
    """The lines of one program, and the objects that they name."""

    def __init__(self, words: Mapping[str, Any]):
        self.constants = dict(words)
        self.blocks = [Block(pinned=True), Block(pinned=False)]  # run once; run at each call
        self.large: set[str] = set()
        """The names of large arrays."""
        self.windows: dict[str, tuple[Value, list[Value]]] = {}
        """For a name that is part of an array: that array, and where the part begins."""
        self._names = (f"v{i}" for i in itertools.count())
        self._constant_values: dict[int, Value] = {}

    # lines -----------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The number of loops and branches around the next line, plus one."""
        return len(self.blocks) - 1

    def name(self) -> str:
        """A name that is not yet used."""
        return next(self._names)

    def put(self, line: str) -> None:
        """Add a line to the current block."""
        self.blocks[-1].lines.append(line)

    def put_block(self, header: str, lines: Sequence[str]) -> None:
        """Add a statement with a body, which may be empty."""
        self.blocks[-1].lines += [header, *indented(lines), "    pass"]

    def set(
        self,
        text: str,
        shape: Shape,
        dtype: Any,
        operands: Sequence[Value],
        held: Shape | None = None,
    ) -> Value:
        """The value of a text that gives an array, held in the shape `held`, or a number if that is ().

        An array with one entry becomes a number.
        """
        held = tuple(shape) if held is None else held
        if held != () and prod(held) == 1:
            text, held = f"{text}.item()" if _is_atom(text) else f"({text}).item()", ()
        return self._line(text, shape, dtype, operands, held)

    def _line(
        self, text: str, shape: Shape, dtype: Any, operands: Sequence[Value], held: Shape
    ) -> Value:
        """The value of a text, computed in the outermost block that knows its operands."""
        depth = self._outermost(operands, held)
        for block in self.blocks[: depth + 1]:
            if text in block.values:
                return Value(block.values[text], tuple(shape), np.dtype(dtype), held, depth)
        name = self.name()
        self.blocks[depth].lines.append(f"{name} = {text}")
        self.blocks[depth].values[text] = name
        if prod(held) * np.dtype(dtype).itemsize >= LARGE:
            self.large.add(name)
        return Value(name, tuple(shape), np.dtype(dtype), held, depth)

    def set_number(self, text: str, dtype: Any, operands: Sequence[Value]) -> Value:
        """The value of a text that gives a number; computed at once if all operands are literals."""
        if all(operand.known is not None for operand in operands):
            with np.errstate(all="ignore"):
                return self.literal(eval(text, self.constants), dtype)
        return self.set(text, (), dtype, operands)

    def set_several(
        self, text: str, variables: Sequence[Any], operands: Sequence[Value]
    ) -> list[Value]:
        """The values of variables, from a text that gives a tuple of arrays."""
        several = self._line(text, (0,), np.dtype(float), operands, (0,))
        results = []
        for i, variable in enumerate(variables):
            shape, item = tuple(variable.aval.shape), f"{several.text}[{i}]"
            item = f"{item}.item()" if shape == () else item
            results.append(self.set(item, shape, dtype_of(variable.aval), [several]))
        return results

    def _outermost(self, operands: Sequence[Value], held: Shape) -> int:
        """The outermost block for a line with these operands; lines of a branch stay in it."""
        depth = max((operand.depth for operand in operands), default=0)
        if depth == 0 and prod(held) <= SMALL_CONSTANT:
            return 0
        pinned = [i for i, block in enumerate(self.blocks) if block.pinned]
        return max(depth, 1, *pinned)

    # values ----------------------------------------------------------------------------------------

    def literal(self, number: Any, dtype: Any) -> Value:
        """The value of a literal number."""
        number = np.asarray(number).item()
        return Value(_number_text(number), (), np.dtype(dtype), (), known=number)

    def constant(self, value: Any) -> Value:
        """The value of an array or number that is known when the program is written."""
        key = id(value)
        if key not in self._constant_values:
            self._constant_values[key] = self._constant(np.asarray(value))
            self.helper(value)  # keeps the array alive, because its address is the key
        return self._constant_values[key]

    def _constant(self, array: np.ndarray) -> Value:
        if 0 < array.size <= FEW and array.dtype.kind in "biuf":
            numbers = np.empty(array.shape, object)
            for i in np.ndindex(array.shape):
                numbers[i] = self.literal(array[i], array.dtype)
            return self.of_numbers(numbers, array.shape, array.dtype)
        name = self.name()
        self.constants[name] = array
        return Value(name, array.shape, array.dtype, array.shape)

    def of_numbers(self, numbers: np.ndarray, shape: Shape, dtype: Any) -> Value:
        """The value with these entries, given in a shape that broadcasts to `shape`."""
        dtype = np.dtype(dtype)
        if numbers.size == 1:
            return replace(numbers.item(), shape=tuple(shape), dtype=dtype)
        depth = max(number.depth for number in numbers.flat)
        return Value("", tuple(shape), dtype, numbers.shape, depth, entries=numbers)

    def helper(self, thing: Any) -> str:
        """The name by which lines refer to a function or an object."""
        name = f"h{id(thing)}"
        self.constants[name] = thing
        return name

    def array(self, value: Value) -> Value:
        """A value with entries as a NumPy array; other values unchanged."""
        if value.entries is None:
            return value
        numbers, dtype = list(value.entries.flat), self.helper(value.dtype)
        text = f"np.array(({', '.join(number.text for number in numbers)}), {dtype})"
        if len(value.held) > 1:
            text += f".reshape({value.held})"
        return self.set(text, value.shape, value.dtype, numbers, value.held)

    def whole(self, value: Value) -> Value:
        """The value as an array of its full shape, or a number if the shape is ()."""
        value = self.array(value)
        if value.held == value.shape:
            return value
        if value.is_number:
            text = f"full({value.shape}, {value.text}, {self.helper(value.dtype)})"
        else:
            text = f"broadcast_to({value.text}, {value.shape})"
        return self._line(text, value.shape, value.dtype, [value], value.shape)

    def plain(self, value: Value) -> Value:
        """The value in the form that loops and branches pass on: a number if it has one entry, otherwise an
        array."""
        return value if held_plain(value.shape) == () else self.whole(value)

    def as_array(self, value: Value) -> str:
        """A text that gives a NumPy array with the value's shape, even ()."""
        value = self.whole(value)
        if value.shape == ():
            return f"np.array({value.text}, {self.helper(value.dtype)})"
        return value.text

    # programs --------------------------------------------------------------------------------------

    def inline(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Value]) -> list[Value]:
        """Write the lines of a jaxpr here, and return its results."""
        known: dict[Any, Value] = {}
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = self.constant(const)
        known.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, core.Literal):
                if np.ndim(atom.val) == 0:
                    return self.literal(atom.val, dtype_of(atom.aval))
                return self.constant(atom.val)
            return known[atom]

        for equation in jaxpr.eqns:
            results = self._write(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _write(self, equation: Any, operands: list[Value]) -> Sequence[Value]:
        name = equation.primitive.name
        entry = RULES.get(name)
        if entry is None:
            raise NotInterpretable(f"NumPy has no form of JAX's operation {name} here.")
        if not _has_program(equation):  # otherwise the called program decides
            _need_numbers(equation)
        if not entry.takes_entries:
            operands = [self.array(operand) for operand in operands]
        return entry.write(self, equation, operands)

    def inside(self, write: Callable[[], Any], *, pinned: bool) -> tuple[list[str], Any]:
        """Run `write` inside a new block; returns the lines of the block and the result of `write`."""
        self.blocks.append(Block(pinned=pinned))
        result = write()
        return self.blocks.pop().lines, result


def dtype_of(aval: Any) -> np.dtype:
    """The dtype of a result as NumPy knows it."""
    return KEY if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key) else np.dtype(aval.dtype)


def _has_program(equation: Any) -> bool:
    """Whether an equation is a loop, a branch or a call."""
    return any(
        hasattr(given, "eqns") or hasattr(given, "jaxpr") for given in equation.params.values()
    )


def _need_numbers(equation: Any) -> None:
    for variable in equation.outvars:
        dtype = dtype_of(variable.aval)
        if dtype.kind not in KINDS and dtype != KEY:
            name = equation.primitive.name
            raise NotInterpretable(f"NumPy does not do {name} of {variable.aval.dtype} here.")


def held_plain(shape: Shape) -> Shape:
    """How loops and branches hold a value of this shape: a single entry as a number, otherwise an array."""
    return () if prod(shape) == 1 else tuple(shape)


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a block, indented by one step."""
    return [f"    {line}" for line in lines]


def _number_text(number: bool | int | float) -> str:
    if isinstance(number, float) and not np.isfinite(number):
        return "nan" if np.isnan(number) else "inf" if number > 0 else "(-inf)"
    return f"({number!r})" if np.copysign(1, number) < 0 else repr(number)


def _is_atom(text: str) -> bool:
    """Whether `.item()` after the text would apply to all of the text."""
    return re.fullmatch(r"\w+|[\w.]+\([^()]*\)|\w+\[[^\[\]]*\]", text) is not None
