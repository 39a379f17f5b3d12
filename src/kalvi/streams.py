"""Rows from arrays, as Batches of a few fixed sizes.

Long runs of rows go in chunks of many blocks, the remainder block by block, the last block padded with
rows of weight 0: whatever the lengths of the arrays, only two shapes are ever compiled.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from kalvi.algorithms.base import Batch

CHUNK_BYTES = 2**25
"""A chunk of dense rows takes about this much memory, whatever their width."""
CHUNK_BLOCKS = 128
"""At most this many blocks to a chunk, so that progress shows."""


def array_batches(
    x: Any,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    block_size: int,
    intercept: bool = False,
    dtype: np.dtype | type | str = np.float64,
) -> Iterator[Batch]:
    """The rows of x (an array, or CSR and made dense a chunk at a time), a column of ones last if asked."""
    n, width = x.shape[0], x.shape[1] + intercept
    weight = np.ones(n) if weight is None else weight
    row_bytes = np.dtype(dtype).itemsize * block_size * max(width, 1)
    chunk = block_size * int(np.clip(CHUNK_BYTES // row_bytes, 1, CHUNK_BLOCKS))
    start = 0
    while start < n:
        size = chunk if n - start >= chunk else block_size
        rows = slice(start, min(start + size, n))
        yield _batch(x[rows], y[rows], weight[rows], size, intercept, dtype)
        start += size


def whole_batch(
    x: Any,
    y: np.ndarray,
    weight: np.ndarray,
    *,
    intercept: bool = False,
    dtype: np.dtype | type | str = np.float64,
) -> Batch:
    """All rows in one Batch, padded to one of a few sizes (at most eight an octave) to compile little."""
    step = 2 ** max(int(np.log2(max(x.shape[0], 1))) - 3, 6)
    return _batch(x, y, weight, -(-x.shape[0] // step) * step, intercept, dtype)


def _batch(x, y, weight, size: int, intercept: bool, dtype) -> Batch:
    rows = x.toarray() if sp.issparse(x) else np.asarray(x)
    padded = np.zeros((size, rows.shape[1] + intercept), dtype)
    padded[: len(rows), : rows.shape[1]] = rows
    if intercept:
        padded[: len(rows), -1] = 1
    labels, weights = np.zeros(size, dtype), np.zeros(size, dtype)
    labels[: len(rows)], weights[: len(rows)] = y, weight
    return Batch(jnp.asarray(padded), jnp.asarray(labels), jnp.asarray(weights))
