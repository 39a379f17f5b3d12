"""Predictions for any number of rows, in blocks, so that memory is bounded and few shapes are compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

SMALLEST_BLOCK, LARGEST_BLOCK = 8, 1024
"""The number of rows in a block is a power of two between these."""


def rows_at_once(n_rows: int, numbers_per_row: int = 1, most_numbers: int = 2**25) -> int:
    """The number of rows in a block; a block has at most `most_numbers` numbers."""
    enough = max(1 << max(n_rows - 1, 0).bit_length(), SMALLEST_BLOCK)
    return min(enough, int(np.clip(most_numbers // max(numbers_per_row, 1), 1, LARGEST_BLOCK)))


def padded_blocks(x: Any, size: int) -> Iterator[np.ndarray]:
    """Blocks of `size` rows of an array or a sparse matrix; the last is padded with its last row."""
    for first in range(0, x.shape[0], size):
        block = x[first : first + size]
        block = block.toarray() if sp.issparse(block) else block
        yield np.pad(block, [(0, size - len(block))] + [(0, 0)] * (x.ndim - 1), mode="edge")


def predict_in_blocks(
    function: Callable[[Any], tuple[Any, ...]], blocks: Iterator[Any], n_rows: int
) -> tuple[np.ndarray, ...]:
    """The concatenated results of the function for all blocks, without those for padding."""
    found = [[np.asarray(part) for part in function(block)] for block in blocks]
    return tuple(np.concatenate(parts)[:n_rows] for parts in zip(*found, strict=True))
