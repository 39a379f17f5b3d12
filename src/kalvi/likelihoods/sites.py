"""How one observation updates the distribution N(m, V) of its predictors f, for one predictor or several.
For one predictor m and V are numbers; for c predictors they are a vector and a c × c matrix. The formulas
here take both, so that a scheme need not distinguish them:

    gain_after   ξ = (I + Γ V)⁻¹ g             a gradient applied after the update of V
    narrowed     (V⁻¹ + Γ)⁻¹                   the covariance after it
    at           log p, its gradient and the Fisher information at one f
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float

from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar

Predictors = Float[Array, "*c"]  # a number, or a vector of c
Between = Float[Array, "*cc"]  # a number, or a c × c matrix
Matrix = Float[Array, "c c"]


class Expected(NamedTuple):
    """Expectations of log p(y | f) and its derivatives under f ~ N(mean, var)."""

    value: Scalar  # E[log p]
    gradient: Predictors  # E[∇ log p]
    curvature: Between  # −E[∇² log p], positive semidefinite for log-concave p


class Site(NamedTuple):
    """The update of f by one observation: mean ← mean + var·step, var⁻¹ ← var⁻¹ + curvature."""

    step: Predictors
    curvature: Between
    solved: Bool[Array, ""]


def at(likelihood: Any, y: Float[Array, "*o"], f: Predictors) -> Expected:
    """The terms at a given f: log-probability, gradient, and the Fisher information as curvature."""
    value, gradient = jax.value_and_grad(lambda f: likelihood.log_prob(f, y))(f)
    information = jnp.asarray(likelihood.information(f), gradient.dtype)
    return Expected(value, gradient, information)


def gain_after(gradient: Predictors, curvature: Between, cov: Between) -> Site:
    """The site with step (I + Γ V)⁻¹ g: a gradient applied after the update of V."""
    if gradient.ndim == 0:
        return Site(gradient / (1 + curvature * cov), curvature, jnp.asarray(True))
    half = shrinkage(linalg.semidefinite_root(curvature), cov)

    def solve(g: Array) -> Array:
        return g - half @ (half.T @ (cov @ g))

    step = solve(gradient)
    # corrects what cancelled in the subtraction if Γ V is large
    step = step + solve(gradient - step - curvature @ (cov @ step))
    return Site(step, curvature, jnp.asarray(True))


def narrowed(cov: Between, curvature: Between) -> Between:
    """(V⁻¹ + Γ)⁻¹ = A (I + Aᵀ Γ A)⁻¹ Aᵀ, A Aᵀ = V."""
    if cov.ndim == 0:
        return cov / (1 + curvature * cov)
    root = linalg.semidefinite_root(cov)
    inner = root.T @ curvature @ root
    lower = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    half = jsl.solve_triangular(lower, root.T, lower=True)
    return half.T @ half


def shrinkage(root: Matrix, cov: Matrix) -> Matrix:
    """Q with Q Qᵀ = Γ (I + V Γ)⁻¹, given R Rᵀ = Γ: the observation lowers V by V Q Qᵀ V."""
    inner = root.T @ cov @ root
    lower = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    return jsl.solve_triangular(lower, root.T, lower=True).T


def product(matrix: Between, vector: Predictors) -> Predictors:
    """Γ v."""
    return matrix * vector if vector.ndim == 0 else matrix @ vector


def positive_part(curvature: Float[Array, "n *cc"]) -> Float[Array, "n *cc"]:
    """The curvature of each observation without its negative part."""
    if curvature.ndim == 1:
        return jnp.maximum(curvature, 0)
    values, vectors = jnp.linalg.eigh(curvature)
    return jnp.einsum("nij,nj,nkj->nik", vectors, jnp.maximum(values, 0), vectors)
