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
    """Makes blocks, of sizes that hold all that it has made before."""

    def __init__(self, intercept: bool, dtype: Any):
        self.intercept, self.dtype = intercept, dtype
        self.sizes: Sizes | None = None

    def expect(self, x: Any, block: int) -> None:
        """Room for the entries of any so many rows of a table, one after the other."""
        if not stays_sparse(x, self.intercept) or x.shape[0] == 0:
            return
        ends = np.cumsum(np.diff(sp.csr_array(x).indptr) + self.intercept)
        most = ends[block - 1 :] - np.append(0, ends[:-block])
        self._grow(Sizes.of(int(max(most, default=ends[-1])), 0, 0, x.shape[1] + self.intercept))

    def _grow(self, sizes: Sizes) -> None:
        self.sizes = sizes if self.sizes is None else self.sizes.union(sizes)

    def make(self, x: Any, size: int, block: int) -> SparseRows:
        """Rows in blocks of `block`, up to `size` rows in all; stacked if there are several."""
        cuts = range(0, size, block)
        patterns = [Pattern(canonical(x[i : i + block]), self.intercept) for i in cuts]
        for pattern in patterns:
            self._grow(pattern.sizes)
        assert self.sizes is not None
        made = [pattern.filled(block, self.sizes, self.dtype) for pattern in patterns]
        return SparseRows.stacked(made) if len(made) > 1 else made[0]


def row_bytes(x: Any, intercept: bool, dtype: Any) -> int:
    """Bytes of a row of a batch."""
    numbers = numbers_per_row(x, intercept)
    sparse = 4 * 4 if stays_sparse(x, intercept) else 0  # its indices, and some of its columns
    return numbers * (np.dtype(dtype).itemsize + sparse)
