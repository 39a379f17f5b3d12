"""A binary matrix with missing entries, with one byte for each entry.

Inside `sharding.over` its rows may be spread over devices (`Table.of`): the statistics of a row are then
computed where the row is, and those of a column are added up over the devices. Factors are small and on
every device.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int8

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.platforms import platform
from kalvi.rules.silk.moments import Moments
from kalvi.rules.silk.observed import (
    EntryBlock,
    Observed,
    Statistics,
    block_of,
    block_statistics,
)

BLOCK, BLOCK_ACCELERATOR = 2**18, 2**26
"""The number of entries in a block: on a CPU what fits in a cache, on an accelerator what fills it."""

MOST_FUSED = 136
"""The second moments of 16 factors: more do not fit in the registers, and plain JAX is as fast."""


class Table(Observed):
    """A matrix of signs, the document's 2X̃: 1 for a one, −1 for a zero, 0 if not observed."""

    signs: Int8[AnyArray, "r c"]
    weight: Float[AnyArray, "r c"] | None = None
    transposed: bool = eqx.field(static=True, default=False)
    padding: int = eqx.field(static=True, default=0)  # rows of `signs` that only pad a device

    @property
    def shape(self) -> tuple[int, int]:
        r, c = self.signs.shape[0] - self.padding, self.signs.shape[1]
        return (c, r) if self.transposed else (r, c)

    def transpose(self) -> "Table":
        """The table with rows and columns swapped, without moving entries."""
        return Table(self.signs, self.weight, not self.transposed, self.padding)

    @classmethod
    def of(
        cls, signs: Int8[np.ndarray, "r c"], weight: Float[np.ndarray, "r c"] | None = None
    ) -> "Table":
        """A table from arrays of the host; its rows are spread over the devices of `sharding.over`."""
        padding = -len(signs) % sharding.device_count()

        def placed(a: np.ndarray) -> AnyArray:
            return sharding.rows(np.pad(a, ((0, padding), (0, 0))) if padding else a)

        weight_placed = None if weight is None else placed(weight)
        return cls(placed(signs), weight_placed, False, padding)

    def piece(self, rows: Int[Array, " b"], cols: Int[Array, " w"]) -> "Table":
        """The table of some rows and columns."""
        first, last = (cols, rows) if self.transposed else (rows, cols)
        at = first[:, None], last[None, :]
        weight = None if self.weight is None else self.weight[at]
        return Table(self.signs[at], weight, self.transposed)

    def reduce(
        self, rows: Moments, cols: Moments, adds_mean: bool, of: Callable[[EntryBlock], Any]
    ) -> Any:
        return self._on_devices(
            lambda table, *sides: table.reduce_here(*sides, adds_mean, of), rows, cols
        )

    def statistics(self, rows: Moments, cols: Moments, adds_mean: bool) -> Statistics:
        return self._on_devices(
            lambda table, *sides: table.statistics_here(*sides, adds_mean), rows, cols
        )

    def _on_devices(self, function: Callable, rows: Moments, cols: Moments) -> Any:
        """function(table, rows, cols), which sums over the entries of each row, run on every device for its
        part."""
        if not sharding.splits(len(self.signs)):
            return function(self, rows, cols)
        filled = (rows, _filled(cols, self.padding))
        filled = filled if self.transposed else (_filled(rows, self.padding), cols)

        def own(signs, weight, rows, cols):
            found = function(Table(signs, weight, self.transposed), rows, cols)
            return sharding.sum_over_devices(found) if self.transposed else found

        cut, whole = sharding.ROWS, sharding.WHOLE
        sides, out = ((whole, cut), whole) if self.transposed else ((cut, whole), cut)
        found = sharding.on_each_device(own, (cut, cut, *sides), out)(
            self.signs, self.weight, *filled
        )
        return jax.tree.map(lambda a: a[: self.shape[0]], found)

    def reduce_here(
        self, rows: Moments, cols: Moments, adds_mean: bool, of: Callable[[EntryBlock], Any]
    ) -> Any:
        """`reduce` over the entries on one device."""

        def visit(first: Int[Array, ""], size: int) -> Any:
            here = Moments(*(jax.lax.dynamic_slice_in_dim(a, first, size) for a in rows))
            return of(block_of(here, *self._block(first, size), cols, adds_mean))

        return _by_blocks(*self.shape, visit)

    def statistics_here(self, rows: Moments, cols: Moments, adds_mean: bool) -> Statistics:
        """`statistics` of the entries on one device."""
        if self.weight is None and _fusible(self.signs, rows):
            from kalvi.rules.silk.fused import (
                fused_statistics,
            )  # imports Pallas, which takes long

            return fused_statistics(
                self.signs, rows, cols, adds_mean=adds_mean, transposed=self.transposed
            )
        return self.reduce_here(rows, cols, adds_mean, block_statistics)

    def _block(self, first: Int[Array, ""], size: int) -> tuple[Array, Array | None]:
        """Some rows of the signs and of the weights."""

        def read(a: Array) -> Array:
            if self.transposed:
                return jax.lax.dynamic_slice_in_dim(a, first, size, axis=1).T
            return jax.lax.dynamic_slice_in_dim(a, first, size)

        return read(self.signs), None if self.weight is None else read(self.weight)


def _filled(side: Moments, padding: int) -> Moments:
    """The array with rows of zeros added at its end."""
    return Moments(*(jnp.pad(part, ((0, padding), (0, 0))) for part in side))


def _by_blocks(n: int, width: int, visit: Callable[[Array, int], Any]) -> Any:
    """visit(first, size) for all blocks of n rows with `width` entries each, as arrays of n rows.

    The last block reaches back so that all have one size.
    """
    whole = BLOCK if platform() == "cpu" else BLOCK_ACCELERATOR
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


def _fusible(signs: Int8[Array, "r c"], rows: Moments) -> bool:
    """Whether the kernel of `fused` can be used: in float32 on a GPU, with few enough factors for the
    chip."""
    # the kernel's compiler takes offsets between 2³¹ and 2³² bytes as negative
    reachable = signs.size < 2**31 or signs.size > 2**32
    fits = 0 < rows.second.shape[1] <= MOST_FUSED
    single = rows.mean.dtype == jnp.float32
    return platform() == "gpu" and single and fits and reachable
