"""Factors where there are no data.

Between two locations the Ornstein–Uhlenbeck process is a bridge, beyond the ends it decays to its mean:
with π₁, π₂ the correlations to the neighbours at the left and right (0 if there is none),

    u = μ + a (u_l − μ) + b (u_r − μ) + noise,
    a = π₁ (1 − π₂²) / (1 − π₁²π₂²),   b = π₂ (1 − π₁²) / (1 − π₁²π₂²),
    var noise = σ² (1 − π₁²)(1 − π₂²) / (1 − π₁²π₂²).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kalvi.kernels import OrnsteinUhlenbeck


class Bridge(NamedTuple):
    """How factors at t new locations follow from those beside them."""

    left: Int[Array, " t"]  # the neighbour at the left, the first of all if there is none
    right: Int[Array, " t"]  # the one after it, or the same if there is none
    from_left: Float[Array, "t k"]  # a
    from_right: Float[Array, "t k"]  # b
    noise: Float[Array, "t k"]
    mean: Float[Array, " k"]  # μ


def bridge(
    prior: OrnsteinUhlenbeck, locations: Float[Array, " n"], new: Float[Array, " t"]
) -> Bridge:
    """The bridge from sorted locations, those of the prior, to new ones."""
    n = len(locations)
    after = jnp.searchsorted(locations, new, side="right")
    left, right = jnp.clip(after - 1, 0, n - 1), jnp.clip(after, 0, n - 1)
    to_left = jnp.where(after > 0, new - locations[left], jnp.inf)
    to_right = jnp.where(after < n, locations[right] - new, jnp.inf)
    p, q = (jnp.exp(_log(prior, gap)) for gap in (to_left, to_right))
    apart_p, apart_q = (-jnp.expm1(2 * _log(prior, gap)) for gap in (to_left, to_right))
    both = -jnp.expm1(2 * (_log(prior, to_left) + _log(prior, to_right)))
    noise = prior.variance[None] * apart_p * apart_q / both
    left = jnp.where(after > 0, left, right)
    right = jnp.where(after < n, right, left)
    return Bridge(left, right, p * apart_q / both, q * apart_p / both, noise, prior.mean)


def _log(prior: OrnsteinUhlenbeck, gap: Float[Array, " t"]) -> Float[Array, "t k"]:
    """log π over a gap; at a location itself it is 0 without smoothness too."""
    return jnp.where(gap[:, None] == 0, 0.0, -prior.rate[None] * gap[:, None] / 2)
