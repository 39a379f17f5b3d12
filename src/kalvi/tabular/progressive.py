"""Rows are predicted before they are learned, so that scores are those of new data even on small tables.

A stream is learned in blocks that grow: 16 rows at first, then half as many as were learned before, at most
512, and whole pieces after 4,096 rows. Each block is predicted just before it is learned. The blocks depend
only on the number of rows, so a resumed run has the same ones. What is learned does not depend on them: a
full covariance is updated row by row, and a low-rank one has a buffer of its own.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

ALL_ROWS = 50_000
"""All of the first so many rows of a stream are predicted, and some of each later piece."""
CHECKED = 512
"""The most rows of a later piece that are predicted."""
STEP, LARGEST = 16, 512
"""Blocks have a multiple of 16 rows, as those of a full covariance do, and at most 512."""
UNCUT = 4096
"""After so many rows, the rest of each piece is one block."""
PER_INPUT, LEAST_LEARNED, MOST_LEARNED = 2, 16, 1024
"""Scores begin after two rows for each input, but after 16 to 1,024 rows: before that, predictions may be
arbitrarily bad, and a few of them would outweigh all others."""


def block_size(learned: int, first: int, left: int) -> int:
    """The size of the next block, of the rows left in a piece."""
    if learned >= UNCUT:
        return left
    if not learned:
        return min(first, left)
    return min(max(STEP, learned // 2 // STEP * STEP), LARGEST, left)


def rows_before_scores(width: int) -> int:
    """The number of rows that a model with so many inputs learns before its predictions are scored."""
    return int(np.clip(PER_INPUT * width, LEAST_LEARNED, MOST_LEARNED))


def scored_rows(learned: int, weight: np.ndarray, width: int) -> np.ndarray:
    """The rows of a block that are predicted and scored before they are learned.

    Early in a stream these are all rows with a weight above 0, later some of them, evenly spaced.
    """
    if learned < rows_before_scores(width):
        return np.zeros(0, int)
    there = np.flatnonzero(weight > 0)
    if learned < ALL_ROWS:
        return there
    return there[np.linspace(0, len(there) - 1, min(CHECKED, len(there))).astype(int)]


def padded(x: Any, y: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows, padded to the size of the largest block with zeros of weight 0.

    So all blocks have one size, for which programs are compiled once.
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
