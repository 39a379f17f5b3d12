"""The document's fixed-step iteration in function space, corrected: for comparison with `klprox`.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", eqs. (18)-(19) and
Algorithm 1, with λ for the document's γ̃ and Λ = diag λ. The prior is f ~ N(μ, K), q has the mean
m = μ + K c and the covariance (K⁻¹ + Λ)⁻¹, r = 1/(1 + β), and g, γ are the expected gradients −α and
curvatures of the rows at the present marginals:

    c ← c + (1 − r) (I + W K)⁻¹ (g − c),   W = r Λ,   m = μ + K c,
    λ ← r λ + (1 − r) γ,                   v = diag (K⁻¹ + Λ)⁻¹ with the new λ,

where (I + W K)⁻¹ u = u − S B⁻¹ S K u, S = W^{1/2}, and B = I + S K S has eigenvalues ≥ 1. These are the
iterates of `KLProximal(natural=False)`. With `shared`, W is Λ itself, as the document proposes ("A for
B"): one factorisation a step instead of two, other iterates, the same optimum.

What is printed differs: λ₀ is 0 (the prior), not γ₀; v belongs to the new λ, not to the one before; α and γ
have the signs of (12); and in the criterion Σ⁻¹ cancels, where the print keeps a −1 that makes it a large
negative number at the optimum. Here it is

    (g − c)ᵀ K (g − c) + ½ (Σ |λ − γ| v)²,

which bounds the squared natural-gradient norm, in nats.

The step is fixed and nothing keeps the bound from falling: for narrow Laplace, for Poisson and for wide
logistic problems it falls, and need not come back. Curvatures must not be negative (log-concave
likelihoods). `klprox` has none of these limits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.implicit import Expected
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.klprox.function_space import (
    ConditioningFactors,
    LatentPrior,
    Sites,
    condition,
    covariance_change,
    expect_rows,
)

PerRow = Float[Array, " n"]
Gram = Float[Array, "n n"]


class Start(NamedTuple):
    """Where the iteration stands: c and λ, both 0 for the prior."""

    coefficients: PerRow
    curvature: PerRow


class Fixed(NamedTuple):
    """The Gaussian after the last step, and what every step had come to."""

    coefficients: PerRow  # c: the posterior mean is mean + cov c, at a new point mean* + k*ᵀ c
    sites: Sites  # that make the same Gaussian
    mean: PerRow  # of the latents of the rows
    var: PerRow
    elbo: Float[Array, " k"]  # before the first step and after each
    gap: Float[Array, " k"]  # the criterion, in nats, likewise

    @property
    def start(self) -> Start:
        """To go on from here."""
        return Start(self.coefficients, self.sites.curvature)


def fixed(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    beta: Scalar,
    start: Start | None = None,
    *,
    steps: int = 100,
    shared: bool = False,
) -> Fixed:
    """So many proximal-gradient steps of one β, from the prior or from where an earlier call stopped."""
    start = Start(jnp.zeros_like(y), jnp.zeros_like(y)) if start is None else start
    r = (1 / (1 + beta)).astype(y.dtype)

    def advance(here: _Point, _):
        expected = here.expected
        factors = here.factors
        if not shared:
            factors = condition(prior.cov, r * here.curvature, log_concave=True)
        away = expected.gradient - here.coefficients
        change = (1 - r) * _shrink(prior.cov, factors, away)
        curvature = r * here.curvature + (1 - r) * expected.curvature
        there = _at(likelihood, prior, y, weight, here.coefficients + change, curvature)
        return there, (there.elbo, there.gap)

    first = _at(likelihood, prior, y, weight, *start)
    last, (elbo, gap) = jax.lax.scan(advance, first, length=steps)
    return Fixed(
        last.coefficients,
        Sites(last.coefficients + last.curvature * last.mean, last.curvature),
        last.mean,
        last.var,
        jnp.concatenate([first.elbo[None], elbo]),
        jnp.concatenate([first.gap[None], gap]),
    )


def _shrink(cov: Gram, factors: ConditioningFactors, u: PerRow) -> PerRow:
    """(I + S² K)⁻¹ u."""
    return u - factors.scale * linalg.cho_solve(factors.root, factors.scale * (cov @ u))


class _Point(NamedTuple):
    """An iterate, its bound and criterion, and what its marginals ask for."""

    coefficients: PerRow
    curvature: PerRow
    mean: PerRow
    var: PerRow
    factors: ConditioningFactors
    expected: Expected  # with the weights of the rows
    elbo: Scalar
    gap: Scalar


def _at(
    likelihood: Likelihood,
    prior: LatentPrior,
    y: PerRow,
    weight: PerRow,
    coefficients: PerRow,
    curvature: PerRow,
) -> _Point:
    factors = condition(prior.cov, curvature, log_concave=True)
    lost = covariance_change(prior.cov, factors, prior.cov).lost
    var = jnp.diagonal(prior.cov) - jnp.sum(lost**2, axis=0)
    shift = prior.cov @ coefficients
    mean = prior.mean + shift
    expected = expect_rows(likelihood, mean, var, y, weight)
    log_volume = 2 * jnp.sum(jnp.log(jnp.diagonal(factors.root)))
    divergence = (log_volume - curvature @ var + coefficients @ shift) / 2
    away = expected.gradient - coefficients
    bend = jnp.sum(jnp.abs(expected.curvature - curvature) * var)
    gap = away @ (prior.cov @ away) + bend**2 / 2
    elbo = jnp.sum(expected.value) - divergence
    return _Point(coefficients, curvature, mean, var, factors, expected, elbo, gap)
