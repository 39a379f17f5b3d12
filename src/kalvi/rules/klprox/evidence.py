"""The derivatives of a Gaussian process's optimal bound in its hyperparameters.

At the optimum the bound is stationary in the sites, so its derivatives are those of the ELBO of
`function_space` with fixed c and Γ,

    ∂/∂K = ½ (c cᵀ − R),   R = (K + Γ⁻¹)⁻¹ = S B⁻¹ S,   ∂/∂μ = c,   ∂/∂φ = Σ wᵢ ∂/∂φ E_q[log p_φ(yᵢ | fᵢ)]

for the parameters φ of the likelihood. With negative curvatures R = Γ − Γ V Γ.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods import Likelihood
from kalvi.numerics import linalg
from kalvi.rules.klprox.function_space import (
    ConditioningFactors,
    Gram,
    KLProx,
    LatentPrior,
    PerRow,
    covariance_change,
)
from kalvi.rules.rule import weigh_rows


class EvidenceGradient(NamedTuple):
    """The derivatives of the optimal bound."""

    cov: Gram
    mean: PerRow
    likelihood: Likelihood  # one derivative for each of its numbers


def evidence_gradient(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    found: KLProx,
    factors: ConditioningFactors,
    inverse: Gram | None = None,
) -> EvidenceGradient:
    """The gradient of the bound at its optimum `found`, with conditioning factors `factors`.

    `inverse` is the inverse of their root, if it is known.
    """
    c = found.coefficients
    by_cov = (jnp.outer(c, c) - _response(prior, found.sites.curvature, factors, inverse)) / 2

    def fit(likelihood: Likelihood) -> Float[Array, ""]:
        value = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v).value)(y, found.mean, found.var)
        return jnp.sum(weigh_rows(weight, value))

    return EvidenceGradient(by_cov, c, eqx.filter_grad(fit)(likelihood))


def _response(
    prior: LatentPrior, curvature: PerRow, factors: ConditioningFactors, inverse: Gram | None
) -> Gram:
    """R, the precision of the sites' pseudo-observations under the prior."""

    def positive() -> Gram:
        known = linalg.triangular_inverse(factors.root) if inverse is None else inverse
        half = known * factors.scale[None, :]
        return half.T @ half

    def general() -> Gram:
        reached = covariance_change(prior.cov, factors, prior.cov)
        cov = prior.cov - reached.lost.T @ reached.lost + reached.gained.T @ reached.gained
        return jnp.diag(curvature) - linalg.scale_rows(curvature, cov) * curvature[None, :]

    if factors.excess is None:
        return positive()
    return jax.lax.cond(jnp.any(factors.excess > 0), general, positive)
