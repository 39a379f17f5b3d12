"""Predictions at new points from a fit of one latent function: of the function itself, and of y."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters
from kalvi.estimators.prediction_blocks import padded_blocks, predict_in_blocks, rows_at_once
from kalvi.likelihoods import Likelihood
from kalvi.numerics.precision import matching_precision
from kalvi.streams import engines, run

Moments = tuple[np.ndarray, np.ndarray]
"""Means and variances."""
MOST_BY_NUMPY = 2**14
"""NumPy predicts y from the function for up to so many rows."""


@runtime_checkable
class LatentFit(Protocol):
    """The fit of one latent function."""

    @property
    def hyper(self) -> Hyperparameters:
        """Kernel, likelihood and prior mean."""
        ...

    def latent(self, x: np.ndarray) -> Moments:
        """Mean and variance of the latent function at new points."""
        ...


def latent_moments(law: Callable, x: np.ndarray) -> Moments:
    """Means and variances by `law` at any number of new points, a block at a time."""
    blocks = padded_blocks(x, rows_at_once(len(x)))
    mean, var = predict_in_blocks(law, blocks, len(x))
    return mean, np.maximum(var, 0)


def target_moments(fit: LatentFit, x: np.ndarray) -> Moments:
    """Mean and variance of y at new points, noise included."""
    mean, var = fit.latent(x)
    with matching_precision(fit.hyper.covariance.dtype):
        mean, var = _per_point(_moments, fit.hyper.likelihood, mean, var)
    return mean, var


def log_densities(fit: LatentFit, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(y | x, the table) of each new row."""
    mean, var = fit.latent(x)
    with matching_precision(fit.hyper.covariance.dtype):
        y = np.asarray(y, mean.dtype)
        return _per_point(_log_predictive, fit.hyper.likelihood, y, mean, var)[0]


def _per_point(function: Callable, likelihood: Likelihood, *columns: np.ndarray) -> Any:
    """function(likelihood, columns) for any number of points, a block at a time."""
    table = np.column_stack(columns)
    blocks = padded_blocks(table, rows_at_once(len(table)))
    by_numpy = len(table) <= MOST_BY_NUMPY
    found = predict_in_blocks(
        lambda block: run.call(function, likelihood, *engines.placed(block, by_numpy).T),
        blocks,
        len(table),
    )
    return tuple(np.asarray(part, np.float64) for part in found)


def _moments(likelihood: Likelihood, mean, var):
    return jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var)


def _log_predictive(likelihood: Likelihood, y, mean, var):
    return (jax.vmap(lambda y, m, v: likelihood.log_predictive(y, m, v))(y, mean, var),)
