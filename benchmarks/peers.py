"""What others would run instead: each peer is a function of rows x and labels y, for N(0, VARIANCE I)."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from bayesianbandits import BayesianGLM, RVGAApproximator
from river.linear_model import LogisticRegression
from scipy.optimize import root
from scipy.special import expit
from sklearn.linear_model import SGDClassifier

BETA2 = 8 / np.pi
VARIANCE = 4.0
"""The prior variance of every weight, for every contender that has a prior."""


def numpy_rvga(x, y):
    """Implicit R-VGA as its paper describes it (eqs. 73-77), row by row; returns mean and covariance."""
    d = x.shape[1]
    mean, cov = np.zeros(d), VARIANCE * np.eye(d)
    for row, label in zip(x, y, strict=True):
        cov_x = cov @ row
        mean0, var0 = row @ mean, row @ cov_x
        alpha, var = solve_implicit(mean0, var0, label)
        k = np.sqrt(BETA2 / (var + BETA2))
        p = expit(k * alpha)
        mean = mean + cov_x * (label - p)
        cov = cov - np.outer(cov_x, cov_x) / (1 / (k * p * (1 - p)) + var0)
    return mean, cov


def solve_implicit(mean0, var0, y):
    """The roots α, ν of eqs. 69-70: Powell's hybrid method in (α, log ν) from mid-bounds."""

    def equations(unknowns):
        alpha, var = unknowns[0], np.exp(unknowns[1])
        k = np.sqrt(BETA2 / (var + BETA2))
        dk = -k * var / (2 * (var + BETA2))  # per log ν
        p = expit(alpha * k)
        slope = p * (1 - p)
        bend = slope * (1 - 2 * p)
        shrunk = var0 / (1 + var0 * k * slope)
        values = [alpha + var0 * p - mean0 - var0 * y, var - shrunk]
        jacobian = [
            [1 + var0 * slope * k, var0 * slope * alpha * dk],
            [shrunk**2 * k**2 * bend, var + shrunk**2 * dk * (slope + k * bend * alpha)],
        ]
        return np.array(values), np.array(jacobian)

    low = var0 * (1 - var0 / (4 + var0))
    start = [mean0 + var0 * (y - 0.5), np.log((low + var0) / 2)]
    alpha, log_var = root(equations, start, jac=True, method="hybr", tol=1e-6).x
    return alpha, np.exp(log_var)


@jax.jit
def _ekf(x, y, mean, cov):
    def absorb(state, row):
        mean, cov = state
        x, y = row
        cov_x = cov @ x
        p = jax.nn.sigmoid(x @ mean)
        gain = cov_x / (1 / (p * (1 - p)) + x @ cov_x)
        return (mean + gain * (y - p) / (p * (1 - p)), cov - jnp.outer(gain, cov_x)), None

    return jax.lax.scan(absorb, (mean, cov), (x, y))[0]


def jax_ekf(x, y):
    """The extended Kalman filter as one would write it in JAX: a jitted scan over rows."""
    d = x.shape[1]
    prior = jnp.zeros(d, x.dtype), VARIANCE * jnp.eye(d, dtype=x.dtype)
    return jax.block_until_ready(_ekf(jnp.asarray(x), jnp.asarray(y), *prior))


def bandits(size, variance=VARIANCE, **options):
    """bayesianbandits' R-VGA: undamped iterations on batches of `size` rows, each one joint update."""

    def run(x, y):
        model = BayesianGLM(1 / variance, approximator=RVGAApproximator(**options))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for start in range(0, len(y), size):
                model.partial_fit(x[start : start + size], y[start : start + size])
        return model

    return run


def river(x, y):
    """river's logistic regression by SGD, one row at a time; no posterior."""
    model = LogisticRegression()
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(enumerate(row)), bool(label))
    return model


def sgd(x, y, size=1024):
    """scikit-learn's SGD in partial fits of `size` rows; no posterior."""
    model = SGDClassifier(loss="log_loss")
    for start in range(0, len(y), size):
        model.partial_fit(x[start : start + size], y[start : start + size], classes=[0, 1])
    return model


def numpy_lrvga(state, x, y, logistic=False):
    """L-RVGA as its paper describes it: Algorithm 1 with one inner loop, the mean by eqs. 26 or 30.

    `state` is (mean, W, ψ); the noise of the linear model has variance 1.
    """
    mean, factor, diag = state
    for row, label in zip(x, y, strict=True):
        weight, step = 1.0, label - row @ mean
        if logistic:
            cov_x = _covariance_times(row, factor, diag)
            alpha, var = solve_implicit(row @ mean, row @ cov_x, label)
            k = np.sqrt(BETA2 / (var + BETA2))
            p = expit(k * alpha)
            weight, step = k * p * (1 - p), label - p
            mean = mean + mean.dtype.type(step) * cov_x
        factor, diag = _algorithm1(factor, diag, factor.dtype.type(weight), row)
        if not logistic:
            mean = mean + _covariance_times(row, factor, diag) * step
    return mean, factor, diag


def _algorithm1(before, diag_before, weight, row, loops=1):
    """W Wᵀ + Ψ + weight x xᵀ by Algorithm 1, written as printed."""
    factor, diag = before, diag_before
    identity = np.eye(factor.shape[1], dtype=factor.dtype)
    for _ in range(loops):
        scaled = factor / diag[:, None]
        small = identity + factor.T @ scaled
        v = weight * np.outer(row, row @ scaled)
        v += before @ (before.T @ scaled) + diag_before[:, None] * scaled
        new = v @ np.linalg.inv(identity + np.linalg.solve(small, scaled.T @ v))
        kept = np.sum((new @ np.linalg.inv(small)) * v, axis=1)
        diag = weight * row**2 + np.sum(before * before, axis=1) + diag_before - kept
        factor = new
    return factor, diag


def _covariance_times(row, factor, diag):
    """(W Wᵀ + Ψ)⁻¹ x by Woodbury's formula."""
    scaled = row / diag
    small = np.eye(factor.shape[1], dtype=factor.dtype) + factor.T @ (factor / diag[:, None])
    return scaled - factor @ np.linalg.solve(small, factor.T @ scaled) / diag
