"""Gradients of −E_q[log p(D | θ)] in c, F and β = log ψ from a batch, for q = N(c, F Fᵀ + diag ψ).

Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", section 4.3. With
θ = c + F h + ψ^{1/2} z for standard normal h, z, and g = −(N/M) Σ ∇ log p over a batch of M of N rows,

    Single        g,  g hᵀ,  ½ g ∘ z ∘ ψ^{1/2}                                     (4.51-4.53, 4.61)
    Antithetic    the same for (h, z) and (−h, −z), averaged: the noise g(c) hᵀ cancels
    GaussNewton   E[g],  H F,  ½ ψ ∘ diag H,   H = (N/M) Σ Jᵀ Γ J

The first two are unbiased for any log-likelihood. The last has closed forms for the gradients in F and β
(products with E[∇²], by Stein's lemma), with the generalised Gauss–Newton matrix for the Hessian:
J = ∂f/∂θ and Γ the curvature of −log p in f. (Algorithm 3 has 1/M instead of N/M, which targets the
posterior tempered by 1/N.)
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import Gaussian, LowRankCovariance
from kalvi.likelihoods.sites import at
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.predictors.models import LogLikelihood
from kalvi.rules.rule import Batch, normalise_weights
from kalvi.rules.sampled_networks import linearised_at_draws
from kalvi.rules.visits import BatchVisit, visit, weigh


class Slopes(NamedTuple):
    """Gradients in c, F and log ψ."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d p"]
    log_diag: Float[Array, " d"]


class Estimate(NamedTuple):
    """The slopes, and the matrix H if it was computed."""

    slopes: Slopes
    curved: BatchVisit | None


class Estimator(eqx.Module):
    """Estimates the slopes of the expected log-likelihood from a batch that represents `total` rows."""

    @abstractmethod
    def __call__(
        self, model: Any, q: LowRankCovariance, batch: Batch, total: Scalar, *, key: PRNGKeyArray
    ) -> Estimate:
        """Slopes of −E_q[log p]."""


class Single(Estimator):
    """Averages over independent draws; the document uses one."""

    draws: int = eqx.field(static=True, default=1)

    def __call__(
        self, model: Any, q: LowRankCovariance, batch: Batch, total: Scalar, *, key: PRNGKeyArray
    ) -> Estimate:
        hidden, noise = _normals(q, self.draws, key)
        scaled = noise * jnp.sqrt(q.covariance.diag)[None, :]
        theta = q.mean[None, :] + hidden @ q.covariance.factor.T + scaled
        g = jax.vmap(lambda theta: _gradient(model, theta, batch, total))(theta)
        return Estimate(_pathwise(jnp.mean(g, axis=0), g, hidden, scaled), None)


class Antithetic(Estimator):
    """Averages over pairs of draws θ = c ± δ."""

    pairs: int = eqx.field(static=True, default=1)

    def __call__(
        self, model: Any, q: LowRankCovariance, batch: Batch, total: Scalar, *, key: PRNGKeyArray
    ) -> Estimate:
        hidden, noise = _normals(q, self.pairs, key)
        scaled = noise * jnp.sqrt(q.covariance.diag)[None, :]
        away = hidden @ q.covariance.factor.T + scaled
        grad = jax.vmap(lambda away: _gradient(model, q.mean + away, batch, total))
        plus, minus = grad(away), grad(-away)
        mean = jnp.mean(plus + minus, axis=0) / 2
        return Estimate(_pathwise(mean, (plus - minus) / 2, hidden, scaled), None)


class GaussNewton(Estimator):
    """Gauss–Newton products. `draws=None` linearises the predictors at c, so that they are Gaussian and the
    expectations are integrals; a number averages over so many draws of θ."""

    draws: int | None = eqx.field(static=True, default=None)

    def __call__(
        self, model: Any, q: LowRankCovariance, batch: Batch, total: Scalar, *, key: PRNGKeyArray
    ) -> Estimate:
        curved = linearise_batch(model, q, batch, total, draws=self.draws, key=key)
        factor, diag = q.covariance.factor, q.covariance.diag
        slopes = Slopes(-curved.force(), curved.matvec(factor), diag * curved.diagonal() / 2)
        return Estimate(slopes, curved)


def linearise_batch(
    model: Any,
    q: Gaussian,
    batch: Batch,
    total: Scalar,
    *,
    draws: int | None = None,
    key: PRNGKeyArray | None = None,
) -> BatchVisit:
    """The expected terms of a batch under q, or at draws of θ, weighted to represent `total` rows."""
    weight = total * normalise_weights(batch.weight)
    if draws is None:
        return visit(model, q, batch._replace(weight=weight))
    assert key is not None
    f, rows, y = linearised_at_draws(model, q.sample(key, draws), batch.x, batch.y)
    local = jax.vmap(lambda y, f: at(model.likelihood, y, f))(y, f)
    return weigh(rows, local, jnp.tile(weight, draws) / draws)


def curvature_diagonal(
    model: Any, theta: Float[Array, " d"], batch: Batch, total: Scalar
) -> Float[Array, " d"]:
    """diag H at θ; without a predictor, from squared gradients."""
    weight = total * normalise_weights(batch.weight)
    if isinstance(model, LogLikelihood):
        slope = jax.grad(model.log_prob)
        rows = jax.vmap(lambda x, y: slope(theta, x, y))(batch.x, batch.y)
        return weight @ rows**2
    f, rows, _ = model.predictor.linearise(theta, batch.x)
    local = jax.vmap(lambda y, f: at(model.likelihood, y, f))(batch.y, f)
    return weigh(rows, local, weight).diagonal()


def _normals(q: LowRankCovariance, n: int, key: PRNGKeyArray):
    key_hidden, key_noise = jr.split(key)
    dtype, rank = q.mean.dtype, q.covariance.factor.shape[1]
    return jr.normal(key_hidden, (n, rank), dtype), jr.normal(key_noise, (n, q.dim), dtype)


def _gradient(model: Any, theta: Float[Array, " d"], batch: Batch, total: Scalar):
    """−(N/M) Σ ∇ log p."""

    def loss(theta):
        terms = jax.vmap(lambda x, y: model.log_prob(theta, x, y))(batch.x, batch.y)
        return -total * (normalise_weights(batch.weight) @ terms)

    return jax.grad(loss)(theta)


def _pathwise(mean, g: Float[Array, "n d"], hidden: Float[Array, "n p"], scaled) -> Slopes:
    return Slopes(mean, linalg.inner(g, hidden) / len(g), jnp.mean(g * scaled, axis=0) / 2)
