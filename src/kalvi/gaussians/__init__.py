"""Gaussians q(θ) = N(μ, Σ) over a flat parameter vector, one class per covariance structure.

Every structure says what its covariance and its precision are as diag(d) ± F Fᵀ (`linalg`); the rest
of the protocol follows from that. Structures that a stream can update (`Updatable`) add verbs:

    view(x):          mean x μ and covariance x Σ xᵀ of the predictors of a block of rows, and its
    absorb(c, γ):     Σ⁻¹ ← Σ⁻¹ + xᵀ diag(γ) x  and  μ ← μ + Σ xᵀ c, sharing the work of the two;
                      where every c rows belong to one observation, γ is the roots R (n, c, c) of their
                      curvatures instead, and Σ⁻¹ ← Σ⁻¹ + Σᵢ xᵢᵀ Rᵢ Rᵢᵀ xᵢ
    fade(λ, p₀, s):   Σ⁻¹ ← λ Σ⁻¹ + s Σ₀⁻¹                               (geometric drift)
    relax(a, p₀):     Σ ← a² Σ + (1 − a²) Σ₀                             (Ornstein–Uhlenbeck drift)

`Dense` keeps a square root of Σ instead of Σ itself: after any number of updates in any precision the
covariance R Rᵀ is symmetric and positive, and variances of predictors are sums of squares.
"""

from kalvi.gaussians.base import Gaussian, Updatable, View
from kalvi.gaussians.dense import Dense
from kalvi.gaussians.diagonal import Diagonal
from kalvi.gaussians.low_rank import LowRankCovariance, LowRankPrecision

__all__ = [
    "Dense",
    "Diagonal",
    "Gaussian",
    "LowRankCovariance",
    "LowRankPrecision",
    "Updatable",
    "View",
]
