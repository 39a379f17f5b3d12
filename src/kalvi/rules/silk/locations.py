"""Ordered locations of the rows or columns of a matrix.

By the prior, rows at one location have the same factor: they share it, and the statistics of their entries
are added. Locations that differ only by rounding count as one.

Rows may belong to independent chains, such as different people. The locations of the chains follow one
another with infinite gaps in between, over which an Ornstein–Uhlenbeck process forgets everything.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

ROUNDING = 4 * float(np.finfo(float).eps)
"""Differences below this share of the largest location are rounding."""
EVEN = 1e-9
"""Gaps count as equal if they differ by less than this share."""

Chain = Int[np.ndarray, " n"]


class Locations(NamedTuple):
    """The distinct locations of the rows of a sorted matrix, and the location of each row."""

    locations: Float[np.ndarray, " n"]  # distinct, increasing in every chain
    spot: Int[np.ndarray, " r"] | None  # the location of each row; None: its own
    ordered: bool  # False: no order, so no smoothness
    chain: Chain | None = None  # the chain of each location, from 0 on; None: one for all

    @property
    def gaps(self) -> Float[np.ndarray, " m"]:
        """The gaps between neighbours; infinite between chains."""
        gaps = np.diff(self.locations)
        return gaps if self.chain is None else np.where(_begins(self.chain), np.inf, gaps)

    @property
    def even(self) -> bool:
        """Whether all gaps are equal, up to rounding."""
        if self.chain is not None:
            return False
        gaps = self.gaps
        return len(gaps) == 0 or float(np.ptp(gaps)) <= EVEN * float(gaps.min())

    @property
    def n(self) -> int:
        """The number of locations."""
        return len(self.locations)

    def on_device(self, dtype: str) -> "DeviceLocations":
        """The locations as arrays of a compiled program."""
        spot = None if self.spot is None else jnp.asarray(self.spot)
        with np.errstate(over="ignore"):
            gaps = self.gaps.astype(dtype)
        inside = gaps[np.isfinite(self.gaps)]
        if not np.all(np.isfinite(inside) & (inside >= np.finfo(gaps.dtype).tiny)):
            raise ValueError(
                f"the gaps between locations, {inside.min():.3g} to {inside.max():.3g}, leave the "
                f"range of {gaps.dtype}; give locations in another unit."
            )
        return DeviceLocations(jnp.asarray(gaps), spot, self.ordered, self.even)

    def whole_chains(self) -> "Locations":
        """Locations with one for each chain, without an order, so that the rows of a chain share their
        factors."""
        assert self.chain is not None
        spot = self.chain if self.spot is None else self.chain[self.spot]
        return unordered_locations(int(self.chain[-1]) + 1)._replace(spot=spot)


class DeviceLocations(eqx.Module):
    """Locations in the form that a compiled program takes: new numbers do not cause a compilation."""

    gaps: Float[Array, " m"]
    spot: Int[Array, " r"] | None
    ordered: bool = eqx.field(static=True)
    even: bool = eqx.field(static=True)

    @property
    def n(self) -> int:
        """The number of locations."""
        return len(self.gaps) + 1


def unordered_locations(n: int) -> Locations:
    """The locations of n rows that have no order."""
    return Locations(np.arange(n, dtype=float), None, False)


def group_locations(
    locations: Float[np.ndarray, " r"], chains: Int[np.ndarray, " r"] | None = None
) -> Locations:
    """The distinct locations among sorted ones, and the location of each row.

    `chains` gives the chain of each row, as numbers from 0 that never decrease; None means one chain.
    """
    new = _distinct(locations, chains)
    spot = None if new.all() else np.cumsum(new).astype(np.int32) - 1
    return Locations(locations[new], spot, True, None if chains is None else chains[new])


def separate_ties(
    locations: Float[np.ndarray, " r"], chains: Int[np.ndarray, " r"] | None = None
) -> Float[np.ndarray, " r"]:
    """The locations with ties spaced evenly up to the next location (after the last: a typical gap)."""
    one = np.zeros(len(locations), int) if chains is None else chains
    new = np.concatenate([[True], (np.diff(locations) != 0) | _begins(one)])
    first = np.flatnonzero(new)
    counts, gaps = np.diff(first, append=len(locations)), np.diff(locations[first])
    inside = ~_begins(one[first])
    typical = float(np.median(gaps[inside])) if inside.any() else 1.0
    gaps = np.append(np.where(inside, gaps, typical), typical)
    rank = np.arange(len(locations)) - np.repeat(first, counts)
    return locations + rank * np.repeat(gaps / counts, counts)


def _begins(chain: Chain) -> Bool[np.ndarray, " m"]:
    """Whether another chain begins after each location."""
    return np.diff(chain) != 0


def _distinct(locations: np.ndarray, chains: np.ndarray | None) -> Bool[np.ndarray, " r"]:
    least = ROUNDING * float(np.abs(locations).max(initial=0.0))
    new = np.concatenate([[True], np.diff(locations) > least])
    if chains is not None:
        new[1:] |= _begins(chains)
    return new
