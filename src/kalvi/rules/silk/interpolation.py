"""Factors at locations without data.

Between two locations the Ornstein–Uhlenbeck process is a bridge; beyond the ends it decays to its mean.
With the correlations π₁, π₂ to the left and right neighbours (0 if there is none),

    u = μ + a (u_l − μ) + b (u_r − μ) + noise,
    a = π₁ (1 − π₂²) / (1 − π₁²π₂²),   b = π₂ (1 − π₁²) / (1 − π₁²π₂²),
    var noise = σ² (1 − π₁²)(1 − π₂²) / (1 − π₁²π₂²).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kalvi.kernels import OrnsteinUhlenbeck


class Bridge(NamedTuple):
    """The weights that give factors at t new locations from the factors of their neighbours."""

    left: Int[Array, " t"]  # the left neighbour, or the first location
    right: Int[Array, " t"]  # the location after it, or the same one
    from_left: Float[Array, "t k"]  # a
    from_right: Float[Array, "t k"]  # b
    noise: Float[Array, "t k"]
    mean: Float[Array, " k"]  # μ


class Neighbours(NamedTuple):
    """The known neighbours of new locations, and the distances to them (infinite if there is none)."""

    left: Int[Array, " t"]
    right: Int[Array, " t"]
    to_left: Float[Array, " t"]
    to_right: Float[Array, " t"]


def find_neighbours(
    known: Float[np.ndarray, " n"],
    new: Float[np.ndarray, " t"],
    dtype: jnp.dtype,
    chains: tuple[Int[np.ndarray, " n"], Int[np.ndarray, " t"]] | None = None,
) -> Neighbours:
    """The neighbours of new locations, found in float64 because dates have more digits than a float32.

    `chains` gives the chain of each known and each new location; neighbours are in the same chain.
    """
    of, at = (np.zeros(len(a), int) for a in (known, new)) if chains is None else chains
    begin, end = (np.searchsorted(of, at, side=side) for side in ("left", "right"))
    after = begin.copy()
    for chain in np.unique(at):
        here = np.flatnonzero(at == chain)
        own = known[begin[here[0]] : end[here[0]]]
        after[here] += np.searchsorted(own, new[here], side="right")
    before, last = after - 1, len(known) - 1
    left, right = np.maximum(before, 0), np.minimum(after, last)
    to_left = np.where(before >= begin, new - known[left], np.inf)
    to_right = np.where(after < end, known[right] - new, np.inf)
    left, right = np.where(before >= begin, left, right), np.where(after < end, right, left)
    where = jnp.asarray(left), jnp.asarray(right)
    return Neighbours(*where, jnp.asarray(to_left, dtype), jnp.asarray(to_right, dtype))


def bridge(prior: OrnsteinUhlenbeck, at: Neighbours) -> Bridge:
    """The bridge to new locations with these neighbours."""
    p, q = (jnp.exp(_log(prior, gap)) for gap in (at.to_left, at.to_right))
    apart_p, apart_q = (-jnp.expm1(2 * _log(prior, gap)) for gap in (at.to_left, at.to_right))
    both = -jnp.expm1(2 * (_log(prior, at.to_left) + _log(prior, at.to_right)))
    noise = prior.variance[None] * apart_p * apart_q / both
    from_left, from_right = p * apart_q / both, q * apart_p / both
    return Bridge(at.left, at.right, from_left, from_right, noise, prior.mean)


def _log(prior: OrnsteinUhlenbeck, gap: Float[Array, " t"]) -> Float[Array, "t k"]:
    """log π over a gap; at a known location it is 0, even without smoothness."""
    return jnp.where(gap[:, None] == 0, 0.0, -prior.rate[None] * gap[:, None] / 2)
