"""Blocks of sparse rows for batches, in a few sizes.

Sizes are powers of two and grow only, within one pass over a table: blocks of like rows share a program.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.numerics import sharding
from kalvi.numerics.sparse_rows import Pattern, Sizes, SparseRows, canonical

NARROW, SHARE = 64, 8
"""Rows of fewer columns, or with more than one number in so many columns, are made dense."""
ACTIVE, SHARED = 5 / 8, 1 / 9
"""Blocks have room for so many active and shared columns a number: what texts need, or more if it is
needed."""


def stays_sparse(x: Any, intercept: bool) -> bool:
    """Whether rows are learned and predicted without being made dense.

    Where parameters are spread over devices, they are not.
    """
    if not sp.issparse(x) or x.shape[1] < NARROW or sharding.splits(x.shape[1] + intercept):
        return False
    return SHARE * x.nnz <= x.shape[0] * x.shape[1]


def numbers_per_row(x: Any, intercept: bool) -> int:
    """About how many numbers a row has in memory."""
    if stays_sparse(x, intercept):
        return x.nnz // max(x.shape[0], 1) + 1
    return max(x.shape[1] + intercept, 1)


class SparseBlocks:
    """Makes blocks; those of so many rows have sizes that hold all such that it has made before."""

    def __init__(self, intercept: bool, dtype: Any):
        self.intercept, self.dtype = intercept, dtype
        self.sizes: dict[int, Sizes] = {}

    def expect(self, x: Any, block: int) -> None:
        """Room for any so many rows of a table, one after the other, if they are like most."""
        if not stays_sparse(x, self.intercept) or x.shape[0] == 0:
            return
        n, ends = x.shape[0], np.cumsum(np.diff(sp.csr_array(x).indptr) + self.intercept)
        windows = ends[block - 1 :] - np.append(0, ends[: n - block]) if n >= block else ends[-1:]
        most = int(windows.max() * max(block / n, 1))
        self._grow(block, self._texts(most, x.shape[1] + self.intercept))

    def make(self, x: Any, size: int, block: int) -> SparseRows:
        """Rows in blocks of `block`, up to `size` rows in all; stacked if there are several."""
        cuts = range(0, max(size, 1), max(block, 1))
        patterns = [Pattern(canonical(x[i : i + block]), self.intercept) for i in cuts]
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
    """Bytes of a row of a batch."""
    numbers = numbers_per_row(x, intercept)
    sparse = 4 * 4 if stays_sparse(x, intercept) else 0  # its indices, and some of its columns
    return numbers * (np.dtype(dtype).itemsize + sparse)
