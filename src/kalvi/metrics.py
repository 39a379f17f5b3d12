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
    """Mean −log p(y) in nats, for the probability that y = 1, or a column for each class y = 0, 1, …"""
    probability, y = np.asarray(probability), np.asarray(y)
    if probability.ndim == 2:
        chosen = probability[np.arange(len(y)), y.astype(int)]
    else:
        chosen = np.where(y == 1, probability, 1 - probability)
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
    """Expected calibration error: the mean gap between predicted and observed frequency.

    With a column for each class, that of the likeliest class being right.
    """
    if np.ndim(probability) == 2:
        likeliest = np.argmax(probability, axis=1)
        y, probability = likeliest == np.asarray(y), np.max(probability, axis=1)
    table = calibration(probability, y, bins)
    return float(np.average(np.abs(table.predicted - table.observed), weights=table.count))


def entropy(probability: np.ndarray) -> np.ndarray:
    """−Σ p log p of each row, in nats."""
    p = np.asarray(probability, float)
    return -np.sum(p * np.log(np.maximum(p, np.finfo(float).tiny)), axis=1)


def log_score(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> float:
    """The mean log density of y under N(mean, std²)."""
    square = ((np.asarray(y) - mean) / std) ** 2
    return float(-np.mean(square + np.log(2 * np.pi * np.square(std))) / 2)


def coverage(mean: np.ndarray, std: np.ndarray, y: np.ndarray, level: float = 0.95) -> float:
    """The share of y inside the central Gaussian interval of the given level."""
    from_centre = np.abs(np.asarray(y) - mean) / std
    return float(np.mean(from_centre <= jax.scipy.stats.norm.ppf((1 + level) / 2)))
