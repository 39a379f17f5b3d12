"""Ordered locations of the rows or columns of a matrix.

By the prior, rows at one location have one and the same factor: they share it, and what their entries say
adds up there. Locations closer than 1e-9 of the span are taken as one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEAREST = 1e-9
"""Locations closer than this share of the span are one: the precision would lose that many digits."""


class Places(NamedTuple):
    """Where the rows of a sorted matrix are."""

    locations: Float[np.ndarray, " n"]  # distinct, rising
    spot: Int[np.ndarray, " r"] | None  # which of them each row is at; None: each its own
    ordered: bool  # False: no order, no smoothness

    @property
    def gaps(self) -> Float[np.ndarray, " m"]:
        return np.diff(self.locations)

    @property
    def even(self) -> bool:
        """Whether all gaps are equal, as far as the locations' digits tell."""
        gaps = self.gaps
        return len(gaps) == 0 or float(np.ptp(gaps)) <= 1e-12 * float(np.abs(self.locations).max())


def unordered(n: int) -> Places:
    """Rows in no order."""
    return Places(np.arange(n, dtype=float), None, False)


def places(locations: Float[np.ndarray, " r"]) -> Places:
    """Rows at these locations, which do not fall."""
    gaps = np.diff(locations)
    span = float(locations[-1] - locations[0]) if len(locations) else 0.0
    new = np.concatenate([[True], gaps > NEAREST * span])
    if new.all():
        return Places(locations, None, True)
    return Places(locations[new], np.cumsum(new).astype(np.int32) - 1, True)


def spread(locations: Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
    """The locations with ties drawn apart evenly, up to the next location (or by a typical gap)."""
    distinct, first, counts = np.unique(locations, return_index=True, return_counts=True)
    typical = float(np.median(np.diff(distinct))) if len(distinct) > 1 else 1.0
    gaps = np.append(np.diff(distinct), typical)
    rank = np.arange(len(locations)) - np.repeat(first, counts)
    return locations + rank * np.repeat(gaps / counts, counts)
