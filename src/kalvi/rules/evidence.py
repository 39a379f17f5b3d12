"""Prior precisions and noise from the evidence: MacKay's fixed points for a Gaussian posterior.

MacKay (1992), "A practical Bayesian framework for backpropagation networks". With q = N(c, S), groups of
parameters that share a prior precision α, and γ = Σ (1 − α Sᵢᵢ) the number of parameters of a group that
the data determine,

    α ← γ / Σ cᵢ²,        σ² ← Σ (y − f)² / (N − Σ γ),

which is stationary where the evidence of the linearised model is. Steps are damped to half of the way in
log α and log σ².
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kalvi.gaussians import Gaussian
from kalvi.numerics.namespaces import Scalar

LEAST, MOST = 1e-3, 1e6
"""Bounds on α, in case the parameters of a group are all zero or all undetermined."""
MOST_DETERMINED = 0.8
"""At most this share of the rows counts as spent on parameters."""
SMALLEST_NOISE = 1e-8
"""The smallest noise variance of standardised y."""


class PriorAndNoise(NamedTuple):
    """The prior precision α of each parameter, the noise variances, and Σ γ."""

    prior_precision: Float[Array, " d"]
    noise: Float[Array, " c"]
    determined: Scalar


def update_evidence(
    q: Gaussian,
    hyper: PriorAndNoise,
    groups: Int[Array, " d"],
    n_groups: int,
    squares: Float[Array, " c"],
    rows: Scalar,
    damping: float = 0.5,
) -> PriorAndNoise:
    """The next hyperparameters, given the sums of squared residuals of each output over `rows` rows."""
    share = 1 - hyper.prior_precision * q.variance()
    gamma = jnp.maximum(jax.ops.segment_sum(share, groups, n_groups), LEAST)
    size = jax.ops.segment_sum(q.mean**2, groups, n_groups)
    alpha = jnp.clip(gamma / jnp.maximum(size, LEAST / MOST), LEAST, MOST)[groups]
    determined = jnp.sum(gamma) / len(squares)
    spent = jnp.minimum(determined, MOST_DETERMINED * rows)
    noise = jnp.maximum(squares / (rows - spent), SMALLEST_NOISE)
    return PriorAndNoise(
        _between(hyper.prior_precision, alpha, damping),
        _between(hyper.noise, noise, damping),
        determined,
    )


def _between(old: Array, new: Array, damping: float) -> Array:
    return jnp.exp(damping * jnp.log(old) + (1 - damping) * jnp.log(new))
