"""Blocks of sparse rows for batches, in a few sizes.

Sizes are powers of two and only grow within one pass over a table, so that blocks of similar rows share a
program.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.numerics import sharding
from kalvi.numerics.sparse_rows import Pattern, Sizes, SparseRows, canonical

NARROW, SHARE = 64, 8
"""Rows with fewer columns, or with more than one stored number in so many columns, are made dense."""
ACTIVE, SHARED = 5 / 8, 1 / 9
"""The room for active and for shared columns in a block, per stored number: enough for texts; it grows if
it is too small."""


def stays_sparse(x: Any, intercept: bool) -> bool:
    """Whether rows are learned and predicted without being made dense.

    They are made dense if parameters are spread over devices.
    """
    if not sp.issparse(x) or x.shape[1] < NARROW or sharding.splits(x.shape[1] + intercept):
        return False
    return SHARE * x.nnz <= x.shape[0] * x.shape[1]


def numbers_per_row(x: Any, intercept: bool) -> int:
    """The approximate number of numbers that a row takes in memory."""
    if stays_sparse(x, intercept):
        return x.nnz // max(x.shape[0], 1) + 1
    return max(x.shape[1] + intercept, 1)


class SparseBlocks:
    """Makes blocks; each has sizes that would also hold all earlier blocks with as many rows."""

    def __init__(self, intercept: bool, dtype: Any):
        self.intercept, self.dtype = intercept, dtype
        self.sizes: dict[int, Sizes] = {}
        self._memory = np.zeros(0, np.int32)  # a number for each column, for `Pattern`

    def expect(self, x: Any, block: int) -> None:
        """Make room for any `block` successive rows of a table, if they are like most of its rows."""
        if not stays_sparse(x, self.intercept) or x.shape[0] == 0:
            return
        n, ends = x.shape[0], np.cumsum(np.diff(sp.csr_array(x).indptr) + self.intercept)
        windows = ends[block - 1 :] - np.append(0, ends[: n - block]) if n >= block else ends[-1:]
        most = int(windows.max() * max(block / n, 1))
        self._grow(block, self._texts(most, x.shape[1] + self.intercept))

    def make(self, x: Any, size: int, block: int) -> SparseRows:
        """The rows in blocks of `block`, padded to `size` rows in all; stacked if there are several
        blocks."""
        cuts = range(0, max(size, 1), max(block, 1))
        width = x.shape[1] + self.intercept
        if len(self._memory) != width:
            self._memory = np.empty(width, np.int32)
        rows = (canonical(x[i : i + block]) for i in cuts)
        patterns = [Pattern(part, self.intercept, self._memory) for part in rows]
        for pattern in patterns:
            self._grow(block, pattern.sizes)
        made = [pattern.filled(block, self.sizes[block], self.dtype) for pattern in patterns]
        return SparseRows.stacked(made) if len(made) > 1 else made[0]

    @staticmethod
    def _texts(numbers: int, width: int) -> Sizes:
        return Sizes.of(numbers, int(ACTIVE * numbers), int(SHARED * numbers), width)

    def _grow(self, block: int, sizes: Sizes) -> None:
        known = self.sizes.get(block)
        self.sizes[block] = sizes if known is None else known.union(sizes)


def row_bytes(x: Any, intercept: bool, dtype: Any) -> int:
    """The bytes of a row of a batch."""
    numbers = numbers_per_row(x, intercept)
    sparse = 4 * 4 if stays_sparse(x, intercept) else 0  # its indices, and some of the columns
    return numbers * (np.dtype(dtype).itemsize + sparse)
