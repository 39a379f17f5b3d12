"""Pólya–Gamma Gibbs sampling of smooth binary factorisation, in NumPy: the yardstick of variational fits.

Polson, Scott & Windle (2013): with ω_rc ~ PG(1, ⟨u_r, α_c⟩) for every seen entry the log-odds have Gaussian
conditionals. Given the columns, all rows and factors are one Gaussian,

    precision = Q + blockdiag_r Σ_c ω_rc α_c α_cᵀ,    pull = Q mean + Σ_c (x_rc − ½) α_c,

with Q the tridiagonal precision of the Ornstein–Uhlenbeck prior. In the order (r, k) its bandwidth is K, so
that a draw costs O(N K²). Hyperparameters are held, or sampled as well: means from their Gaussian (under
a flat prior), variances from an inverse Gamma, rates by a slice on the log scale.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky_banded
from scipy.linalg.lapack import dtbtrs  # type: ignore[attr-defined]
from scipy.special import expit

from kalvi.evaluation import metrics
from papers.silk_data import Matrix, Prior

SHAPE, SCALE = 2.0, 1.0
"""Of the inverse Gamma prior of a variance: mean 1, no second moment."""
LOG_RATE_SPREAD = 3.0
"""Deviation of the log of a rate around one over the median gap."""
WIDTH, STEPS_OUT = 1.0, 8
"""Of the slice on the log rate."""


class Draws(NamedTuple):
    """Mean probabilities of the hidden entries, and the log-likelihood of the seen ones at every sweep.

    `losses` are those of the running mean, after every sweep kept; `rates` the medians of both sides.
    """

    probability: np.ndarray
    log_likelihood: np.ndarray
    losses: np.ndarray
    rates: tuple[np.ndarray, np.ndarray]


def gibbs(
    matrix: Matrix,
    rows: Prior,
    cols: Prior,
    *,
    sweeps: int,
    burn_in: int,
    seed: int,
    learn: bool = False,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> Draws:
    """Posterior-mean probabilities of the hidden entries, from the prior or a given start."""
    rng, draw_pg = np.random.default_rng(seed), _polya_gamma()
    u, v = start if start is not None else (rows.sample(rng), cols.sample(rng))
    pull = np.where(matrix.seen, matrix.x - 0.5, 0.0)
    total, trace, losses, rates = np.zeros(matrix.answers.shape), [], [], []
    for sweep in range(sweeps):
        log_odds = u @ v.T
        omega = np.where(matrix.seen, draw_pg(1.0, log_odds, random_state=rng), 0.0)
        u = draw_side(rng, rows, omega, pull, v)
        v = draw_side(rng, cols, omega.T, pull.T, u)
        if learn:
            rows, cols = draw_prior(rng, rows, u), draw_prior(rng, cols, v)
        log_odds = u @ v.T
        trace.append(_log_likelihood(log_odds, pull, matrix.seen))
        if sweep >= burn_in:
            total += expit(log_odds[matrix.hidden])
            losses.append(metrics.log_loss(total / (sweep - burn_in + 1), matrix.answers))
            rates.append((rows.rate, cols.rate))
    row_rates, col_rates = np.median(rates, axis=0)
    return Draws(
        total / (sweeps - burn_in), np.array(trace), np.array(losses), (row_rates, col_rates)
    )


def _polya_gamma() -> Callable[..., np.ndarray]:
    try:
        from polyagamma import random_polyagamma
    except ImportError as error:
        raise ImportError(
            "Gibbs sampling needs the package polyagamma: pip install 'kalvi[experiments]'."
        ) from error
    return random_polyagamma  # type: ignore[return-value]


def _log_likelihood(log_odds: np.ndarray, pull: np.ndarray, seen: np.ndarray) -> float:
    normaliser = np.logaddexp(log_odds / 2, -log_odds / 2)
    return float(np.sum(pull * log_odds) - normaliser[seen].sum())


def tridiagonal(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal (n, k) and off-diagonal (n − 1, k) of the prior's precision."""
    stay = prior.correlations()
    left = 1 - stay**2
    diagonal = np.ones((len(prior.locations), len(prior.mean)))
    diagonal[1:] = 1 / left
    diagonal[:-1] += stay**2 / left
    return diagonal / prior.variance, -stay / left / prior.variance


def draw_side(
    rng: np.random.Generator, prior: Prior, omega: np.ndarray, pull: np.ndarray, other: np.ndarray
) -> np.ndarray:
    """All rows given the columns: one banded Cholesky factor and two solves."""
    (n, _), k = omega.shape, other.shape[1]
    diagonal, beside = tridiagonal(prior)
    products = (other[:, :, None] * other[:, None, :]).reshape(len(other), k * k)
    blocks = (omega @ products).reshape(n, k, k)
    target = pull @ other + diagonal * prior.mean
    target[1:] += beside * prior.mean
    target[:-1] += beside * prior.mean
    band = np.zeros((k + 1, n, k))
    for i in range(k):
        band[i, :, : k - i] = np.diagonal(blocks, -i, axis1=1, axis2=2)
    band[0] += diagonal
    band[k, :-1] = beside
    root = cholesky_banded(band.reshape(k + 1, n * k), lower=True, check_finite=False)
    half, _ = dtbtrs(root, target.reshape(-1, 1), uplo="L")
    noisy = half + rng.normal(size=half.shape)
    return dtbtrs(root, noisy, uplo="L", trans="T")[0].reshape(n, k)


def draw_prior(rng: np.random.Generator, prior: Prior, path: np.ndarray) -> Prior:
    """Means, variances and rates of one side given its paths."""
    diagonal, beside = tridiagonal(prior)
    pulls = diagonal * path
    pulls[1:] += beside * path[:-1]
    pulls[:-1] += beside * path[1:]
    precision = diagonal.sum(axis=0) + 2 * beside.sum(axis=0)
    mean = pulls.sum(axis=0) / precision + rng.normal(size=precision.shape) / np.sqrt(precision)
    prior = prior._replace(mean=mean)
    residual = (path - mean).T
    gaps = np.diff(prior.locations)
    rate = np.array(
        [
            _slice(rng, np.log(r), lambda t, e=e: _log_rate_density(t, e, gaps))
            for r, e in zip(prior.rate, residual, strict=True)
        ]
    )
    squares = np.array(
        [_square(e, np.exp(-r * gaps / 2)) for r, e in zip(rate, residual, strict=True)]
    )
    shape = SHAPE + len(path) / 2
    variance = (SCALE + squares / 2) / rng.gamma(shape, size=len(mean))
    return prior._replace(rate=rate, variance=variance)


def _square(residual: np.ndarray, stay: np.ndarray) -> float:
    """eᵀ C⁻¹ e for the correlation matrix C of the path."""
    steps = (residual[1:] - stay * residual[:-1]) ** 2 / (1 - stay**2)
    return float(residual[0] ** 2 + np.sum(steps))


def _log_rate_density(log_rate: float, residual: np.ndarray, gaps: np.ndarray) -> float:
    """Of log rate given the path, the variance integrated out."""
    rate, usual = np.exp(log_rate), -np.log(np.median(gaps[gaps > 0]))
    stay = np.exp(-rate * gaps / 2)
    shape = SHAPE + len(residual) / 2
    fit = shape * np.log(SCALE + _square(residual, stay) / 2)
    width = np.sum(np.log(-np.expm1(-rate * gaps))) / 2
    return float(-fit - width - ((log_rate - usual) / LOG_RATE_SPREAD) ** 2 / 2)


def _slice(rng: np.random.Generator, at: float, density) -> float:
    """exp of one slice step (Neal 2003: stepping out, then shrinking)."""
    height = density(at) - rng.exponential()
    low = at - WIDTH * rng.random()
    high = low + WIDTH
    for _ in range(STEPS_OUT):
        if density(low) <= height:
            break
        low -= WIDTH
    for _ in range(STEPS_OUT):
        if density(high) <= height:
            break
        high += WIDTH
    while True:
        new = rng.uniform(low, high)
        if density(new) > height:
            return float(np.exp(new))
        low, high = (new, high) if new < at else (low, new)
