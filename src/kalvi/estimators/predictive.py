"""Predictions for rows of any number, a block at a time."""

from typing import Any

import jax
import numpy as np

from kalvi import run, streams
from kalvi.algorithms.groups import laws
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood
from kalvi.predictors import MultiLinear
from kalvi.vectors import VectorLikelihood

ROWS, NUMBERS = 1024, 2**25
"""Predictions are made for blocks of at most so many rows, and so many numbers in them."""


def predicted(
    likelihood: Likelihood | VectorLikelihood, posterior: Gaussian, x: Any, layout: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and (co)variance of y, and the mean of the linear predictors, for each row of x."""
    n, predict, width = x.shape[0], _predict_rows, posterior.dim
    if isinstance(likelihood, VectorLikelihood):
        predict, width = _predict_groups, likelihood.outputs * posterior.dim
    few = max(1 << max(n - 1, 0).bit_length(), streams.FIRST_BLOCK)
    size = min(few, int(np.clip(NUMBERS // width, 1, ROWS)))
    batches = streams.array_batches(x, np.zeros(n), block_size=size, **layout)
    parts = [run.call(predict, likelihood, posterior, batch.x) for batch in batches]
    mean, variance, predictor = (np.concatenate(part)[:n] for part in zip(*parts, strict=True))
    return mean, variance, predictor


def _predict_rows(likelihood: Likelihood, posterior: Gaussian, x):
    mean, var = x @ posterior.mean, posterior.marginal_variance(x)
    expected, variance = jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var)
    return expected, variance, mean


def _predict_groups(likelihood: VectorLikelihood, posterior: Gaussian, x):
    mean, cov = laws(posterior, MultiLinear(likelihood.outputs), x)
    expected, variance = jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, cov)
    return expected, variance, mean
