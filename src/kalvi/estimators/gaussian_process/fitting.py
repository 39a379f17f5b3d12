"""One latent function fitted to a table: its kernel, its prior mean, and the search for hyperparameters."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from kalvi import kernels
from kalvi.estimators.gaussian_process.covariances import (
    Covariance,
    check_covariance,
    make_covariance,
    padded_size,
)
from kalvi.estimators.gaussian_process.exact import ExactFit, ExactProblem
from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters, PriorMean
from kalvi.estimators.gaussian_process.parameters import ProcessSettings
from kalvi.estimators.gaussian_process.placement import computing, is_small, is_small_sparse
from kalvi.estimators.gaussian_process.problem import Problem, TrainingRows
from kalvi.estimators.gaussian_process.search import search
from kalvi.estimators.gaussian_process.sparse import SparseFit, SparseProblem
from kalvi.likelihoods import Likelihood


class Scales(NamedTuple):
    """A rough centre and spread of the values of a latent function."""

    centre: float
    spread: float


def fit_latent(
    rows: TrainingRows,
    likelihood: Likelihood,
    scales: Scales,
    settings: ProcessSettings,
    rng: np.random.RandomState,
) -> tuple[ExactFit | SparseFit, int]:
    """The fit of one latent function, and the number of evaluations in the search for hyperparameters."""
    kept = rows.weight > 0
    rows = TrainingRows(*(part[kept] for part in rows)) if np.any(kept) else rows
    with computing(settings.dtype, _is_small(len(rows.y), settings)):
        cov = _covariance(rows, scales.spread, settings)
        check_covariance(cov, rows.x)
        mean = _prior_mean(settings.mean, scales)
        hyper = Hyperparameters(cov, _in_dtype(likelihood, settings.dtype), mean)
        problem = _problem(rows, hyper, settings, rng)
        hyper, count = search(problem, hyper, settings, rng)
        fit = problem.fit(hyper)
    if not np.isfinite(fit.elbo):
        raise ValueError(
            f"the variational bound does not exist for {hyper.values}; "
            "is the kernel positive definite, and are its scales those of the data?"
        )
    return fit, count


def weighted_scales(values: np.ndarray, weight: np.ndarray) -> Scales:
    """The weighted mean and standard deviation."""
    if not np.any(weight > 0):
        return Scales(float(values.mean()), float(values.std()))
    mean = float(np.average(values, weights=weight))
    return Scales(mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weight))))


def _is_small(rows: int, settings: ProcessSettings) -> bool:
    if settings.sparse:
        return is_small_sparse(rows, settings.n_inducing)
    return is_small(padded_size(rows))


def _problem(
    rows: TrainingRows,
    hyper: Hyperparameters,
    settings: ProcessSettings,
    rng: np.random.RandomState,
) -> Problem:
    if settings.sparse:
        return SparseProblem(rows, hyper, settings, rng)
    return ExactProblem(rows, settings.dtype, settings.max_passes)


def _covariance(rows: TrainingRows, spread: float, settings: ProcessSettings) -> Covariance:
    """The given kernel, or one that suits the scales of the rows."""
    if settings.kernel is not None:
        return make_covariance(settings.kernel, settings.dtype)
    spreads = [weighted_scales(column, rows.weight).spread for column in rows.x.T]
    length = float(np.linalg.norm(spreads)) or 1.0
    return make_covariance(spread**2 * kernels.RBF(length), settings.dtype)


def _prior_mean(given: Any, scales: Scales) -> PriorMean:
    if callable(given):
        return PriorMean(0.0, False, function=given)
    if given == "constant":
        return PriorMean(scales.centre, True, scales.spread)
    return PriorMean(float(given), False)


def _in_dtype(likelihood: Likelihood, dtype: Any) -> Likelihood:
    """The likelihood with its numbers in a dtype."""
    return jax.tree.map(
        lambda a: np.asarray(a, dtype) if eqx.is_inexact_array_like(a) else a, likelihood
    )
