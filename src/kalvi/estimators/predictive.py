"""Predictions for rows of any number, a block at a time: with NumPy, or with JAX on accelerators."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from kalvi import streams
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.numerics.namespaces import is_jax
from kalvi.numerics.precision import matching
from kalvi.predictors import Predictor, linear, predictor_moments
from kalvi.streams import run

ROWS, NUMBERS = 1024, 2**25
"""Predictions are made for blocks of at most so many rows, and so many numbers in them."""
ROWS_OF_CLASSES = 64
"""NumPy takes so many rows at once where each has several predictors, integrated over many points."""


def predicted(
    likelihood: Likelihood, posterior: Gaussian, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and (co)variance of y, and the mean of the linear predictors, for each row of x."""
    parts = likelihood, posterior, linear(likelihood.outputs)
    return blockwise(_predict, parts, x, likelihood.outputs, layout)


def predictor_laws(
    posterior: Gaussian, outputs: int, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the linear predictors of each row of x."""
    return blockwise(predictor_moments, (posterior, linear(outputs)), x, outputs, layout)


def blockwise(
    function: Callable[..., tuple], parts: tuple, x: Any, outputs: int, layout: dict[str, Any]
) -> Any:
    """function(*parts, rows) over blocks of rows of x, the results put together."""
    n, width = x.shape[0], outputs**2 * (x.shape[1] + 1)
    most = int(np.clip(NUMBERS // width, 1, ROWS))
    if is_jax(parts):
        size = min(max(1 << max(n - 1, 0).bit_length(), streams.FIRST_BLOCK), most)
        with matching(layout["dtype"]):
            batches = streams.array_batches(x, np.zeros(n), block_size=size, **layout)
            found = [run.call(function, *parts, batch.x) for batch in batches]
    else:
        size = most if outputs == 1 else min(most, ROWS_OF_CLASSES)
        with np.errstate(all="ignore"):  # infinite rates are no news, as in JAX
            blocks = streams.dense_blocks(x, size=size, **layout)
            found = [function(*parts, block) for block in blocks]
    return tuple(np.concatenate(part)[:n] for part in zip(*found, strict=True))


def _predict(likelihood: Likelihood, posterior: Gaussian, predictor: Predictor, x: Any) -> tuple:
    mean, var = predictor_moments(posterior, predictor, x)
    return *_each(likelihood, mean, var), mean


def _each(likelihood: Any, mean: Any, var: Any) -> tuple:
    """The law of y for each row: JAX takes one at a time, NumPy all of them."""
    if is_jax(mean):
        return jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var)
    return likelihood.predict(mean, var)
