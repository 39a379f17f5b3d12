"""Probabilities of entries from the factors of rows and columns."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kalvi.estimators.prediction_blocks import padded_blocks, predict_in_blocks
from kalvi.rules.silk import Moments, paired_probabilities, probabilities
from kalvi.rules.silk.predict import paired_quantiles, quantiles
from kalvi.streams import run

BLOCK = 2**18
"""The number of entries that are predicted at once."""


def predict_matrix(
    rows: Moments, cols: Moments, adds_mean: bool, z: float | None = None
) -> Float[np.ndarray, "r c"]:
    """P(x = 1) of all pairs, a block of rows at a time, or its quantile z deviations from the median."""
    ask, more = (probabilities, ()) if z is None else (quantiles, (z,))
    n, width = len(rows.mean), len(cols.mean)
    if n * width == 0:
        return np.empty((n, width), rows.mean.dtype)
    return _in_blocks(
        lambda index: run.call(ask, rows.at(index), cols, adds_mean, *more),
        n,
        min(n, max(BLOCK // width, 1)),
    )


def predict_pairs(
    rows: Moments, cols: Moments, adds_mean: bool, z: float | None = None
) -> Float[np.ndarray, " e"]:
    """P(x = 1) of each row with the column at the same position, or its quantile."""
    ask, more = (paired_probabilities, ()) if z is None else (paired_quantiles, (z,))
    n = len(rows.mean)
    if n != len(cols.mean):
        raise ValueError(
            f"rows and cols name entries side by side and must be of one length; got {n} and "
            f"{len(cols.mean)}. For all pairs of some rows and columns index the whole matrix."
        )
    if n == 0:
        return np.zeros(0, rows.mean.dtype)
    return _in_blocks(
        lambda index: run.call(ask, rows.at(index), cols.at(index), adds_mean, *more),
        n,
        min(1 << (n - 1).bit_length(), BLOCK),
    )


def as_numbers(name: str, index: Any, n: int) -> Int[np.ndarray, " e"]:
    """The indices of rows (or columns) that are given by number, slice or mask."""
    try:
        index = index if isinstance(index, slice) else np.atleast_1d(np.asarray(index))
        found = np.arange(n)[index]
    except IndexError as error:
        raise ValueError(f"{name}s must be numbers of the {n} {name}s; {error}.") from None
    if found.ndim != 1:
        raise ValueError(f"{name}s must have one dimension; got {found.ndim}.")
    return found


def _in_blocks(function: Callable[[Array], Array], n: int, size: int) -> np.ndarray:
    """The results of a function of row indices, for `size` of them at a time."""
    blocks = padded_blocks(np.arange(n), size)
    return predict_in_blocks(lambda index: (function(jnp.asarray(index)),), blocks, n)[0]
