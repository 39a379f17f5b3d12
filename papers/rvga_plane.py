"""The true posterior of a two-dimensional logistic regression, on grids."""

from collections.abc import Sequence

import numpy as np

from kalvi.plots.maps import Ellipse as Gaussian
from kalvi.plots.maps import Grid, density_map
from papers.rvga_data import Setting

REACH = 16.0
"""Standard deviations of the best Gaussian that the grid for log Z covers."""


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
    return density_map(lambda theta: log_joint(x, y, setting, theta), best, also)


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
