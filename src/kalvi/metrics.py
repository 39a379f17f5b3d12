"""Scores of posteriors and predictions: evidence bounds, log loss, calibration, coverage."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.algorithms.base import Batch
from kalvi.divergences import kl
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Likelihood


class Calibration(NamedTuple):
    """Bins of predicted probabilities: how many fell in, what was predicted, what happened."""

    count: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray


def elbo(q: Gaussian, prior: Gaussian, likelihood: Likelihood, batch: Batch) -> Float[Array, ""]:
    """E_q[log p(y | θ)] − KL(q ‖ prior), by one-dimensional integrals: no Monte Carlo.

    Its negative is the unnormalised KL(q ‖ posterior) of the R-VGA paper (eq. 93 with Z = 1).
    """
    mean, var = batch.x @ q.mean, q.marginal_variance(batch.x)
    terms = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v).value)(batch.y, mean, var)
    return jnp.sum(batch.weight * terms) - kl(q, prior)


def log_loss(probability: np.ndarray, y: np.ndarray) -> float:
    """Mean −log p(y) in nats, for the probability that y = 1."""
    chosen = np.where(np.asarray(y) == 1, probability, 1 - np.asarray(probability))
    return float(-np.mean(np.log(np.maximum(chosen, np.finfo(float).tiny))))


def brier(probability: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error of the probability that y = 1."""
    return float(np.mean((np.asarray(probability) - np.asarray(y)) ** 2))


def calibration(probability: np.ndarray, y: np.ndarray, bins: int = 10) -> Calibration:
    """Predicted against observed frequencies in equally populated bins."""
    probability, y = np.asarray(probability, float), np.asarray(y, float)
    groups = np.array_split(np.argsort(probability, kind="stable"), min(bins, len(y)))
    return Calibration(
        np.array([len(g) for g in groups]),
        np.array([probability[g].mean() for g in groups]),
        np.array([y[g].mean() for g in groups]),
    )


def calibration_error(probability: np.ndarray, y: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: the mean gap between predicted and observed frequency."""
    table = calibration(probability, y, bins)
    return float(np.average(np.abs(table.predicted - table.observed), weights=table.count))


def coverage(mean: np.ndarray, std: np.ndarray, y: np.ndarray, level: float = 0.95) -> float:
    """The share of y inside the central Gaussian interval of the given level."""
    from_centre = np.abs(np.asarray(y) - mean) / std
    return float(np.mean(from_centre <= jax.scipy.stats.norm.ppf((1 + level) / 2)))
