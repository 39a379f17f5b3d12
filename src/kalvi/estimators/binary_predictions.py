"""Probabilities of entries under a factorisation: of the matrix, of some entries, at new locations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kalvi.estimators.binary_places import UNORDERED, Axis, numbers
from kalvi.rules.silk import (
    Beside,
    Moments,
    Side,
    beside,
    bridge,
    paired_probabilities,
    probabilities,
)
from kalvi.streams import run

BLOCK = 2**18
"""Entries predicted at once."""


def moments(side: Side, axis: Axis, name: str, index: Any, locations: Any) -> Moments:
    """The moments of some of the user's rows (or columns), or at new locations; of all rows if neither."""
    if locations is not None:
        if index is not None:
            raise ValueError(f"give {name}s or {name}_locations, not both.")
        return bridged(side, axis, name, locations)[0]
    at = axis.at if index is None else axis.at[numbered(name, index, axis.n)]
    return run.call(_moments, side).at(jnp.asarray(at))


def bridged(
    side: Side, axis: Axis, name: str, locations: Any
) -> tuple[Moments, Float[Array, "t k"]]:
    """Moments and variances at new locations."""
    if not side.ordered:
        raise ValueError(
            f"{name}_locations need {name}s with locations, but these were fitted as {UNORDERED!r}; "
            f"use {name}s for those of the matrix."
        )
    new, known = numbers(f"{name}_locations", locations), axis.places.locations
    if not len(new):
        raise ValueError(f"{name}_locations must hold at least one location; got none.")
    size, dtype = 1 << (len(new) - 1).bit_length(), side.prior.mean.dtype  # few sizes to compile
    padded = np.pad(new, (0, size - len(new)), mode="edge")
    law, var = run.call(_bridged, side, beside(known, padded, dtype))
    return law.at(jnp.arange(len(new))), var[: len(new)]


def numbered(name: str, index: Any, n: int) -> Int[np.ndarray, " e"]:
    """Rows (or columns) by number, slice or mask, as their numbers."""
    try:
        index = index if isinstance(index, slice) else np.atleast_1d(np.asarray(index))
        found = np.arange(n)[index]
    except IndexError as error:
        raise ValueError(f"{name}s must be numbers of the {n} {name}s; {error}.") from None
    if found.ndim != 1:
        raise ValueError(f"{name}s must have one dimension; got {found.ndim}.")
    return found


def matrix(rows: Moments, cols: Moments, adds_mean: bool) -> Float[np.ndarray, "r c"]:
    """P(x = 1) of all pairs, some rows at a time."""
    n, width = len(rows.mean), len(cols.mean)
    found = np.empty((n, width), rows.mean.dtype)
    if found.size == 0:
        return found
    size = min(n, max(BLOCK // width, 1))
    for first in range(0, n, size):
        first = min(first, n - size)  # the last block reaches back, so that all have one size
        some = rows.at(jnp.arange(first, first + size))
        found[first : first + size] = run.call(probabilities, some, cols, adds_mean)
    return found


def pairs(rows: Moments, cols: Moments, adds_mean: bool) -> Float[np.ndarray, " e"]:
    """P(x = 1) of rows and columns side by side."""
    n = len(rows.mean)
    if n != len(cols.mean):
        raise ValueError(
            f"rows and cols name entries side by side and must be of one length; got {n} and "
            f"{len(cols.mean)}. For all pairs of some rows and columns index the whole matrix."
        )
    size = min(1 << max(n - 1, 0).bit_length(), BLOCK)
    parts = []
    for first in range(0, n, size):
        index = jnp.minimum(jnp.arange(first, first + size), n - 1)
        parts.append(run.call(paired_probabilities, rows.at(index), cols.at(index), adds_mean))
    return np.concatenate(parts)[:n] if parts else np.zeros(0, rows.mean.dtype)


def _moments(side: Side) -> Moments:
    return side.posterior.moments()


def _bridged(side: Side, at: Beside) -> tuple[Moments, Array]:
    return side.posterior.bridged(bridge(side.prior, at))
