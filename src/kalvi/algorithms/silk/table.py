"""A binary matrix with missing entries, one byte an entry."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8

from kalvi.algorithms.silk.fused import fused_statistics, fusible
from kalvi.algorithms.silk.moments import Moments
from kalvi.algorithms.silk.observed import (
    Block,
    Observed,
    Statistics,
    block_of,
    block_statistics,
)

BLOCK, BLOCK_ACCELERATOR = 2**18, 2**26
"""How many entries a block holds at once: on a CPU what a cache holds, on an accelerator what fills it."""


class Table(Observed):
    """A matrix of signs, the document's 2X̃: 1 for a one, −1 for a zero, 0 for nothing observed."""

    signs: Int8[Array, "r c"]
    weight: Float[Array, "r c"] | None = None
    transposed: bool = eqx.field(static=True, default=False)

    @property
    def shape(self) -> tuple[int, int]:
        r, c = self.signs.shape
        return (c, r) if self.transposed else (r, c)

    def transpose(self) -> "Table":
        """Rows and columns swapped; nothing is moved."""
        return Table(self.signs, self.weight, not self.transposed)

    def piece(self, rows: Int[Array, " b"], cols: Int[Array, " w"]) -> "Table":
        """The table of some rows and columns."""
        first, last = (cols, rows) if self.transposed else (rows, cols)
        at = first[:, None], last[None, :]
        weight = None if self.weight is None else self.weight[at]
        return Table(self.signs[at], weight, self.transposed)

    def reduce(
        self, rows: Moments, cols: Moments, adds_mean: bool, of: Callable[[Block], Any]
    ) -> Any:
        def visit(first: Int[Array, ""], size: int) -> Any:
            here = Moments(*(jax.lax.dynamic_slice_in_dim(a, first, size) for a in rows))
            return of(block_of(here, *self._block(first, size), cols, adds_mean))

        return _by_blocks(*self.shape, visit)

    def statistics(self, rows: Moments, cols: Moments, adds_mean: bool) -> Statistics:
        if self.weight is None and fusible(self.signs, rows):
            return fused_statistics(
                self.signs, rows, cols, adds_mean=adds_mean, transposed=self.transposed
            )
        return self.reduce(rows, cols, adds_mean, block_statistics)

    def _block(self, first: Int[Array, ""], size: int) -> tuple[Array, Array | None]:
        """Some rows of the signs, and of the weights."""

        def read(a: Array) -> Array:
            if self.transposed:
                return jax.lax.dynamic_slice_in_dim(a, first, size, axis=1).T
            return jax.lax.dynamic_slice_in_dim(a, first, size)

        return read(self.signs), None if self.weight is None else read(self.weight)


def corner(
    signs: Int8[np.ndarray, "r c"], rows: Bool[np.ndarray, " r"], cols: Bool[np.ndarray, " c"]
) -> tuple[Table, Table]:
    """The matrix without the corner of these rows and columns, and the corner alone (1.3)."""
    held, nothing = rows[:, None] & cols[None], np.int8(0)
    seen, hidden = np.where(held, nothing, signs), np.where(held, signs, nothing)
    return Table(jnp.asarray(seen)), Table(jnp.asarray(hidden))


def _by_blocks(n: int, width: int, visit: Callable[[Array, int], Any]) -> Any:
    """visit(first, size) of all blocks of n rows, `width` entries each, as arrays of n rows.

    The last block reaches back so that all have one size.
    """
    whole = BLOCK if jax.default_backend() == "cpu" else BLOCK_ACCELERATOR
    size = min(n, max(whole // width, 8))
    first = jnp.zeros((), jnp.int32)
    if size == n:
        return visit(first, n)
    shapes = jax.eval_shape(lambda: visit(first, size))
    empty = jax.tree.map(lambda a: jnp.zeros((n, *a.shape[1:]), a.dtype), shapes)

    def advance(i: Array, filled: Any) -> Any:
        first = jnp.minimum(i * size, n - size)
        return jax.tree.map(
            lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, first, axis=0),
            filled,
            visit(first, size),
        )

    return jax.lax.fori_loop(0, -(-n // size), advance, empty)
