"""Random factor-analysis models for tests.

Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", Algorithm 4: with s² ~ U(a, b) and
V the leading eigenvectors of A Aᵀ, A normal,

    mean ~ N(0, I),    F = diag(s) V,    ψ ~ U(0, max s²).

V has the distribution of Q in Q R = A, which is drawn instead, without a d × d array. The paper calls the
range [a, b] the spectrum, but s multiplies the many rows of V: if d is large, all eigenvalues of F Fᵀ are
near (a + b)/2, and [a, b] sets the scale of the rows rather than the condition of their covariance.
"""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.rules.factor_analysis.factor_model import Number, random_orthonormal


def random_factor_model(
    dim: int, rank: int, *, spectrum: tuple[Number, Number] = (1, 10), key: PRNGKeyArray
) -> LowRankCovariance:
    """A Gaussian N(mean, F Fᵀ + diag ψ) drawn by Algorithm 4; `sample` gives rows of it."""
    if not 1 <= rank <= dim:
        raise ValueError(f"random_factor_model needs 1 ≤ rank ≤ dim; got rank={rank}, dim={dim}.")
    low, high = spectrum
    if not 0 <= low <= high < float("inf") or high == 0:
        raise ValueError(
            f"random_factor_model needs a spectrum (a, b) with 0 ≤ a ≤ b and b > 0; got {spectrum}."
        )
    keys = jr.split(key, 4)
    mean = jr.normal(keys[0], (dim,))
    squares = jr.uniform(keys[1], (dim,), minval=low, maxval=high)
    factor = linalg.scale_rows(jnp.sqrt(squares), random_orthonormal(dim, rank, key=keys[2]))
    share = 1 - jr.uniform(keys[3], (dim,))  # in (0, 1]: no variance is zero
    return LowRankCovariance(mean, factor, share * jnp.max(squares))
