"""L-RVGA for logistic regression in plain NumPy: the paper's row by row, and blocks with large products.

A state is (mean, W, ψ), the precision W Wᵀ + diag ψ.
"""

import numpy as np
from scipy.special import expit

from benchmarks.peers import BETA2, solve_implicit


def by_row(state, x, y):
    """Algorithm 1 of the paper with one inner loop, the mean by eq. 30."""
    mean, factor, diag = state
    for row, label in zip(x, y, strict=True):
        cov_x = _covariance_times(row, factor, diag)
        weight, step = _site(row @ mean, row @ cov_x, label)
        mean = mean + mean.dtype.type(step) * cov_x
        factor, diag = _algorithm1(factor, diag, factor.dtype.type(weight), row)
    return mean, factor, diag


def _site(mean, var, label):
    """Curvature γ and step ξ of the implicit scheme with the inverse probit."""
    alpha, later = solve_implicit(mean, var, label)
    k = np.sqrt(BETA2 / (later + BETA2))
    p = expit(k * alpha)
    return k * p * (1 - p), label - p


def _algorithm1(before, diag_before, weight, row):
    """W Wᵀ + Ψ + weight x xᵀ by Algorithm 1, written as printed."""
    factor, diag = before, diag_before
    identity = np.eye(factor.shape[1], dtype=factor.dtype)
    scaled = factor / diag[:, None]
    small = identity + factor.T @ scaled
    v = weight * np.outer(row, row @ scaled)
    v += before @ (before.T @ scaled) + diag_before[:, None] * scaled
    new = v @ np.linalg.inv(identity + np.linalg.solve(small, scaled.T @ v))
    kept = np.sum((new @ np.linalg.inv(small)) * v, axis=1)
    diag = weight * row**2 + np.sum(before * before, axis=1) + diag_before - kept
    return new, diag


def _covariance_times(row, factor, diag):
    """(W Wᵀ + Ψ)⁻¹ x by Woodbury's formula."""
    scaled = row / diag
    small = np.eye(factor.shape[1], dtype=factor.dtype) + factor.T @ (factor / diag[:, None])
    return scaled - factor @ np.linalg.solve(small, factor.T @ scaled) / diag


def by_block(state, x, y):
    """One block at once: the same sites and the same eigen projection as kalvi's, with matrix products."""
    mean, factor, diag = state
    p, dtype = factor.shape[1], factor.dtype
    z = np.concatenate([factor, x.T], axis=1)
    gram = z.T @ (z / diag[:, None])
    capacitance = np.eye(p, dtype=dtype) + gram[:p, :p]
    loading = np.linalg.solve(capacitance, gram[:p, p:])
    cov = gram[p:, p:] - gram[p:, :p] @ loading  # x Σ xᵀ
    coefficients, curvature = _sites(x @ mean, cov.astype(float), y)
    pull = x.T @ coefficients.astype(dtype)
    mean = mean + (pull - factor @ (loading @ coefficients.astype(dtype))) / diag
    root = np.concatenate([np.ones(p), np.sqrt(curvature)]).astype(dtype)
    return mean, *_projected(z * root, diag, gram * np.outer(root, root), p)


def _sites(mean, cov, y):
    """Rows of the block one after the other: each sees what those before it said."""
    seen, columns, combined = cov.copy(), [], []
    mean, shrink, steps, curvature = mean.astype(float), [], [], []
    for t, label in enumerate(y):
        column = seen[:, t].copy()
        own = np.eye(len(y))[t] - sum(
            k * c[t] * q for k, c, q in zip(shrink, columns, combined, strict=True)
        )
        gamma, step = _site(mean[t], column[t], label)
        mean = mean + step * column
        shrink.append(gamma / (1 + gamma * column[t]))
        seen -= shrink[-1] * np.outer(column, column)
        columns.append(column)
        combined.append(own)
        steps.append(step)
        curvature.append(gamma)
    return np.array(steps) @ np.array(combined), np.array(curvature)


def _projected(z, diag, gram, p):
    """The p leading eigenvectors in the metric of ψ, shrunk by the mean dropped one; the rest to ψ."""
    values, vectors = np.linalg.eigh(gram)
    noise = max(values[:-p].sum(), 0) / (len(diag) - p)
    kept = z @ vectors[:, -p:]
    shared = np.minimum(noise / np.maximum(values[-p:], np.finfo(z.dtype).tiny), 1)
    rest = np.maximum(np.sum(z**2, axis=1) - np.sum(kept**2, axis=1), 0)
    return kept * np.sqrt(1 - shared), diag + rest + kept**2 @ shared
