"""Central intervals of predictions whose linear predictor is Gaussian."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri, pdtr, roots_hermitenorm, softmax

NODES, DRAWS = 32, 512
"""Nodes of the integrals over the rate of counts; draws of the predictors of several classes."""
MOST_COUNTS = 1e15
"""Counts beyond this are treated as normal numbers: floating point cannot tell them apart."""


class Spread(NamedTuple):
    """The standard deviation and the ends of the interval of each row."""

    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def normal(mean: np.ndarray, std: np.ndarray, level: float) -> Spread:
    """The interval of y ~ N(mean, std²)."""
    half = ndtri((1 + level) / 2) * std
    return Spread(std, mean - half, mean + half)


def normal_holds(
    y: np.ndarray, mean: np.ndarray, std: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Whether y is in the interval of `normal`, in a column for each level."""
    return np.abs(y - mean)[:, None] <= ndtri((1 + levels) / 2) * std[:, None]


def probability(mean: np.ndarray, std: np.ndarray, level: float) -> Spread:
    """The interval of σ(f) for f ~ N(mean, std²): its ends are exact, the deviation is by quadrature."""
    _, lower, upper = normal(mean, std, level)
    z, weight = _nodes()
    p = expit(mean[:, None] + std[:, None] * z)
    centre = p @ weight
    return Spread(np.sqrt((p - centre[:, None]) ** 2 @ weight), expit(lower), expit(upper))


def counts(mean: np.ndarray, std: np.ndarray, level: float) -> Spread:
    """The interval of y ~ Poisson(e^f), f ~ N(mean, std²): the smallest counts that reach its ends."""
    z, weight = _nodes()
    rate = np.exp(np.clip(mean[:, None] + std[:, None] * z, -700, 700))
    centre = np.exp(np.minimum(mean + std**2 / 2, 700))
    variance = centre + centre**2 * np.expm1(np.minimum(std**2, 700))
    lower = _quantile(rate, weight, (1 - level) / 2)
    return Spread(np.sqrt(variance), lower, _quantile(rate, weight, (1 + level) / 2))


def counts_hold(y: np.ndarray, mean: np.ndarray, std: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Whether y is in the interval of `counts`, in a column for each level.

    An end is the smallest count whose distribution function F reaches a given share. So y is not below the
    lower end if F(y) reaches the lower share, and not above the upper end if F(y − 1) is less than the
    upper one.
    """
    z, weight = _nodes()
    rate = np.exp(np.clip(mean[:, None] + std[:, None] * z, -700, 700))
    reached, before = (_distribution(count, rate) @ weight for count in (y, y - 1))
    return (reached[:, None] >= (1 - levels) / 2) & (before[:, None] < (1 + levels) / 2)


def classes(mean: np.ndarray, cov: np.ndarray, level: float) -> Spread:
    """The intervals of the softmax of f ~ N(mean, cov), a column for each class, from fixed draws."""
    noise = np.random.default_rng(0).normal(size=(DRAWS, mean.shape[1]))
    vals, vecs = np.linalg.eigh(cov)
    root = vecs * np.sqrt(np.maximum(vals, 0))[:, None, :]
    p = softmax(mean[:, None, :] + np.einsum("nij,kj->nki", root, noise), axis=2)
    lower, upper = np.quantile(p, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return Spread(p.std(axis=1), lower, upper)


def _nodes() -> tuple[np.ndarray, np.ndarray]:
    z, weight = roots_hermitenorm(NODES)
    return z, weight / weight.sum()


def _quantile(rate: np.ndarray, weight: np.ndarray, share: float) -> np.ndarray:
    """The smallest count whose distribution function, averaged over the rates, is at least `share`."""
    high = np.ceil(np.minimum(rate.max(axis=1) * 2 + 100, MOST_COUNTS))
    low = np.full(len(rate), -1.0)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        reached = _distribution(middle, rate) @ weight >= share
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high


def _distribution(count: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """P(y ≤ count) for each rate; 0 for a count below zero."""
    return np.where(count[:, None] < 0, 0.0, pdtr(np.maximum(count, 0)[:, None], rate))
