"""Rows predicted before they are learned, so that scores are those of new data even on small tables.

A stream is learned in blocks that grow with the rows learned before: 16 rows at first, then half of them,
up to 512 and whole pieces from 4,096 rows on. Each block is predicted just before it is learned. The blocks
follow from the rows alone, so a resumed run cuts the stream alike; how it is cut does not change what is
learned (a full covariance is updated row by row, a low-rank one has a buffer of its own).
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

ALL_ROWS = 50_000
"""So many rows of a stream are all predicted first; of later pieces, some."""
CHECKED = 512
"""So many rows of a later piece, or block, are predicted."""
STEP, LARGEST = 16, 512
"""Blocks are multiples of 16 rows, as those of a full covariance are, and no larger than 512."""
UNCUT = 4096
"""Pieces, or what is left of them, are learned whole after so many rows."""
PER_INPUT, LEAST_LEARNED, MOST_LEARNED = 2, 16, 1024
"""Scores begin when there were two rows for each input, at least and at most so many: a model that knows
less predicts anything, and a few such rows would outweigh all others."""


def block_size(learned: int, first: int, left: int) -> int:
    """How many of the rows left in a piece are learned next."""
    if learned >= UNCUT:
        return left
    if not learned:
        return min(first, left)
    return min(max(STEP, learned // 2 // STEP * STEP), LARGEST, left)


def rows_before_scores(width: int) -> int:
    """How many rows a model of so many inputs must have learned before its predictions are scored."""
    return int(np.clip(PER_INPUT * width, LEAST_LEARNED, MOST_LEARNED))


def scored_rows(learned: int, weight: np.ndarray, width: int) -> np.ndarray:
    """Which rows of a block are predicted and scored before they are learned.

    Late in a stream they are some of those with a weight, spread evenly.
    """
    if learned < rows_before_scores(width):
        return np.zeros(0, int)
    there = np.flatnonzero(weight > 0)
    if learned < ALL_ROWS:
        return there
    return there[np.linspace(0, len(there) - 1, min(CHECKED, len(there))).astype(int)]


def padded(x: Any, y: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows with rows of zeros and of weight 0 after them, to the size of the largest block.

    Blocks of one size are compiled once.
    """
    short = LARGEST - len(y)
    if short <= 0:
        return x, y, weight
    if sp.issparse(x):
        wide = sp.csr_array(x, copy=True)
        wide.resize((LARGEST, x.shape[1]))
    else:
        wide = np.pad(x, [(0, short), (0, 0)])
    return wide, np.pad(y, (0, short)), np.pad(weight, (0, short))
