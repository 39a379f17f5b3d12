"""What the proximal method is compared with in logistic regression, w ~ N(0, δ I): plain NumPy and SciPy.

MAP: the mode, by Newton's steps (with fewer rows than columns, `klprox_references.laplace` has it).
Mean field: the best Gaussian with a diagonal covariance, by L-BFGS over means and log variances.
Cholesky: the best Gaussian, by L-BFGS over means and a triangular factor (Challis & Barber 2011).

The bound is Σ (yᵢ mᵢ − E softplus(fᵢ)) + ½ (log|V| − tr V/δ − |m|²/δ + d − d log δ), fᵢ ~ N(mᵢ, vᵢ).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import expit

from papers.klprox_references import expected_logistic

LBFGS = {"maxiter": 2000, "maxfun": 2500, "ftol": 1e-12, "gtol": 1e-4, "maxcor": 20}


class Weights(NamedTuple):
    """A Gaussian over the weights by its mean and what makes its covariance, and the negative bound."""

    mean: np.ndarray
    spread: np.ndarray  # variances, or a factor of the covariance; none for a mode
    bound: float

    def predictors(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of x w."""
        if self.spread.size == 0:
            return x @ self.mean, np.zeros(len(x))
        if self.spread.ndim == 1:
            return x @ self.mean, x**2 @ self.spread
        return x @ self.mean, np.sum((x @ self.spread) ** 2, axis=1)

    def probability(self, x: np.ndarray) -> np.ndarray:
        """That y = 1."""
        return expected_logistic(*self.predictors(x))[1]


def mode(x: np.ndarray, y: np.ndarray, delta: float, start: Weights | None = None) -> Weights:
    """The MAP weights, by Newton's steps."""
    w = np.zeros(x.shape[1]) if start is None else start.mean

    def height(w: np.ndarray) -> float:
        f = x @ w
        return float(y @ f - np.logaddexp(0, f).sum() - w @ w / (2 * delta))

    here, rise = height(w), np.inf
    while rise > 1e-9:
        p = expit(x @ w)
        hessian = (x.T * (p * (1 - p))) @ x
        hessian.flat[:: len(w) + 1] += 1 / delta
        step = cho_solve(cho_factor(hessian, lower=True), x.T @ (y - p) - w / delta)
        while (there := height(w + step)) < here and np.any(step):
            step = step / 2 if np.max(np.abs(step)) > 1e-10 else np.zeros_like(step)
        w, rise, here = w + step, there - here, there
    return Weights(w, np.array([]), np.nan)


def mean_field(x: np.ndarray, y: np.ndarray, delta: float, start: Weights | None = None) -> Weights:
    """The best Gaussian with independent weights; scaled so that all steps are of order one."""
    d, square = x.shape[1], x**2
    scale = 1 / np.sqrt(1 / delta + square.sum(axis=0) / 4)

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        mean, log_var = scale * point[:d], point[d:]
        var = np.exp(log_var)
        m = x @ mean
        value, p, bend = expected_logistic(m, square @ var)
        prior = np.sum(log_var - var / delta - mean**2 / delta) + d - d * np.log(delta)
        slopes = scale * (x.T @ (y - p) - mean / delta), (1 - var * (1 / delta + bend @ square)) / 2
        return -float(y @ m - value.sum() + prior / 2), -np.concatenate(slopes)

    mean, var = (np.zeros(d), scale**2) if start is None else (start.mean, start.spread)
    begin = np.concatenate([mean / scale, np.log(var)])
    narrower = [(None, None)] * d + [(None, float(np.log(delta)))] * d  # than the prior
    begin[d:] = np.minimum(begin[d:], np.log(delta))
    found = minimize(negative, begin, jac=True, method="L-BFGS-B", bounds=narrower, options=LBFGS)
    return Weights(scale * found.x[:d], np.exp(found.x[d:]), float(found.fun))


def cholesky_optimum(
    x: np.ndarray, y: np.ndarray, delta: float, start: Weights | None = None
) -> Weights:
    """The best Gaussian, from a triangular factor of its covariance."""
    d = x.shape[1]
    lower = np.tril_indices(d)
    diagonal = np.flatnonzero(lower[0] == lower[1])

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        mean, factor = point[:d], np.zeros((d, d))
        factor[lower] = point[d:]
        entries = point[d:][diagonal]
        m, reach = x @ mean, x @ factor
        value, p, bend = expected_logistic(m, np.sum(reach**2, axis=1))
        prior = np.sum(np.log(entries**2)) - (np.sum(factor**2) + mean @ mean) / delta
        total = y @ m - value.sum() + (prior + d - d * np.log(delta)) / 2
        slope = -(x.T * bend) @ reach - factor / delta
        rise = slope[lower]
        rise[diagonal] += 1 / entries
        return -float(total), -np.concatenate([x.T @ (y - p) - mean / delta, rise])

    if start is None:
        factor = np.diag(1 / np.sqrt(1 / delta + np.sum(x**2, axis=0) / 4))
        start = Weights(np.zeros(d), factor, np.nan)
    begin = np.concatenate([start.mean, start.spread[lower]])
    found = minimize(negative, begin, jac=True, method="L-BFGS-B", options=LBFGS)
    factor = np.zeros((d, d))
    factor[lower] = found.x[d:]
    return Weights(found.x[:d], factor, float(found.fun))
