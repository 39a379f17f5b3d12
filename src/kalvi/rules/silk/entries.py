"""A list of the observed entries of a binary matrix, for matrices with few of them.

The entries of a row are in chunks of one width, so that sums over them are small products and few results
are scattered. The list is kept twice, in the order of the rows and in that of the columns. Inside
`sharding.over` the chunks are spread over the devices, and their sums are added.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int8

from kalvi.numerics import sharding
from kalvi.numerics.namespaces import AnyArray
from kalvi.rules.silk.moments import Moments
from kalvi.rules.silk.observed import (
    EntryBlock,
    Observed,
    Statistics,
    block_of,
    block_statistics,
)

WIDEST = 64
"""The most entries of a chunk."""
BLOCK = 2**14
"""The number of entries that are processed at once."""


class Chunks(NamedTuple):
    """The entries of the rows of one side, in chunks."""

    row: Int[Array, " m"]  # the row of each chunk, in increasing order
    other: Int[Array, "m w"]  # their columns
    sign: Int8[Array, "m w"]  # 1, −1, or 0 for padding
    weight: Float[Array, "m w"] | None


class Entries(Observed):
    """The observed entries of a binary matrix, listed."""

    by_row: Chunks
    by_col: Chunks
    size: tuple[int, int] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    def transpose(self) -> "Entries":
        """The list with rows and columns swapped, without moving entries."""
        return Entries(self.by_col, self.by_row, (self.size[1], self.size[0]))

    def reduce(
        self, rows: Moments, cols: Moments, adds_mean: bool, of: Callable[[EntryBlock], Any]
    ) -> Any:
        n, size = self.size[0], _block(self.by_row.other.shape[1])

        def visit(chunks: Chunks, i: Array) -> tuple[Array, Any]:
            here = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, i * size, size), chunks)
            mine, theirs = rows.at(here.row), cols.at(here.other)
            return here.row, of(block_of(mine, here.sign, here.weight, theirs, adds_mean))

        def total(chunks: Chunks) -> Any:
            def advance(i: Array, total: Any) -> Any:
                row, new = visit(chunks, i)
                return jax.tree.map(
                    lambda a, b: a.at[row].add(b, indices_are_sorted=True), total, new
                )

            shapes = jax.eval_shape(lambda: visit(chunks, jnp.zeros((), jnp.int32)))[1]
            empty = jax.tree.map(lambda a: jnp.zeros((n, *a.shape[1:]), a.dtype), shapes)
            return jax.lax.fori_loop(0, len(chunks.row) // size, advance, empty)

        if not sharding.splits(len(self.by_row.row) // size):
            return total(self.by_row)
        own = sharding.on_each_device(
            lambda chunks: sharding.sum_over_devices(total(chunks)),
            (sharding.ROWS,),
            sharding.WHOLE,
        )
        return own(self.by_row)

    def statistics(self, rows: Moments, cols: Moments, adds_mean: bool) -> Statistics:
        return self.reduce(rows, cols, adds_mean, block_statistics)


def list_entries(
    row: Int[np.ndarray, " e"],
    col: Int[np.ndarray, " e"],
    sign: Int8[np.ndarray, " e"],
    weight: Float[np.ndarray, " e"] | None,
    shape: tuple[int, int],
) -> Entries:
    """The list of these entries, signs 1 for ones and −1 for zeros."""
    by_row = _chunks(row, col, sign, weight, shape[0])
    return Entries(by_row, _chunks(col, row, sign, weight, shape[1]), shape)


def _block(width: int) -> int:
    """The number of chunks that are processed together."""
    return max(BLOCK // width, 1)


def _chunks(
    row: np.ndarray, other: np.ndarray, sign: np.ndarray, weight: np.ndarray | None, n: int
) -> Chunks:
    counts = np.bincount(row, minlength=n)
    typical = len(row) / max(np.count_nonzero(counts), 1)
    width = int(min(WIDEST, 2 ** np.floor(np.log2(max(typical, 1)))))
    chunks = -(-counts // width)
    block = _block(width) * sharding.device_count()
    m = -(-max(int(chunks.sum()), 1) // block) * block
    owner = np.full(m, n - 1, np.int32)
    owner[: chunks.sum()] = np.repeat(np.arange(n, dtype=np.int32), chunks)
    order = np.argsort(row, kind="stable")
    first_chunk = np.concatenate([[0], np.cumsum(chunks)])[:-1] * width
    first_entry = np.concatenate([[0], np.cumsum(counts)])[:-1]
    sorted_rows = row[order]
    place = first_chunk[sorted_rows] + np.arange(len(row)) - first_entry[sorted_rows]

    def filled(values: np.ndarray, dtype: type) -> AnyArray:
        slots = np.zeros(m * width, dtype)
        slots[place] = values[order]
        return sharding.rows(slots.reshape(m, width))

    weights = None if weight is None else filled(weight, weight.dtype.type)
    return Chunks(sharding.rows(owner), filled(other, np.int32), filled(sign, np.int8), weights)
