"""Predictions for rows of any number, a block at a time: with NumPy, or with JAX on accelerators."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from kalvi import run, streams
from kalvi.algorithms.groups import laws
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.namespaces import is_jax
from kalvi.precision import matching
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood

ROWS, NUMBERS = 1024, 2**25
"""Predictions are made for blocks of at most so many rows, and so many numbers in them."""
ROWS_OF_CLASSES = 64
"""NumPy takes so many rows at once where each has several predictors, integrated over many points."""


def predicted(
    likelihood: Likelihood | VectorLikelihood, posterior: Gaussian, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and (co)variance of y, and the mean of the linear predictors, for each row of x."""
    several = isinstance(likelihood, VectorLikelihood)
    width = (likelihood.outputs if several else 1) * posterior.dim
    predict = _predict_groups if several else _predict_rows
    return blockwise(predict, (likelihood, posterior), x, width, layout)


def predictor_laws(
    posterior: Gaussian, outputs: int, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the linear predictors of each row of x."""
    predictor = MultiLinear(outputs)
    return blockwise(_laws, (posterior, predictor), x, outputs * posterior.dim, layout)


def blockwise(
    function: Callable[..., tuple], parts: tuple, x: Any, width: int, layout: dict[str, Any]
) -> Any:
    """function(*parts, rows) over blocks of rows of x, the results put together."""
    n, most = x.shape[0], int(np.clip(NUMBERS // width, 1, ROWS))
    if is_jax(parts):
        size = min(max(1 << max(n - 1, 0).bit_length(), streams.FIRST_BLOCK), most)
        with matching(layout["dtype"]):
            batches = streams.array_batches(x, np.zeros(n), block_size=size, **layout)
            found = [run.call(function, *parts, batch.x) for batch in batches]
    else:
        size = most if function is _predict_rows else min(most, ROWS_OF_CLASSES)
        with np.errstate(all="ignore"):  # infinite rates are no news, as in JAX
            blocks = streams.dense_blocks(x, size=size, **layout)
            found = [function(*parts, block) for block in blocks]
    return tuple(np.concatenate(part)[:n] for part in zip(*found, strict=True))


def _predict_rows(likelihood: Likelihood, posterior: Gaussian, x: Any) -> tuple:
    mean, var = x @ posterior.mean, posterior.marginal_variance(x)
    return *_each(likelihood, mean, var), mean


def _predict_groups(likelihood: VectorLikelihood, posterior: Gaussian, x: Any) -> tuple:
    mean, cov = laws(posterior, MultiLinear(likelihood.outputs), x)
    return *_each(likelihood, mean, cov), mean


def _laws(posterior: Gaussian, predictor: MultiLinear, x: Any) -> tuple:
    return laws(posterior, predictor, x)


def _each(likelihood: Any, mean: Any, var: Any) -> tuple:
    """The law of y for each row: JAX takes one at a time, NumPy all of them."""
    if is_jax(mean):
        return jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var)
    return likelihood.predict(mean, var)
