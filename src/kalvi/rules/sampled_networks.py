"""Blocks of rows for a network by sampled expectations.

Lambert, Bonnabel & Bach (2023), section 4.2.4, corrected. At draws θₖ of the posterior, with gₖ the
gradient of log p in f and Γₖ the Fisher information,

    Σ⁻¹ ← Σ⁻¹ + (1/K) Σ Jₖᵀ Γₖ Jₖ,        μ ← μ + Σ₊ (1/K) Σ Jₖᵀ (gₖ + Γₖ Jₖ (μ̂ − μ)),

with μ̂ = μ at first. A look-ahead draws around the new mean, with the covariance from before the block.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import Updatable
from kalvi.likelihoods.sites import at
from kalvi.numerics import linalg
from kalvi.numerics.rows import DenseRows, apply_curvature
from kalvi.predictors.models import Model


def linearised_at_draws(
    model: Model, theta: Float[Array, "k d"], x: Float[Array, "n ..."], y: Float[Array, "n *o"]
) -> tuple[Float[Array, "m *c"], DenseRows, Float[Array, "m *o"]]:
    """f, its rows and the label of each of n observations at each of k parameters, m = k n."""
    f, rows = jax.vmap(lambda one: _values_and_rows(model, one, x))(theta)
    rows = DenseRows(rows.reshape(-1, rows.shape[-1]), model.predictor.outputs)
    repeated = jnp.tile(y, (len(theta),) + (1,) * (y.ndim - 1))
    return f.reshape(-1, *f.shape[2:]), rows, repeated


def _values_and_rows(model: Model, theta: Float[Array, " d"], x: Float[Array, "n ..."]):
    found = model.predictor.linearise(theta, x)
    return found.mean, found.rows.matrix()


def absorb_sampled(
    model: Model, q: Updatable, block: Any, samples: int, look_ahead: int, key: PRNGKeyArray
) -> Updatable:
    """The explicit step with sampled expectations, and its look-aheads."""
    away = q.sample(key, samples) - q.mean[None, :]
    centre, posterior = q.mean, q
    for _ in range(1 + look_ahead):
        f, rows, y = linearised_at_draws(model, centre[None, :] + away, block.x, block.y)
        share = jnp.tile(block.discount * block.weight, samples) / samples
        _, slope, curvature = jax.vmap(lambda y, f: at(model.likelihood, y, f))(y, f)
        moved = apply_curvature(curvature, rows.times(centre - q.mean))
        pull = share.reshape(share.shape + (1,) * (f.ndim - 1)) * (slope + moved)
        scale = _roots(share, curvature)
        view = q.view(rows.matrix())
        posterior = view.absorb(_gained(view.cov, scale, pull.ravel()), scale)
        centre = posterior.mean
    return posterior


def _roots(share: Float[Array, " m"], curvature: Float[Array, "m *cc"]) -> Float[Array, "m *cc"]:
    """The curvature in the form that a structure takes: γ itself, or roots of matrices."""
    if curvature.ndim == 1:
        return share * curvature
    return jax.vmap(linalg.semidefinite_root)(share[:, None, None] * curvature)


def _gained(
    cov: Float[Array, "m m"], curvature: Float[Array, "n *cc"], pull: Float[Array, " m"]
) -> Float[Array, " m"]:
    """(I + Γ K)⁻¹ r, the gradient applied after the update of K."""
    roots = jnp.sqrt(curvature) if curvature.ndim == 1 else curvature
    mixed = linalg.scale_blocks_transposed(roots, cov)
    inner = linalg.scale_blocks_transposed(roots, mixed.T).T
    root = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    return pull - linalg.scale_blocks(roots, linalg.cho_solve(root, mixed @ pull))
