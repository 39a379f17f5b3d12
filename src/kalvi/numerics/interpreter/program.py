"""Functions of JAX arrays, traced once and run by NumPy."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from inspect import isfunction
from itertools import compress
from threading import Lock
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy.special
from jax.interpreters import partial_eval

from kalvi.numerics.interpreter import (
    algebra,
    control,
    elementwise,
    indexing,
    products,
    random,
    reductions,
    routines,
    scalars,
    shapes,
)
from kalvi.numerics.interpreter.releases import with_releases, without_unused
from kalvi.numerics.interpreter.writer import (
    Value,
    Writer,
    dtype_of,
    held_plain,
    indented,
)
from kalvi.numerics.namespaces import is_array, is_number
from kalvi.numerics.platforms import traced_for_numpy

MOST_PROGRAMS = 256
"""The most programs that are kept; the least recently used one is dropped first."""


def functions_of(module: Any) -> dict[str, Any]:
    """The public functions that a module defines, by name."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
    }


WORDS = {
    "np": np,
    "special": scipy.special,
    "inf": math.inf,
    "nan": math.nan,
    "full": np.full,
    "broadcast_to": np.broadcast_to,
    **{f"m{name}": getattr(math, name) for name in (
        "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "tanh", "asinh", "atan", "atan2", "erf", "erfc"
    )},
    **functions_of(scalars),
    **functions_of(routines),
}  # fmt: skip
"""The names that lines of programs may use."""
WITH_RULES = (algebra, control, elementwise, indexing, products, random, reductions, shapes)
"""The modules with the rules for primitives; importing them registers the rules."""


class Program(NamedTuple):
    """A traced function as Python: arrays in, arrays out."""

    run: Callable[..., tuple[np.ndarray, ...]]
    text: str
    own: frozenset[int]  # the ids of the arrays that the program keeps
    tree: Any  # of the results
    rest: Any  # the parts of the results that are no arrays

    def __call__(self, leaves: Sequence[np.ndarray]) -> Any:
        with np.errstate(all="ignore"):
            arrays = self.run(*leaves)
        found = jax.tree.unflatten(self.tree, self._fresh(arrays, leaves))
        return found if self.rest is None else eqx.combine(found, self.rest)

    def _fresh(
        self, arrays: Sequence[np.ndarray], leaves: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The arrays, with copies of those whose memory is shared with another array."""
        seen, fresh = set(map(id, leaves)), []
        for array in arrays:
            if array.base is not None or id(array) in seen or id(array) in self.own:
                array = array.copy()
            seen.add(id(array))
            fresh.append(array)
        return fresh


_programs: OrderedDict[Any, Program] = OrderedDict()
_programs_lock = Lock()


def interpret(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args) run by NumPy, with NumPy arrays as arguments and results.

    The program computes with arrays and floating-point numbers. Anything else in the arguments is a
    constant of the program, as with `jax.jit`. Results share no memory with the arguments, with the program
    or with each other. Several threads may call this at once.
    """
    return interpret_leaves(function, *jax.tree.flatten(args))


def interpret_leaves(function: Callable[..., Any], leaves: Sequence[Any], tree: Any) -> Any:
    """`interpret` for arguments that are already split into leaves and a tree."""
    # most are NumPy arrays, which this detects quickly
    which = [type(leaf) is np.ndarray or is_number(leaf) for leaf in leaves]
    key = (function, tree, *map(_kind, leaves), jax.enable_x64.value)
    program = _kept(key)
    if program is None:
        program = make_program(function, leaves, tree, which)
        _keep(key, program)
    return program([np.asarray(leaf) for leaf in compress(leaves, which)])


def _kept(key: Any) -> Program | None:
    """The program with this key, which becomes the most recently used."""
    with _programs_lock:
        if key in _programs:
            _programs.move_to_end(key)
        return _programs.get(key)


def _keep(key: Any, program: Program) -> None:
    with _programs_lock:
        _programs[key] = program
        if len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)


def _kind(leaf: Any) -> Any:
    """The part of a leaf that a program depends on: the shape and dtype of an array, the type of a number,
    or the constant."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return float if isinstance(leaf, float) else (leaf, type(leaf))


def make_program(
    function: Callable[..., Any], leaves: Sequence[Any], tree: Any, which: Sequence[bool]
) -> Program:
    """The program of a function for arguments like these; it computes with those in `which`."""
    given = [
        leaf if isinstance(leaf, float) else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        for leaf in compress(leaves, which)
    ]
    constants: list[Any] = []

    def run(*given: Any) -> Any:
        numbers = iter(given)
        filled = [
            next(numbers) if is_number else leaf
            for leaf, is_number in zip(leaves, which, strict=True)
        ]
        result, rest = eqx.partition(function(*jax.tree.unflatten(tree, filled)), is_array)
        constants.append(rest)
        return result

    with traced_for_numpy():
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(*given)
    return write_program(
        closed,
        jax.tree.structure(shapes),
        constants[-1] if jax.tree.leaves(constants[-1]) else None,
    )


def write_program(closed: Any, tree: Any, rest: Any = None) -> Program:
    """The program of a closed jaxpr."""
    jaxpr, _ = partial_eval.dce_jaxpr(
        closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True
    )
    writer = Writer(WORDS)
    operands = [_argument(writer, variable) for variable in jaxpr.invars]
    results = writer.inline(jaxpr, closed.consts, operands)
    writer.put(f"return ({' '.join(f'{writer.as_array(result)},' for result in results)})")
    used: set[str] = set()
    each, once = (without_unused(block.lines, used) for block in writer.blocks[::-1])
    names = ", ".join(operand.text for operand in operands)
    each = with_releases(each, writer.large)
    text = "\n".join([*once, f"def run({names}):", *indented(each)])
    with np.errstate(all="ignore"):
        exec(compile(text, "<program>", "exec"), writer.constants)
    kept = (id(thing) for thing in writer.constants.values() if isinstance(thing, np.ndarray))
    return Program(writer.constants["run"], text, frozenset(kept), tree, rest)


def _argument(writer: Writer, variable: Any) -> Value:
    """An argument of the program: an array, or the number that is its only entry."""
    name, shape = writer.name(), tuple(variable.aval.shape)
    held = held_plain(shape)
    if held == ():
        writer.put(f"{name} = {name}.item()")
    return Value(name, shape, dtype_of(variable.aval), held, 1)
