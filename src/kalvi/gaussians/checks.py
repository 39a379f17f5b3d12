"""Checks and conversions of the arguments of the Gaussians' constructors."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kalvi.numerics import linalg
from kalvi.numerics.precision import is_traced
from kalvi.system.forks import refuse_inherited_backend


def floating(*arrays):
    """The arguments as JAX arrays of one floating dtype."""
    refuse_inherited_backend()
    arrays = [jnp.asarray(a) for a in arrays]
    dtype = (
        jnp.result_type(float, *arrays)
        if not all(jnp.issubdtype(a.dtype, jnp.floating) for a in arrays)
        else jnp.result_type(*arrays)
    )
    return [a.astype(dtype) for a in arrays]


def low_rank_parts(mean, factor, diag, name: str):
    """The mean and the matrix F Fᵀ + diag, checked and converted to one dtype."""
    mean, factor, diag = floating(mean, factor, diag)
    d = mean.shape[0] if mean.ndim == 1 else -1
    shapes = factor.ndim == 2 and factor.shape[0] == d and diag.shape == (d,)
    need(
        shapes,
        f"{name} needs a mean of shape (d,), a factor of shape (d, p) and a diag of shape (d,)",
        mean,
        factor,
        diag,
    )
    positive(diag, "diag")
    return mean, linalg.LowRankPlusDiagonal(diag, factor)


def need(condition: bool, message: str, *arrays) -> None:
    """Raise an error about shapes unless the condition holds; the message names the shapes that came."""
    if not condition:
        got = ", ".join(str(np.shape(a)) for a in arrays)
        raise ValueError(f"{message}; got {got}.")


def positive(values: Array, name: str) -> None:
    """Refuse values that are not positive and finite, unless they are being traced."""
    if is_traced(values):
        return
    bad = np.flatnonzero(~(np.isfinite(values) & (np.asarray(values) > 0)))
    if bad.size:
        raise ValueError(
            f"{name} must be positive and finite; entry {bad[0]} is {np.asarray(values)[bad[0]]}."
        )


def checked_root(cov: Array) -> Array:
    """The Cholesky root of a covariance that is symmetric and positive definite."""
    root = linalg.cholesky((cov + cov.T) / 2)
    if is_traced(root):
        return root
    size = float(jnp.max(jnp.abs(cov))) if cov.size else 0.0
    skew = float(jnp.max(jnp.abs(cov - cov.T))) if cov.size else 0.0
    if skew > 1e3 * float(jnp.finfo(cov.dtype).eps) * size:
        raise ValueError(f"cov must be symmetric; it differs from its transpose by {skew:.3g}.")
    if not np.all(np.isfinite(root)):
        raise ValueError(
            "cov must be positive definite and finite; its Cholesky factor does not exist."
        )
    return root
