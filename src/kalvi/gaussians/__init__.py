"""Gaussians q(θ) = N(μ, Σ) over a flat parameter vector, one class for each structure of the covariance.

Every structure gives its covariance and its precision as diag(d) ± F Fᵀ (`linalg`); the rest of the
interface follows from these. Structures that a stream can update (`Updatable`) have more methods:

    view(x):          the mean x μ and the covariance x Σ xᵀ of the predictors of a block of rows, with its
    absorb(c, γ):     Σ⁻¹ ← Σ⁻¹ + xᵀ diag(γ) x  and  μ ← μ + Σ xᵀ c, with shared work;
                      if every c rows belong to one observation, γ is the roots R (n, c, c) of their
                      curvatures instead, and Σ⁻¹ ← Σ⁻¹ + Σᵢ xᵢᵀ Rᵢ Rᵢᵀ xᵢ
    fade(λ, p₀, s):   Σ⁻¹ ← λ Σ⁻¹ + s Σ₀⁻¹                               (geometric drift)
    relax(a, p₀):     Σ ← a² Σ + (1 − a²) Σ₀                             (Ornstein–Uhlenbeck drift)

`Dense` keeps a square root R of Σ instead of Σ itself: after any number of updates in any precision R Rᵀ is
symmetric and positive, and variances of predictors are sums of squares.
"""

from kalvi.gaussians.dense import Dense
from kalvi.gaussians.diagonal import Diagonal
from kalvi.gaussians.gaussian import Gaussian, Updatable, View
from kalvi.gaussians.low_rank import LowRankPrecision
from kalvi.gaussians.low_rank_covariance import LowRankCovariance

__all__ = [
    "Dense",
    "Diagonal",
    "Gaussian",
    "LowRankCovariance",
    "LowRankPrecision",
    "Updatable",
    "View",
]
