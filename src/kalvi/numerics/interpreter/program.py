"""Functions of JAX arrays, traced once and run by NumPy."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy.special
from jax.interpreters import partial_eval

from kalvi.numerics.interpreter import algebra, arrays, control, elementwise
from kalvi.numerics.interpreter.writer import Value, Writer, dtype_of, indented, without_unused
from kalvi.numerics.namespaces import is_array, is_number
from kalvi.numerics.platforms import traced_for_numpy

MOST_PROGRAMS = 256
"""Programs that are kept; the one that was used longest ago goes first."""

WORDS = {
    "np": np,
    "special": scipy.special,
    "inf": math.inf,
    "nan": math.nan,
    "full": np.full,
    "asarray": np.asarray,
    "broadcast_to": np.broadcast_to,
    "put": arrays.put,
    "pad": arrays.pad,
    "sort": arrays.sort,
    "top_k": arrays.top_k,
    **{f"m{name}": getattr(math, name) for name in (
        "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "tanh", "asinh", "atan", "atan2", "erf", "erfc"
    )},
    **elementwise.GUARDED,
}  # fmt: skip
"""What the lines of programs may name."""
ROOMS = (algebra, arrays, control, elementwise)
"""Where primitives are written."""


class Program(NamedTuple):
    """A traced function as Python: arrays in, arrays out."""

    run: Callable[..., tuple[Any, ...]]
    text: str
    tree: Any  # of the results
    rest: Any  # what is no array in the results

    def __call__(self, leaves: Sequence[Any]) -> Any:
        with np.errstate(all="ignore"):
            found = jax.tree.unflatten(self.tree, self.run(*leaves))
        return found if self.rest is None else eqx.combine(found, self.rest)


_programs: OrderedDict[Any, Program] = OrderedDict()


def interpret(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args) by NumPy; its arrays are those of NumPy, and so are the results.

    Arrays and floating-point numbers are what the program computes with. Anything else in the arguments
    is a constant of the program, as with `jax.jit`.
    """
    leaves, tree = jax.tree.flatten(args)
    which = [is_number(leaf) for leaf in leaves]
    key = (function, tree, *map(_kind, leaves), jax.config.jax_enable_x64)
    program = _programs.get(key)
    if program is None:
        program = _programs[key] = make_program(function, leaves, tree, which)
        if len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)
    else:
        _programs.move_to_end(key)
    return program([np.asarray(leaf) for leaf in compress(leaves, which)])


def _kind(leaf: Any) -> Any:
    """What a program depends on: shape and dtype of an array, that a number is one, or the constant."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return float if isinstance(leaf, float) else (leaf, type(leaf))


def make_program(
    function: Callable[..., Any], leaves: Sequence[Any], tree: Any, which: Sequence[bool]
) -> Program:
    """The program of a function, for arguments like these; `which` of them it computes with."""
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
    constants = dict(WORDS)
    writer = Writer(constants)
    names = [writer.name() for _ in jaxpr.invars]
    operands, lines = [], []
    for name, variable in zip(names, jaxpr.invars, strict=True):
        shape = tuple(variable.aval.shape)
        operands.append(Value(name, shape, dtype_of(variable.aval), shape, 1))
        if shape == ():
            lines.append(f"{name} = {name}.item()")
    writer.blocks[1].lines.extend(lines)
    results = writer.inline(jaxpr, closed.consts, operands)
    texts = [writer.as_array(result) for result in results]
    writer.put(f"return ({' '.join(f'{text},' for text in texts)})")
    used: set[str] = set()
    each, once = (without_unused(block.lines, used) for block in writer.blocks[::-1])
    text = "\n".join([*once, f"def run({', '.join(names)}):", *indented(each)])
    with np.errstate(all="ignore"):
        exec(compile(text, "<program>", "exec"), constants)
    return Program(constants["run"], text, tree, rest)
