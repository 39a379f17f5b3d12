"""The true posterior of a two-dimensional logistic regression, on grids."""

from collections.abc import Sequence

import numpy as np

from kalvi.experiments.rvga_data import Setting

Gaussian = tuple[np.ndarray, np.ndarray]
Grid = tuple[np.ndarray, np.ndarray, np.ndarray]

REACH = 16.0
"""Standard deviations of the best Gaussian that the grid for log Z covers."""
CUT = 6.0
"""A map shows where the log density is within this of its maximum."""


def log_joint(x: np.ndarray, y: np.ndarray, setting: Setting, theta: np.ndarray) -> np.ndarray:
    """log p(Y | θ) p₀(θ) at each row of θ."""
    away = theta - setting.prior_norm / np.sqrt(2)
    log_prior = -np.sum(away**2, axis=-1) / (2 * setting.prior_std**2)
    total = log_prior - np.log(2 * np.pi * setting.prior_std**2)
    for row, label in zip(x, y, strict=True):  # a row at a time: no (grid, rows) array
        total -= np.logaddexp(0, (1 - 2 * label) * (theta @ row))
    return total


def posterior_grid(
    x: np.ndarray, y: np.ndarray, setting: Setting, best: Gaussian, also: Sequence[Gaussian] = ()
) -> Grid:
    """Coordinates and log joint density on a map of the posterior, found from the best Gaussian.

    The map also holds the 95 % ellipses in `also`, as far as half its own size beyond itself.
    """
    reach = 6 * np.sqrt(np.diag(best[1]))
    a, b, height = _evaluate(x, y, setting, best[0] - reach, best[0] + reach, 101)
    inside = height > height.max() - CUT
    low = np.array([a[inside.any(axis=0)][0], b[inside.any(axis=1)][0]])
    high = np.array([a[inside.any(axis=0)][-1], b[inside.any(axis=1)][-1]])
    margin = (high - low) / 2
    for mean, cov in also:
        spread = 2.6 * np.sqrt(np.diag(cov))
        low = np.maximum(np.minimum(low, mean - spread), low - margin)
        high = np.minimum(np.maximum(high, mean + spread), high + margin)
    return _evaluate(x, y, setting, low, high, 201)


def log_evidence(
    x: np.ndarray, y: np.ndarray, setting: Setting, best: Gaussian, points: int = 301
) -> float:
    """log Z by the trapezoid rule in the whitened coordinates of the best Gaussian.

    The integrand is smooth and vanishes at the edges, so the rule converges faster than any power.
    """
    mean, cov = best
    root = np.linalg.cholesky(cov)
    z = np.linspace(-REACH, REACH, points)
    theta = mean + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ root.T
    heights = log_joint(x, y, setting, theta)
    cell = 2 * np.log(z[1] - z[0]) + np.log(np.linalg.det(root))
    return float(np.logaddexp.reduce(heights) + cell)


def _evaluate(x, y, setting: Setting, low: np.ndarray, high: np.ndarray, points: int) -> Grid:
    a, b = (np.linspace(low[i], high[i], points) for i in range(2))
    theta = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    return a, b, log_joint(x, y, setting, theta).reshape(points, points)
