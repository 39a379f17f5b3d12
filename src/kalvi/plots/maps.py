"""Maps of densities over a plane: the region to show, and the heights there."""

from collections.abc import Callable, Sequence

import numpy as np

Ellipse = tuple[np.ndarray, np.ndarray]
"""The mean and the covariance of a Gaussian in the plane."""
Grid = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Coordinates of the columns, of the rows, and the heights."""

CUT = 6.0
"""A map shows the region where the log density is at most this much below its maximum."""


def density_map(
    log_density: Callable[[np.ndarray], np.ndarray], best: Ellipse, also: Sequence[Ellipse] = ()
) -> Grid:
    """A grid of the log density in the region where it is high, found from the best fitting Gaussian.

    `log_density` takes points as rows. The map is widened by up to half its size to include the 95 %
    ellipses in `also`.
    """
    reach = 6 * np.sqrt(np.diag(best[1]))
    a, b, height = _evaluate(log_density, best[0] - reach, best[0] + reach, 101)
    inside = height > height.max() - CUT
    low = np.array([a[inside.any(axis=0)][0], b[inside.any(axis=1)][0]])
    high = np.array([a[inside.any(axis=0)][-1], b[inside.any(axis=1)][-1]])
    margin = (high - low) / 2
    for mean, cov in also:
        spread = 2.6 * np.sqrt(np.diag(cov))
        low = np.maximum(np.minimum(low, mean - spread), low - margin)
        high = np.minimum(np.maximum(high, mean + spread), high + margin)
    return _evaluate(log_density, low, high, 201)


def _evaluate(
    log_density: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, points: int
) -> Grid:
    a, b = (np.linspace(low[i], high[i], points) for i in range(2))
    theta = np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)
    return a, b, log_density(theta).reshape(points, points)
