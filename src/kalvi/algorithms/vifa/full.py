"""Variational inference with a full covariance, for networks that are small enough: passes over all rows.

The predictors are linearised at the mean c of q = N(c, S), where they are Gaussian and E[log p] has
integrals. A pass adds up H = Σ Jᵀ Γ J and the force Σ Jᵀ g over blocks; at its end

    S⁻¹ ← diag α + H,        c ← c + ρ S (Σ Jᵀ g − α c),

the natural-gradient step of the bound of the linearised model, of length 1 in S⁻¹. ρ = 0 leaves the mean to
whoever trains it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi import linalg
from kalvi.algorithms.base import Batch, Rule
from kalvi.algorithms.vifa.gradients import linearised
from kalvi.algorithms.vifa.rule import need_predictor
from kalvi.gaussians import Dense
from kalvi.models import Model

Scalar = Float[Array, ""]


class Pass(eqx.Module):
    """q, and what the rows of this pass have said at it."""

    posterior: Dense
    curvature: Float[Array, "d d"]  # H
    force: Float[Array, " d"]
    value: Scalar  # E log p
    rows: Scalar


class FullVI(Rule[Pass]):
    """Passes over all rows: `update` for the blocks of one, `turn` at its end.

    Parameters
    ----------
    model : Model
    prior_precision : float or array of shape (d,)
        α of the prior N(0, diag α⁻¹).
    step_size : float, default 1
        ρ.
    """

    model: Model
    prior_precision: Array = eqx.field(converter=jnp.asarray, default=1.0)
    step_size: Scalar = eqx.field(converter=jnp.asarray, default=1.0)

    def __check_init__(self):
        need_predictor(self.model, "FullVI")

    def init(self, prior: Dense, *, key: PRNGKeyArray | None = None) -> Pass:
        """From a first q."""
        d, zero = prior.dim, jnp.zeros((), prior.mean.dtype)
        return Pass(prior, jnp.zeros((d, d), zero.dtype), jnp.zeros_like(prior.mean), zero, zero)

    def update(self, state: Pass, batch: Batch, *, key: PRNGKeyArray | None = None) -> Pass:
        total = jnp.sum(batch.weight)
        curved = linearised(self.model, state.posterior, batch, total)
        return Pass(
            state.posterior,
            state.curvature + curved.rows.T @ curved.bend(curved.rows),
            state.force + curved.force(),
            state.value + curved.value,
            state.rows + total,
        )

    def turn(self, state: Pass) -> Pass:
        """The next q, and nothing said of it yet."""
        mean = state.posterior.mean
        alpha = jnp.broadcast_to(self.prior_precision, mean.shape).astype(mean.dtype)
        precision = jnp.diag(alpha) + (state.curvature + state.curvature.T) / 2
        # scaled to a unit diagonal, so that rounding is a share of each parameter's own precision
        size = jax.lax.rsqrt(jnp.diagonal(precision))
        root = linalg.steady_cholesky(precision * size[:, None] * size[None, :])
        half = linalg.inverse_root(root) * size[:, None]
        step = half @ (half.T @ (state.force - alpha * mean))
        return self.init(Dense.from_root(mean + self.step_size * step, half))
