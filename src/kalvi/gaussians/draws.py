"""Draws of Gaussians whose covariance is of low rank plus a diagonal."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.numerics.linalg import LowRankPlusDiagonal


def draw_terms(
    matrix: LowRankPlusDiagonal, key: PRNGKeyArray, n: int
) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Draws of N(0, F Fᵀ) and of N(0, diag); their sums have covariance F Fᵀ + diag."""
    factor, diag = matrix.factor, matrix.diag
    key_factor, key_diag = jr.split(key)
    hidden = jr.normal(key_factor, (n, factor.shape[1]), diag.dtype)
    noise = jr.normal(key_diag, (n, len(diag)), diag.dtype)
    return hidden @ factor.T, noise * jnp.sqrt(diag)[None, :]
