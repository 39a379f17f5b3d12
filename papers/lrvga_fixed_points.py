"""Appendix B of the L-RVGA paper: the fixed points of maximum likelihood and of EM, and their PPCA limits.

For a covariance S and a model W Wᵀ + Ψ, each function is one iteration as printed:

    likelihood_step   W ← S (W Wᵀ + Ψ)⁻¹ W,               Ψ ← diag(S − W Wᵀ)          (eqs. 77-78)
    em_step           W ← S Ψ⁻¹ W (I + M⁻¹ Wᵀ Ψ⁻¹ S Ψ⁻¹ W)⁻¹,  Ψ ← diag(S − W M⁻¹ …)    (eqs. 81-83)
    power_step        W ← S W (Wᵀ W)⁻¹                                                (eq. 94)
    em_pca_step       W ← S W (Wᵀ S W)⁻¹ Wᵀ W                                         (eq. 97)

Proposition 1: a fixed point of one of the first two is one of the other. EM never lowers the likelihood.
The last two end with the leading eigenvectors of S.
"""

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]


def likelihood_step(s: np.ndarray, factor: np.ndarray, diag: np.ndarray) -> Pair:
    """The fixed point of the marginal likelihood."""
    new = s @ np.linalg.solve(factor @ factor.T + np.diag(diag), factor)
    return new, np.diag(s - new @ new.T)


def em_step(s: np.ndarray, factor: np.ndarray, diag: np.ndarray) -> Pair:
    """The fixed point of EM."""
    u, eye = factor / diag[:, None], np.eye(factor.shape[1])
    inner = np.linalg.inv(eye + factor.T @ u)
    new = s @ u @ np.linalg.inv(eye + inner @ u.T @ s @ u)
    return new, np.diag(s - new @ inner @ u.T @ s)


def power_step(s: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Maximum likelihood for Ψ = σ² I and σ → 0."""
    return s @ factor @ np.linalg.inv(factor.T @ factor)


def em_pca_step(s: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """EM for Ψ = σ² I and σ → 0, the EM-PCA of Roweis (1998)."""
    return s @ factor @ np.linalg.solve(factor.T @ s @ factor, factor.T @ factor)


def ppca(s: np.ndarray, rank: int) -> tuple[np.ndarray, float]:
    """The most likely W and σ² of probabilistic PCA (Tipping & Bishop 1999), by eigenvalues."""
    values, vectors = np.linalg.eigh(s)
    noise = float(values[:-rank].mean())
    return vectors[:, -rank:] * np.sqrt(values[-rank:] - noise), noise


def log_likelihood(s: np.ndarray, factor: np.ndarray, diag: np.ndarray) -> float:
    """Of one row, without its constant (eq. 73)."""
    cov = factor @ factor.T + np.diag(diag)
    return -0.5 * float(np.trace(np.linalg.solve(cov, s)) + np.linalg.slogdet(cov)[1])
