"""A block of sparse rows learned by a low-rank precision in plain NumPy and SciPy.

A state is (mean, W, ψ, G), the precision W Wᵀ + diag ψ and G = Wᵀ Ψ⁻¹ W. The formulas are those of
`kalvi.gaussians.low_rank_sparse`: products of sparse matrices for what the block needs, one eigenproblem of
p + b columns, and then the d rows of W.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

BETA2 = 8 / math.pi
STEPS = 8
"""Of Newton's method, for the step and the variance of a site."""


class State(NamedTuple):
    mean: np.ndarray
    factor: np.ndarray
    diag: np.ndarray
    inner: np.ndarray

    @classmethod
    def begin(cls, d: int, p: int) -> "State":
        """The unit prior in float32."""
        zeros = np.zeros(d, np.float32), np.zeros((d, p), np.float32)
        return cls(*zeros, np.ones(d, np.float32), np.zeros((p, p)))


def by_block(state: State, x: Any, y: np.ndarray) -> State:
    """The state after a block of CSR rows; its arrays are written over."""
    mean, factor, diag, inner = state
    p, d = factor.shape[1], len(mean)
    active = np.unique(x.indices)
    x = sp.csr_array((x.data, np.searchsorted(active, x.indices), x.indptr), (len(y), len(active)))
    w, own = factor[active].astype(float), diag[active].astype(float)
    mixed = x @ (w / own[:, None])
    rows = ((x / own[None, :]) @ x.T).toarray()
    loading = np.linalg.solve(np.eye(p) + inner, mixed.T)
    coefficients, curvature = _sites(x @ mean[active], rows - mixed @ loading, y)
    root = np.sqrt(curvature)
    z = np.block([[inner, mixed.T * root], [(mixed.T * root).T, rows * np.outer(root, root)]])
    values, vectors = np.linalg.eigh(z)
    kept, noise = vectors[:, -p:], max(values[:-p].sum(), 0) / (d - p)
    shared = np.minimum(noise / np.maximum(values[-p:], np.finfo(float).tiny), 1)
    pull = (loading @ coefficients).astype(np.float32)
    turned = (w @ kept[:p] + x.T @ (root[:, None] * kept[p:])).astype(np.float32)
    squares = np.sum(w**2, axis=1) + x.power(2).T @ curvature
    squares = (squares - np.sum(turned.astype(float) ** 2, axis=1)).astype(np.float32)
    force = (x.T @ coefficients).astype(np.float32)
    new = factor @ kept[:p].astype(np.float32)
    rest = np.einsum("ij,ij->i", factor, factor) - np.einsum("ij,ij->i", new, new)
    new[active], rest[active] = turned, squares
    step = -(factor @ pull)
    step[active] += force
    mean += step / diag
    diag += np.maximum(rest, 0) + (new**2) @ shared.astype(np.float32)
    new *= np.sqrt(1 - shared).astype(np.float32)
    return State(mean, new, diag, (new.T @ (new / diag[:, None])).astype(float))


def _sites(mean: np.ndarray, cov: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and curvatures of the rows of a block, each after those before it."""
    n = len(y)
    upper, steps, curvature = np.eye(n), np.zeros(n), np.zeros(n)
    for t, label in enumerate(y.tolist()):
        column = cov[:, t].copy()
        curvature[t], steps[t] = _site(float(mean[t]), float(column[t]), label)
        shrink = curvature[t] / (1 + curvature[t] * column[t])
        mean += steps[t] * column
        cov -= np.outer(shrink * column, column)
        upper[t, t + 1 :] = shrink * column[t + 1 :]
    return solve_triangular(upper, steps), curvature


def _site(mean: float, var: float, y: float) -> tuple[float, float]:
    """Curvature and step of the implicit scheme with the inverse probit, by alternating Newton steps."""
    alpha, later, k, p = mean, var, 1.0, 0.5
    for _ in range(STEPS):
        k = math.sqrt(BETA2 / (later + BETA2))
        p = 1 / (1 + math.exp(-k * alpha))
        slope = 1 + var * k * p * (1 - p)
        alpha -= (alpha + var * (p - y) - mean) / slope
        later = var / slope
    return k * p * (1 - p), y - p
