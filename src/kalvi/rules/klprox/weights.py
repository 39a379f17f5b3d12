"""The optimal Gaussian over the coefficients of a generalised linear model, computed in either of two
spaces.

With N rows of D coefficients, weight space (`vga`) takes N D² + D³ operations a pass and function space
(`function_space`, with the kernel K = X Σ Xᵀ) N² D + N³. They have the same optimum: the posterior of the
sites is

    precision Σ⁻¹ + Xᵀ Γ X,        mean μ + Σ Xᵀ c,

which is kept in this form if the prior has no correlations: a precision of rank N plus a diagonal, without
a D × D array.
"""

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Int

from kalvi.gaussians import Gaussian, Updatable
from kalvi.likelihoods import Likelihood
from kalvi.numerics.namespaces import Scalar
from kalvi.predictors import linear_predictor
from kalvi.rules.klprox.function_space import (
    MOST_PASSES,
    TOLERANCE,
    LatentPrior,
    klprox,
    sites_at,
)
from kalvi.rules.rule import Batch
from kalvi.rules.vga import informed_start, vga

LIMITS = {"max_passes": MOST_PASSES, "tolerance": TOLERANCE}
"""The default end of the ascent."""


class WeightOptimum(NamedTuple):
    """The optimal Gaussian, its bound, the passes it took and how far it is from stationary."""

    posterior: Gaussian
    elbo: Scalar
    gap: Scalar  # squared natural-gradient norm, or a bound on it, in nats
    passes: Int[Array, ""]
    converged: Bool[Array, ""]


def in_weight_space(
    likelihood: Likelihood,
    prior: Updatable,
    batch: Batch,
    start: Gaussian | None = None,
    **limits: Any,
) -> WeightOptimum:
    """The Gaussian over the coefficients that maximises the bound, N D² + D³ operations a pass.

    The ascent begins at the prior or at any Gaussian `start`; `limits` may give `max_passes` and
    `tolerance`.
    """
    dense, predictor = prior.to_dense(), linear_predictor(likelihood.outputs)
    begin = (
        informed_start(likelihood, dense, batch, predictor) if start is None else start.to_dense()
    )
    found = vga(likelihood, dense, batch, begin, predictor=predictor, **LIMITS | limits)
    return WeightOptimum(found.posterior, found.elbo, found.gap, found.passes, found.converged)


def in_function_space(
    likelihood: Likelihood,
    prior: Updatable,
    batch: Batch,
    start: Gaussian | None = None,
    **limits: Any,
) -> WeightOptimum:
    """The same Gaussian, found in the space of the rows' predictors with N² D + N³ operations a pass."""
    latent, begin = LatentPrior(*prior.marginal(batch.x)), None
    if start is not None:
        law = batch.x @ start.mean, start.marginal_variance(batch.x)
        begin = sites_at(likelihood, *law, batch.y, batch.weight)
    found = klprox(likelihood, latent, batch.y, batch.weight, begin, **LIMITS | limits)
    # which need curvatures that are not negative
    posterior = prior.absorb_exactly(batch.x, found.coefficients, found.sites.curvature)
    return WeightOptimum(posterior, found.elbo, found.gap, found.passes, found.converged)
