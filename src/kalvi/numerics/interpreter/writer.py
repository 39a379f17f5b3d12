"""A jaxpr as lines of Python.

A value is held as a Python number if it is a scalar, and otherwise as a NumPy array. An array may be held in
a shape that broadcasts to its own: a scalar that stands for all entries, or an axis of length one for a
longer one. Most operations broadcast, so that the larger array is never made; `whole` makes it where it is
needed.

A line stands in the innermost loop on which its operands depend, and a line without operands is run once,
when the program is made.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

Shape = tuple[int, ...]

SMALL_CONSTANT = 2**16
"""Arrays of more entries are not kept as constants of a program."""


KEY = np.dtype([("first", np.uint32), ("second", np.uint32)])
"""A random key; one by itself is held as a pair of numbers."""


class NotInterpretable(TypeError):
    """An operation of JAX that has no line here."""


@dataclass(frozen=True)
class Value:
    """An operand: how it is called, what it is, and in which shape it is held."""

    text: str
    shape: Shape
    dtype: np.dtype
    held: Shape
    depth: int = 0

    @property
    def is_number(self) -> bool:
        """Whether it is held as a Python number."""
        return self.held == ()


class Block:
    """Lines that run together, such as the body of a loop."""

    def __init__(self, *, pinned: bool):
        self.lines: list[str] = []
        self.values: dict[str, str] = {}  # names by the text that computes them
        self.pinned = pinned  # whether lines must not move out, as out of a branch


Rule = Callable[["Writer", Any, list[Value]], Sequence[Value]]
RULES: dict[str, Rule] = {}
"""How each primitive is written, by its name: rule(writer, equation, operands) gives the results."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how primitives of these names are written."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


class Writer:
    """The lines of one program, and the constants that they name."""

    def __init__(self, constants: dict[str, Any]):
        self.constants = constants
        self.blocks = [Block(pinned=True), Block(pinned=False)]  # run once; run at each call
        self.windows: dict[
            str, tuple[Value, list[Value]]
        ] = {}  # an array, and where a part of it begins
        self._names = (f"v{i}" for i in itertools.count())
        self._constant_names: dict[int, Value] = {}
        self._literals: dict[str, bool | int | float] = {}

    # lines -----------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The block that is written at present."""
        return len(self.blocks) - 1

    def name(self) -> str:
        """A name that nothing else has."""
        return next(self._names)

    def put(self, line: str) -> None:
        """A line where the writer is."""
        self.blocks[-1].lines.append(line)

    def set(
        self,
        text: str,
        shape: Shape,
        dtype: Any,
        operands: Sequence[Value],
        held: Shape | None = None,
    ) -> Value:
        """A new value, computed in the outermost block that knows its operands."""
        held = shape if held is None else held
        depth = self._block_of(operands, held)
        for block in self.blocks[: depth + 1]:
            if text in block.values:
                return Value(block.values[text], shape, np.dtype(dtype), held, depth)
        name = self.name()
        self.blocks[depth].lines.append(f"{name} = {text}")
        self.blocks[depth].values[text] = name
        return Value(name, shape, np.dtype(dtype), held, depth)

    def _block_of(self, operands: Sequence[Value], held: Shape) -> int:
        """The outermost block where a line may stand; a line in a branch stays there."""
        depth = max((operand.depth for operand in operands), default=0)
        if depth == 0 and np.prod(held) <= SMALL_CONSTANT:
            return 0
        pinned = [i for i, block in enumerate(self.blocks) if block.pinned]
        return max(depth, 1, *pinned)

    def constant(self, value: Any) -> Value:
        """A value that is known when the program is written."""
        key = id(value)
        if key not in self._constant_names:
            array = np.asarray(value)
            name = self.name()
            self.constants[name] = array.item() if array.ndim == 0 else array
            self.constants[f"{name}_kept"] = value  # its address is the key
            found = Value(name, array.shape, array.dtype, array.shape)
            self._constant_names[key] = found
        return self._constant_names[key]

    def literal(self, value: Any, dtype: Any, shape: Shape = ()) -> Value:
        """A number that is written out."""
        number = np.asarray(value).item()
        text = _number(number)
        self._literals[text] = number
        return Value(text, shape, np.dtype(dtype), ())

    def helper(self, function: Any) -> str:
        """The name by which lines call a function or use an object."""
        name = f"h{id(function)}"
        self.constants[name] = function
        return name

    def whole(self, value: Value) -> Value:
        """The value as an array of its own shape; a scalar stays a number."""
        if value.held == value.shape:
            return value
        if value.is_number:
            text = f"full({value.shape}, {value.text}, {self.helper(value.dtype)})"
        else:
            text = f"broadcast_to({value.text}, {value.shape})"
        return self.set(text, value.shape, value.dtype, [value])

    def known_number(self, value: Value) -> bool | int | float | None:
        """The number that a literal stands for."""
        return self._literals.get(value.text) if value.is_number else None

    def as_array(self, value: Value) -> str:
        """A text that gives a NumPy array of the value's shape, of a scalar too."""
        value = self.whole(value)
        if value.shape == ():
            return f"asarray({value.text}, {self.helper(value.dtype)})"
        return value.text

    # programs --------------------------------------------------------------------------------------

    def inline(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr, whose lines are written here."""
        known: dict[Any, Value] = {}
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = const if isinstance(const, Value) else self.constant(const)
        known.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, core.Literal):
                if np.ndim(atom.val) == 0:
                    return self.literal(atom.val, atom.aval.dtype)
                return self.constant(atom.val)
            return known[atom]

        for equation in jaxpr.eqns:
            write = RULES.get(equation.primitive.name)
            if write is None:
                raise NotInterpretable(f"{equation.primitive.name} has no form in NumPy here.")
            results = write(self, equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def inside(self, write: Callable[[], Any], *, pinned: bool) -> tuple[list[str], Any]:
        """The lines that `write` puts, as a block of their own, and what it returns."""
        self.blocks.append(Block(pinned=pinned))
        result = write()
        return self.blocks.pop().lines, result


def dtype_of(aval: Any) -> np.dtype:
    """The dtype of a result as NumPy knows it."""
    return KEY if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key) else np.dtype(aval.dtype)


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a block one step to the right; `pass` if there are none."""
    return [f"    {line}" for line in lines] or ["    pass"]


def _number(value: bool | int | float) -> str:
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else "inf" if value > 0 else "(-inf)"
    return f"({value!r})" if value < 0 else repr(value)


_NAMES = re.compile(r"\bv\d+\b")


def without_unused(lines: Sequence[str], used: set[str]) -> list[str]:
    """The lines but for values that nothing uses; `used` is what later lines name, and grows."""
    kept = []
    for line in reversed(lines):
        name, sign, text = line.strip().partition(" = ")
        if sign and _NAMES.fullmatch(name) and name not in used:
            continue
        used.update(_NAMES.findall(text if sign and _NAMES.fullmatch(name) else line))
        kept.append(line)
    return kept[::-1]
