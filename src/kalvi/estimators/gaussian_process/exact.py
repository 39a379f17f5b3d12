"""Gaussian processes with a latent value for every row of a table."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kalvi.estimators.gaussian_process.covariances import padded_size
from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters
from kalvi.estimators.gaussian_process.placement import computing, is_small, placed
from kalvi.estimators.gaussian_process.predictions import latent_moments
from kalvi.estimators.gaussian_process.problem import (
    GAP,
    NOWHERE,
    SEARCHED_GAP,
    Problem,
    TrainingRows,
)
from kalvi.numerics.namespaces import AnyArray
from kalvi.rules.klprox.evidence import EvidenceGradient, evidence_gradient
from kalvi.rules.klprox.function_space import (
    ConditioningFactors,
    KeptFactors,
    KLProx,
    LatentPrior,
    Sites,
    climb_sites,
    condition,
    first_sites,
    predict,
)
from kalvi.rules.rule import weigh_rows
from kalvi.streams import run


class ExactFit(NamedTuple):
    """A fit with one latent a row: N × N numbers, N³ operations a pass."""

    hyper: Hyperparameters
    found: KLProx
    x: np.ndarray
    prior: LatentPrior
    factors: ConditioningFactors

    regime = "exact"

    @property
    def elbo(self) -> float:
        """The variational bound."""
        return float(self.found.elbo)

    @property
    def gap(self) -> float:
        """The squared natural-gradient norm at the end."""
        return float(self.found.gap)

    @property
    def converged(self) -> bool:
        """Whether the ascent of the bound came to its end."""
        return bool(self.found.converged)

    @property
    def points(self) -> np.ndarray:
        """The rows that predictions are made from."""
        return self.x

    def latent(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent function at new points."""
        cov, size = self.hyper.covariance, len(self.prior.mean)
        small = is_small(size)

        def law(block: np.ndarray):
            mean = placed(self.hyper.mean(block), cov.dtype, small)
            new = cov.cross(block, self.x, size), mean, cov.diagonal(block, size)
            return run.call(predict, self.prior, self.found, self.factors, *new)

        with computing(cov.dtype, small):
            return latent_moments(law, x)


class ExactProblem(Problem):
    """The bound of a table whose rows have a latent value each."""

    def __init__(self, table: TrainingRows, dtype: Any, max_passes: int):
        size = padded_size(len(table.y))
        self.table, self.dtype, self.size = table, dtype, size
        self.max_passes = np.asarray(max_passes)
        self.keeps = is_small(size)  # a large fit computes them again to save memory
        self.y, self.weight = (
            self._placed(np.pad(a, (0, size - len(a)))) for a in (table.y, table.weight)
        )
        self.sites: Sites | None = None

    def evaluate(self, hyper: Hyperparameters, gap: float) -> tuple[float, np.ndarray]:
        prior, found, kept = self._solve(hyper, gap)
        if not np.isfinite(found.elbo):
            return -NOWHERE, np.zeros_like(hyper.theta)
        slopes = run.call(_slopes, hyper.likelihood, prior, self.y, self.weight, found, kept)
        by_cov = hyper.covariance.pull(self.table.x, slopes.cov)
        by_mean = float(np.sum(np.asarray(slopes.mean)))
        return float(found.elbo), hyper.gradient(by_cov, slopes.likelihood, by_mean)

    def fit(self, hyper: Hyperparameters) -> ExactFit:
        prior, found, kept = self._solve(hyper, GAP)
        factors = run.call(_factors, hyper.likelihood, prior, found, kept)
        return ExactFit(hyper, found, self.table.x, prior, factors)

    def value(self, hyper: Hyperparameters) -> float:
        return float(self._solve(hyper, SEARCHED_GAP)[1].elbo)

    def _placed(self, array: Any) -> AnyArray:
        return placed(array, self.dtype, is_small(self.size))

    def _solve(
        self, hyper: Hyperparameters, gap: float
    ) -> tuple[LatentPrior, KLProx, KeptFactors | None]:
        cov = hyper.covariance.gram(self.table.x, self.size)
        mean = np.pad(hyper.mean(self.table.x), (0, self.size - len(self.table.y)))
        prior = LatentPrior(self._placed(mean), cov)
        # always sites, never None, so that one program serves
        first = run.call(first_sites, hyper.likelihood, prior.mean, self.y, self.weight)
        near = first if hyper.likelihood.noisy else self.sites or first
        for start in (near, first):
            limits = self.max_passes, np.asarray(gap, self.dtype)
            args = hyper.likelihood, prior, self.y, self.weight, start
            found, kept = run.call(_klprox, *args, *limits, self.keeps)
            if np.isfinite(found.elbo):
                self.sites = found.sites
                break
        return prior, found, kept


def _klprox(likelihood, prior, y, weight, start, max_passes, gap, keep):
    """The optimum, and its factors if they are kept.

    There is no bound where rounding has made the divergence from the prior negative.
    """
    limits = {"max_passes": max_passes, "tolerance": gap}
    found, kept = climb_sites(likelihood, prior, y, weight, start, keep=keep, **limits)
    value = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v).value)(y, found.mean, found.var)
    fit = jnp.sum(weigh_rows(weight, value))
    slack = float(np.sqrt(jnp.finfo(y.dtype).eps)) * (len(y) + jnp.abs(fit))
    return found._replace(elbo=jnp.where(found.elbo <= fit + slack, found.elbo, jnp.nan)), kept


def _factors(
    likelihood, prior: LatentPrior, found: KLProx, kept: KeptFactors | None
) -> ConditioningFactors:
    if kept is not None:
        return kept.factors
    curvature = found.sites.curvature
    return condition(prior.cov, curvature, log_concave=likelihood.log_concave)


def _slopes(
    likelihood, prior: LatentPrior, y, weight, found: KLProx, kept: KeptFactors | None
) -> EvidenceGradient:
    factors = _factors(likelihood, prior, found, kept)
    inverse = None if kept is None else kept.inverse
    return evidence_gradient(likelihood, prior, y, weight, found, factors, inverse)
