"""Ordered locations of the rows or columns of a matrix.

By the prior, rows at one location have one and the same factor: they share it, and what their entries say
adds up there. Locations that differ by the rounding of their numbers are taken as one.

Rows may belong to chains that know nothing of each other, such as different people. Their locations follow
one another with infinite gaps between the chains, over which an Ornstein–Uhlenbeck process forgets all.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

ROUNDING = 4 * float(np.finfo(float).eps)
"""Share of the largest location below which differences are rounding."""
EVEN = 1e-9
"""Share of a gap by which the others may differ if all are to count as equal."""

Chain = Int[np.ndarray, " n"]


class Locations(NamedTuple):
    """The distinct locations of the rows of a sorted matrix, and which of them each row is at."""

    locations: Float[np.ndarray, " n"]  # distinct, rising in every chain
    spot: Int[np.ndarray, " r"] | None  # which of them each row is at; None: each its own
    ordered: bool  # False: no order, no smoothness
    chain: Chain | None = None  # the chain of each location, from 0 on; None: one for all

    @property
    def gaps(self) -> Float[np.ndarray, " m"]:
        """Between neighbours; infinite between chains."""
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
        """How many locations there are."""
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
        """One location for each chain, without an order: rows of a chain share their factors."""
        assert self.chain is not None
        spot = self.chain if self.spot is None else self.chain[self.spot]
        return unordered_locations(int(self.chain[-1]) + 1)._replace(spot=spot)


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


def group_locations(
    locations: Float[np.ndarray, " r"], chains: Int[np.ndarray, " r"] | None = None
) -> Locations:
    """The distinct ones of sorted locations, and which of them each row is at.

    chains: which chain each row belongs to, numbers from 0 on that never fall; None is one chain.
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
