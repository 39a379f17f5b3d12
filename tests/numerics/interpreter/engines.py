"""One function run by both engines: compiled by JAX, and interpreted by NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kalvi.numerics.interpreter import interpret

ROUNDING = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-14}
"""Relative to the largest number of a result: some units in the last place."""


def compiled(function: Any, *args: Any) -> Any:
    """The results of JAX, as NumPy arrays."""
    found = jax.jit(function)(*jax.tree.map(jnp.asarray, args))
    return jax.tree.map(np.asarray, found)


def same(found: Any, expected: Any, units: float = 1.0, *, by_entry: bool = False) -> None:
    """The results are those expected to rounding: the same structure, shapes and dtypes, NaN for NaN.

    Rounding is relative to the largest finite number of an array or, by entry, to each.
    """
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), b in zip(
        jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        where = jax.tree_util.keystr(path)
        assert isinstance(a, np.ndarray), where
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b, err_msg=where)
            continue
        finite = np.abs(b[np.isfinite(b)])
        scale = 0.0 if by_entry else float(np.max(finite, initial=0))
        rounding = units * ROUNDING[a.dtype]
        # XLA takes numbers that are smaller than `tiny` for zeros
        floor = float(np.finfo(a.dtype).tiny) + rounding * scale
        np.testing.assert_allclose(a, b, rounding, floor, err_msg=where)


def agree(function: Any, *args: Any, units: float = 1.0, by_entry: bool = False) -> Any:
    """Both engines find the same, which is returned."""
    found = interpret(function, *args)
    same(found, compiled(function, *args), units, by_entry=by_entry)
    return found
