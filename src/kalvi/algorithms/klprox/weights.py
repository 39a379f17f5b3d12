"""The optimal Gaussian over the coefficients of a generalised linear model, in the cheaper of two spaces.

With N rows of D coefficients, weight space (`vga`) takes N D² + D³ operations a pass and function space
(`function_space`, with the kernel K = X Σ Xᵀ) N² D + N³. They have the same optimum: the posterior of the
sites is

    precision Σ⁻¹ + Xᵀ Γ X,        mean μ + Σ Xᵀ c,

which is kept as it is where the prior has no correlations: a precision of rank N plus a diagonal, with no
D × D array.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kalvi import linalg
from kalvi.algorithms.base import Batch
from kalvi.algorithms.klprox.function_space import (
    MOST_PASSES,
    TOLERANCE,
    KLProx,
    Latent,
    klprox,
    sites_at,
)
from kalvi.algorithms.vga import informed, vga
from kalvi.gaussians import Dense, Gaussian, LowRankPrecision, Updatable
from kalvi.likelihoods import Likelihood
from kalvi.vectors import VectorLikelihood

Scalar = Float[Array, ""]


class Weights(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    posterior: Gaussian
    elbo: Scalar
    gap: Scalar  # squared natural-gradient norm, or a bound on it, in nats
    passes: Int[Array, ""]
    converged: Bool[Array, ""]


def klprox_weights(
    likelihood: Likelihood | VectorLikelihood,
    prior: Updatable,
    batch: Batch,
    start: Gaussian | None = None,
    *,
    max_passes: int | Int[Array, ""] = MOST_PASSES,
    tolerance: float | Scalar = TOLERANCE,
) -> Weights:
    """The Gaussian over the coefficients that maximises the bound, from the prior or from any Gaussian.

    Likelihoods of several predictors stay in weight space.
    """
    limits = {"max_passes": max_passes, "tolerance": tolerance}
    if isinstance(likelihood, VectorLikelihood) or batch.x.shape[0] >= batch.x.shape[1]:
        return in_weight_space(likelihood, prior, batch, start, **limits)
    return in_function_space(likelihood, prior, batch, start, **limits)


def in_weight_space(
    likelihood: Likelihood | VectorLikelihood,
    prior: Updatable,
    batch: Batch,
    start: Gaussian | None = None,
    *,
    max_passes: int | Int[Array, ""] = MOST_PASSES,
    tolerance: float | Scalar = TOLERANCE,
) -> Weights:
    """The same among the coefficients, N D² + D³ operations a pass."""
    dense = prior.to_dense()
    begin = informed(likelihood, dense, batch) if start is None else start.to_dense()
    found = vga(likelihood, dense, batch, begin, max_passes=max_passes, tolerance=tolerance)
    return Weights(found.posterior, found.elbo, found.gap, found.passes, found.converged)


def in_function_space(
    likelihood: Likelihood,
    prior: Updatable,
    batch: Batch,
    start: Gaussian | None = None,
    *,
    max_passes: int | Int[Array, ""] = MOST_PASSES,
    tolerance: float | Scalar = TOLERANCE,
) -> Weights:
    """The same among the predictors of the rows, N² D + N³ operations a pass."""
    latent, begin = Latent(*prior.marginal(batch.x)), None
    if start is not None:
        law = batch.x @ start.mean, start.marginal_variance(batch.x)
        begin = sites_at(likelihood, *law, batch.y, batch.weight)
    limits = {"max_passes": max_passes, "tolerance": tolerance}
    found = klprox(likelihood, latent, batch.y, batch.weight, begin, **limits)
    posterior = _with_sites(prior, batch.x, found)
    return Weights(posterior, found.elbo, found.gap, found.passes, found.converged)


def _with_sites(prior: Updatable, x: Float[Array, "n d"], found: KLProx) -> Gaussian:
    """The prior with the sites of the rows, which need curvatures that are not negative."""
    if isinstance(prior, Dense):
        return prior.absorb(x, found.coefficients, found.sites.curvature)
    mean = prior.mean + prior.matvec(x.T @ found.coefficients)
    rows = linalg.scale_rows(jnp.sqrt(found.sites.curvature), x).T
    factor = jnp.concatenate([prior.precision.factor, rows], axis=1)
    return LowRankPrecision(mean, factor, prior.precision.diag)
