"""One formula for NumPy and JAX: its arrays decide which of the two computes it.

Predictions use NumPy if the parameters are in the memory of the host. They then need neither JAX's backend,
whose threads do not survive a fork, nor a compilation before the first row.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
import scipy
from jaxtyping import Float

from kalvi.numerics.platforms import is_traced_for_numpy
from kalvi.system.forks import refuse_inherited_backend

if TYPE_CHECKING:  # type checkers would make every formula distinguish the libraries
    AnyArray = Any
    Scalar = Any
    Values = Any
else:
    AnyArray = jax.Array | np.ndarray
    Scalar = Float[AnyArray, ""] | float
    Values = Float[AnyArray, "..."] | float
"""For annotations of formulas: an array of either library; a single number of either or of Python; numbers
of any shape."""

Setting = Values
"""A number of a rule that a program computes with: a new value needs no new program."""

T = TypeVar("T")

WRITTEN_OUT = 8
"""In programs for NumPy, loops of up to so many steps are written out, so that indices are numbers."""


def is_jax(*values: Any) -> bool:
    """Whether any of the values, or of their parts, is an array of JAX."""
    others = [value for value in values if type(value) is not np.ndarray]  # the usual case, first
    return has_jax(jax.tree.leaves(others))


def has_jax(leaves: Iterable[Any]) -> bool:
    """Whether any of the leaves of a tree is an array of JAX."""
    return any(type(leaf) is not np.ndarray and isinstance(leaf, jax.Array) for leaf in leaves)


def is_array(value: Any) -> bool:
    """Whether a value is an array of either library."""
    return isinstance(value, jax.Array | np.ndarray)


def is_number(value: Any) -> bool:
    """Whether a program computes with a value; anything else is a constant of the program."""
    return isinstance(value, jax.Array | np.ndarray | np.generic | float)


def namespace_of(*arrays: Any) -> Any:
    """jax.numpy if any of the arguments is an array of JAX, otherwise numpy."""
    return jnp if is_jax(*arrays) else np


def scipy_of(*arrays: Any) -> Any:
    """jax.scipy if any of the arguments is an array of JAX, otherwise scipy."""
    return jax.scipy if is_jax(*arrays) else scipy


def as_setting(value: Any) -> Any:
    """A setting in the form that a program computes with: an array unchanged, any other number as a
    float."""
    if value is None or is_array(value):
        return value
    return float(value) if np.ndim(value) == 0 else np.asarray(value, float)


def as_array(value: Any) -> AnyArray:
    """The value as an array of JAX, unless it is a NumPy array."""
    return value if isinstance(value, np.ndarray) else on_device(value)


def repeat(n: int, step: Callable[[Any, T], T], start: T) -> T:
    """step(n − 1, … step(1, step(0, start))), as a loop of JAX if the start has JAX arrays."""
    if is_jax(start) and not (is_traced_for_numpy() and n <= WRITTEN_OUT):
        return jax.lax.fori_loop(0, n, step, start)
    for i in range(n):
        start = step(i, start)
    return start


def choose(flag: Any, yes: Callable[[], T], no: Callable[[], T]) -> T:
    """yes() if the flag is true, otherwise no(), never both; a branch of JAX if the flag is a JAX array."""
    if is_jax(flag):
        return jax.lax.cond(flag, yes, no)
    return yes() if flag else no()


def map_blocks(function: Callable[[Any], Any], blocks: AnyArray) -> AnyArray:
    """The results of the function for each block in turn, stacked."""
    if is_jax(blocks):
        return jax.lax.map(function, blocks)
    return np.stack([function(block) for block in blocks])


def on_host(tree: T) -> T:
    """The tree with NumPy arrays in place of JAX arrays, except those on an accelerator or several
    devices."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    if all(_in_memory(leaf) for leaf in arrays):
        return jax.tree.map(lambda leaf: np.asarray(leaf) if is_jax(leaf) else leaf, tree)
    return tree


def on_device(tree: T) -> T:
    """The tree with JAX arrays in place of NumPy arrays; the same tree if it has none."""
    refuse_inherited_backend()
    if all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.tree.map(jnp.asarray, tree)


def _in_memory(array: jax.Array) -> bool:
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"
