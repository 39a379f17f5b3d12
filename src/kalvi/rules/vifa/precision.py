"""The counterpart of VIFA: q = N(c, (W Wᵀ + diag ψ)⁻¹), with a precision of low rank plus a diagonal.

Factors in the covariance describe directions that the data leave open, factors in the precision those that
the data determine; for networks the second are more useful. The natural gradient of the bound moves the
precision itself (Khan & Rue 2023, "The Bayesian learning rule"): with Λ = diag α + (N/M) Σ Jᵀ Γ J of a
batch,

    W Wᵀ + Ψ ← project((1 − ρ)(W Wᵀ + Ψ) + ρ Λ),      c ← c + ρ (W Wᵀ + Ψ)⁻¹ (∇ log p − α (c − m₀)),

with the projection of L-RVGA and ρₜ = ρ₀/(1 + t/τ). Before the projection the new precision is at least ρ
Λ, so the step of c cannot overshoot a quadratic bound. It could if the projection drops stiff directions,
so the step is limited to 1/λ_max((W Wᵀ + Ψ)⁻¹ Λ).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import Gaussian, LowRankPrecision
from kalvi.numerics import linalg, projections
from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.numerics.precision import is_traced
from kalvi.rules.rule import Batch, IterativeRule
from kalvi.rules.vifa.gradients import linearise_batch
from kalvi.rules.vifa.rule import Descent, in_batches, need_predictor
from kalvi.rules.vifa.steps import stiffness
from kalvi.rules.visits import BatchVisit


class PrecisionVI(IterativeRule[Descent]):
    """Natural-gradient variational inference with a low-rank precision, batch by batch.

    Parameters
    ----------
    model : Model
    n_samples : float
        N, the number of rows of which a batch is a sample.
    prior_precision : float or array of shape (d,)
        α of the prior N(prior_mean, diag α⁻¹); the mean is 0 unless given.
    step_size, decay : float
        ρ₀ (below 1) and τ.
    mean_step : float, default 1
        A factor on the step of c; 0 leaves the mean unchanged, for instance if it is trained elsewhere.
    draws : int or None, default None
        The number of draws of θ for the expectations; None linearises the network at the mean and
        integrates.
    batch_size : int or None, default None
        As in `VIFA`.
    """

    model: Any
    n_samples: Setting = eqx.field(converter=as_setting)
    prior_precision: Setting = eqx.field(converter=as_setting, default=1.0)
    prior_mean: Setting = eqx.field(converter=as_setting, default=0.0)
    step_size: Setting = eqx.field(converter=as_setting, default=0.5)
    decay: Setting = eqx.field(converter=as_setting, default=30.0)
    mean_step: Setting = eqx.field(converter=as_setting, default=1.0)
    draws: int | None = eqx.field(static=True, default=None)
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        need_predictor(self.model, "PrecisionVI")
        if not is_traced(self.step_size) and not 0 < float(self.step_size) < 1:
            raise ValueError(f"step_size must be between 0 and 1; got {float(self.step_size):g}.")

    def init(self, prior: Gaussian, *, key: PRNGKeyArray | None = None) -> Descent:
        """The state at a first q, such as the prior's covariance around a trained mean."""
        if not isinstance(prior, LowRankPrecision):
            raise TypeError(
                f"PrecisionVI starts from a LowRankPrecision; got {type(prior).__name__}."
            )
        return Descent(prior, None, jnp.zeros((), jnp.int32))

    def update(self, state: Descent, batch: Batch, *, key: PRNGKeyArray | None = None) -> Descent:
        return in_batches(lambda *args: self._descend(*args), state, batch, self.batch_size, key)

    def _descend(self, state: Descent, batch: Batch, key: PRNGKeyArray) -> Descent:
        q: Any = state.posterior
        total = jnp.asarray(self.n_samples, q.mean.dtype)
        curved = linearise_batch(self.model, q, batch, total, draws=self.draws, key=key)
        rate = self.step_size / (1 + state.steps / self.decay).astype(q.mean.dtype)
        alpha = jnp.broadcast_to(self.prior_precision, q.mean.shape).astype(q.mean.dtype)
        factor, diag = blend_precision(q, curved, alpha, rate)
        force = curved.force() - alpha * (q.mean - self.prior_mean)
        covariance = linalg.LowRankPlusDiagonal(diag, factor).inverse()
        length = jnp.minimum(rate, 1 / stiffness(covariance, curved, alpha))
        step = (self.mean_step * length).astype(rate.dtype) * covariance.matvec(force)
        moved = q.with_parts(q.mean + step, factor, diag)
        return Descent(moved, None, state.steps + 1)


def blend_precision(
    q: LowRankPrecision, curved: BatchVisit, alpha: Float[Array, " d"], rate: Scalar
) -> tuple[Float[Array, "d p"], Float[Array, " d"]]:
    """The projection of (1 − ρ)(W Wᵀ + Ψ) + ρ (diag α + H)."""
    keep = 1 - rate
    factor, diag = q.precision.factor, q.precision.diag + rate / keep * alpha
    x = unit_rows(curved)
    scale = jnp.full(x.shape[0], jnp.sqrt(rate))
    gram = projections.gram(factor, diag, x)
    return q.projection(projections.ProjectionTarget(factor, diag, x, scale, gram, keep))


def unit_rows(curved: BatchVisit) -> Float[Array, "m d"]:
    """Rows whose outer products add up to H: Rᵀ J, with R Rᵀ = Γ for each observation."""
    curvature = curved.curvature
    if curvature.ndim == 1:
        scale = jnp.sqrt(jnp.maximum(curvature, 0))
    else:
        scale = jax.vmap(linalg.semidefinite_root)(curvature)
    return linalg.scale_blocks_transposed(scale, curved.rows.matrix())
