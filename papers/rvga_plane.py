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
    """log Z by the trapezoid rule in the whitened coordinates of the best Gaussian."""
    theta, cell = _lattice(best, points)
    return float(np.logaddexp.reduce(log_joint(x, y, setting, theta)) + cell)


def divergences(
    x: np.ndarray, y: np.ndarray, setting: Setting, best: Gaussian, q: Gaussian
) -> dict[str, float]:
    """KL(q ‖ p), KL(p ‖ q) and Jensen–Shannon's divergence of a Gaussian from the posterior p, in nats.

    Expectations under p are sums over the grid of `log_evidence`, those under q over one of its own.
    """
    log_z = log_evidence(x, y, setting, best)

    def logs(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return log_joint(x, y, setting, theta) - log_z, _log_normal(theta, *q)

    (at_p, cell_p), (at_q, cell_q) = _lattice(best, 301), _lattice(q, 301)
    (p_here, q_here), (p_there, q_there) = logs(at_p), logs(at_q)
    share_p, share_q = np.exp(p_here + cell_p), np.exp(q_there + cell_q)
    half = np.log(0.5)
    from_p = share_p @ (p_here - np.logaddexp(p_here, q_here) - half)
    from_q = share_q @ (q_there - np.logaddexp(p_there, q_there) - half)
    return {
        "left KL": float(share_q @ (q_there - p_there)),
        "right KL": float(share_p @ (p_here - q_here)),
        "JS": float(0.5 * from_p + 0.5 * from_q),
    }


def _lattice(gaussian: Gaussian, points: int) -> tuple[np.ndarray, float]:
    """A grid in a Gaussian's whitened coordinates, and the logarithm of the volume of its cells.

    A smooth integrand that vanishes at the edges: the trapezoid rule converges faster than any power.
    """
    mean, cov = gaussian
    root = np.linalg.cholesky(cov)
    z = np.linspace(-REACH, REACH, points)
    theta = mean + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ root.T
    return theta, float(2 * np.log(z[1] - z[0]) + np.log(np.linalg.det(root)))


def _log_normal(theta: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    away = theta - mean
    square = np.einsum("ni,ij,nj->n", away, np.linalg.inv(cov), away)
    return -0.5 * square - np.log(2 * np.pi) - 0.5 * np.log(np.linalg.det(cov))
