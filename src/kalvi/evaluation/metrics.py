"""Scores of posteriors and predictions: evidence bounds, log loss, calibration, coverage."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.gaussians import Gaussian
from kalvi.gaussians.divergences import kl
from kalvi.likelihoods import Likelihood
from kalvi.predictors import Predictor, linear_predictor
from kalvi.predictors.models import Model
from kalvi.rules.rule import Batch
from kalvi.rules.visits import visit


class Calibration(NamedTuple):
    """Bins of predicted probabilities: counts of rows, mean predictions and observed frequencies."""

    count: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray


def elbo(
    q: Gaussian,
    prior: Gaussian,
    likelihood: Likelihood,
    batch: Batch,
    predictor: Predictor | None = None,
) -> Float[Array, ""]:
    """E_q[log p(y | θ)] − KL(q ‖ prior), by integrals over each row's predictors, without Monte Carlo.

    Its negative is the unnormalised KL(q ‖ posterior) of the R-VGA paper (eq. 93 with Z = 1).
    """
    model = Model(
        linear_predictor(likelihood.outputs) if predictor is None else predictor, likelihood
    )
    return jnp.sum(visit(model, q, batch).value) - kl(q, prior)


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

    With a column for each class, it is that of the statement that the likeliest class is right.
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


def coverage(mean: np.ndarray, std: np.ndarray, y: np.ndarray, level: float = 0.95) -> float:
    """The share of y inside the central Gaussian interval of the given level."""
    from_centre = np.abs(np.asarray(y) - mean) / std
    return float(np.mean(from_centre <= jax.scipy.stats.norm.ppf((1 + level) / 2)))
