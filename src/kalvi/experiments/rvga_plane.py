"""The true posterior of a two-dimensional logistic regression, on grids."""

from collections.abc import Sequence

import numpy as np

from kalvi.experiments.rvga_data import Setting

Gaussian = tuple[np.ndarray, np.ndarray]
Grid = tuple[np.ndarray, np.ndarray, np.ndarray]

POINTS = 201
WHITENED_REACH = 16.0


def log_joint(x: np.ndarray, y: np.ndarray, setting: Setting, theta: np.ndarray) -> np.ndarray:
    """log p(Y | θ) p₀(θ) at each row of θ."""
    away = theta - setting.prior_norm / np.sqrt(2)
    log_prior = -np.sum(away**2, axis=-1) / (2 * setting.prior_std**2)
    log_prior -= np.log(2 * np.pi * setting.prior_std**2)
    total = np.zeros(len(theta))
    for row, label in zip(
        x, y, strict=True
    ):  # a row at a time keeps the memory of a large grid small
        total -= np.logaddexp(0, (1 - 2 * label) * (theta @ row))
    return total + log_prior


def posterior_grid(
    x: np.ndarray, y: np.ndarray, setting: Setting, around: Sequence[Gaussian], points: int = POINTS
) -> Grid:
    """Coordinates and log joint density over a box that holds the 99 % ellipses of some Gaussians."""
    reach = [3.1 * np.sqrt(np.diag(cov)) for _, cov in around]
    low = np.min([mean - r for (mean, _), r in zip(around, reach, strict=True)], axis=0)
    high = np.max([mean + r for (mean, _), r in zip(around, reach, strict=True)], axis=0)
    a, b = (np.linspace(low[i], high[i], points) for i in range(2))
    theta = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    return a, b, log_joint(x, y, setting, theta).reshape(points, points)


def log_evidence(
    x: np.ndarray, y: np.ndarray, setting: Setting, around: Gaussian, points: int = 401
) -> float:
    """log Z by the trapezoid rule in the whitened coordinates of a Gaussian near the posterior.

    The integrand is smooth and vanishes at the edges, so the rule converges faster than any power.
    """
    mean, cov = around
    root = np.linalg.cholesky(cov)
    z = np.linspace(-WHITENED_REACH, WHITENED_REACH, points)
    theta = mean + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ root.T
    heights = log_joint(x, y, setting, theta)
    cell = 2 * np.log(z[1] - z[0]) + np.log(np.linalg.det(root))
    return float(np.logaddexp.reduce(heights) + cell)
