"""Ordered locations of the rows or columns of a matrix.

By the prior, rows at one location have one and the same factor: they share it, and what their entries say
adds up there. Locations that differ by the rounding of their numbers are taken as one.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

ROUNDING = 4 * float(np.finfo(float).eps)
"""Share of the largest location below which differences are rounding."""
EVEN = 1e-9
"""Share of a gap by which the others may differ if all are to count as equal."""


class Locations(NamedTuple):
    """The distinct locations of the rows of a sorted matrix, and which of them each row is at."""

    locations: Float[np.ndarray, " n"]  # distinct, rising
    spot: Int[np.ndarray, " r"] | None  # which of them each row is at; None: each its own
    ordered: bool  # False: no order, no smoothness

    @property
    def gaps(self) -> Float[np.ndarray, " m"]:
        return np.diff(self.locations)

    @property
    def even(self) -> bool:
        """Whether all gaps are equal, up to rounding."""
        gaps = self.gaps
        return len(gaps) == 0 or float(np.ptp(gaps)) <= EVEN * float(gaps.min())

    @property
    def n(self) -> int:
        """How many locations there are."""
        return len(self.locations)

    def on_device(self, dtype: str) -> "DeviceLocations":
        """The locations as arrays of a compiled program."""
        spot = None if self.spot is None else jnp.asarray(self.spot)
        with np.errstate(over="ignore"):
            gaps = self.gaps.astype(dtype)
        if not np.all(np.isfinite(gaps) & (gaps >= np.finfo(gaps.dtype).tiny)):
            raise ValueError(
                f"the gaps between locations, {self.gaps.min():.3g} to {self.gaps.max():.3g}, leave the "
                f"range of {gaps.dtype}; give locations in another unit."
            )
        return DeviceLocations(jnp.asarray(gaps), spot, self.ordered, self.even)


class DeviceLocations(eqx.Module):
    """Locations as a program takes them: new numbers do not compile it anew."""

    gaps: Float[Array, " m"]
    spot: Int[Array, " r"] | None
    ordered: bool = eqx.field(static=True)
    even: bool = eqx.field(static=True)

    @property
    def n(self) -> int:
        """How many locations there are."""
        return len(self.gaps) + 1


def unordered_locations(n: int) -> Locations:
    """Locations of n rows that have no order."""
    return Locations(np.arange(n, dtype=float), None, False)


def group_locations(locations: Float[np.ndarray, " r"]) -> Locations:
    """The distinct ones of sorted locations, and which of them each row is at."""
    least = ROUNDING * float(np.abs(locations).max(initial=0.0))
    new = np.concatenate([[True], np.diff(locations) > least])
    if new.all():
        return Locations(locations, None, True)
    return Locations(locations[new], np.cumsum(new).astype(np.int32) - 1, True)


def separate_ties(locations: Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
    """The locations with ties spaced evenly up to the next location (after the last: a typical gap)."""
    distinct, first, counts = np.unique(locations, return_index=True, return_counts=True)
    typical = float(np.median(np.diff(distinct))) if len(distinct) > 1 else 1.0
    gaps = np.append(np.diff(distinct), typical)
    rank = np.arange(len(locations)) - np.repeat(first, counts)
    return locations + rank * np.repeat(gaps / counts, counts)
