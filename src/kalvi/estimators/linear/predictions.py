"""Predictions of linear models in blocks of rows, by NumPy, or by JAX on accelerators."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from kalvi import streams
from kalvi.estimators.prediction_blocks import predict_in_blocks, rows_at_once
from kalvi.gaussians import Gaussian, Updatable
from kalvi.likelihoods import Likelihood
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import is_jax
from kalvi.numerics.precision import matching_precision
from kalvi.predictors import Predictor, linear_predictor, predictor_moments
from kalvi.streams import run

CLASS_ROWS = 64
"""The number of rows that NumPy predicts at once if each has several predictors."""


def predict_rows(
    likelihood: Likelihood, posterior: Gaussian, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean and (co)variance of y and the mean of the linear predictors, for each row of x."""
    parts = likelihood, posterior, linear_predictor(likelihood.outputs)
    return _by_blocks(_predict, parts, x, likelihood.outputs, layout)


def predictor_laws(
    posterior: Gaussian, outputs: int, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and variance of the linear predictor of each row of x, or the covariance of several."""
    parts = posterior, linear_predictor(outputs)
    return _by_blocks(predictor_moments, parts, x, outputs, layout)


def draw_predictors(
    posterior: Updatable,
    outputs: int,
    x: Any,
    n_samples: int,
    random: np.random.Generator,
    layout: dict[str, Any],
) -> np.ndarray:
    """Joint draws of the linear predictors of the rows of x, without draws of the coefficients."""
    (block,) = streams.row_blocks(x, size=x.shape[0], **layout)
    with matching_precision(layout["dtype"]):
        rows = linear_predictor(outputs).linearise(posterior.mean, block).rows.matrix()
        mean, cov = map(np.asarray, posterior.marginal(rows))
    noise = random.standard_normal((n_samples, len(mean)))
    drawn = mean[None, :] + noise @ linalg.semidefinite_factor(cov).T
    return drawn if outputs == 1 else drawn.reshape(n_samples, -1, outputs)


def average_predictions(found: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The law of y and the mean of the predictors, of a mixture of predictions with these weights."""
    if len(found) == 1:
        return found[0][1:]
    predictors = np.sum([weight * f for weight, _, _, f in found], axis=0)
    return *average_laws([(weight, mean, var) for weight, mean, var, _ in found]), predictors


def average_laws(laws: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and (co)variance, of each row, of a mixture of laws with these weights."""
    if len(laws) == 1:
        return laws[0][1:]
    centre = np.sum([weight * mean for weight, mean, _ in laws], axis=0)
    total = np.zeros_like(laws[0][2])
    for weight, mean, var in laws:
        away = mean - centre
        vectors = var.ndim > away.ndim
        total = total + weight * (
            var + (away[:, :, None] * away[:, None, :] if vectors else away**2)
        )
    return centre, total


def _by_blocks(
    function: Callable[..., tuple], parts: tuple, x: Any, outputs: int, layout: dict[str, Any]
) -> Any:
    """function(*parts, rows) over blocks of the rows of x."""
    n, sparse = x.shape[0], streams.stays_sparse(x, layout["intercept"])
    size = rows_at_once(n, outputs**2 * streams.numbers_per_row(x, layout["intercept"]))
    size = min(size, CLASS_ROWS) if sparse and outputs > 1 else size
    if is_jax(parts):
        with matching_precision(layout["dtype"]):
            batches = streams.array_batches(x, np.zeros(n), block_size=size, **layout)
            blocks = (batch.x for batch in batches)
            return predict_in_blocks(lambda block: run.call(function, *parts, block), blocks, n)
    if n == 1:
        (block,) = streams.row_blocks(x, size=1, **layout)
        return run.call(function, *parts, block)
    size = size if outputs == 1 else min(size, CLASS_ROWS)
    with np.errstate(all="ignore"):  # no warnings about infinite rates, as in JAX
        blocks = streams.row_blocks(x, size=size, **layout)
        return predict_in_blocks(lambda block: function(*parts, block), blocks, n)


def _predict(likelihood: Likelihood, posterior: Gaussian, predictor: Predictor, x: Any) -> tuple:
    """The moments of y and of the predictors of each row; JAX takes single rows, NumPy all at once."""
    mean, var = predictor_moments(posterior, predictor, x)
    if is_jax(mean):
        return *jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var), mean
    return *likelihood.predict(mean, var), mean
