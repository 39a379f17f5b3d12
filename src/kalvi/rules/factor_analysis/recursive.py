"""Recursive factor analysis of a covariance, with one projection a block.

Lambert, Bonnabel & Bach (2023), "The limited-memory recursive variational Gaussian approximation",
sections 3.1, 3.2 and 5.1. After t rows, b more update the covariance S = F Fᵀ + diag ψ:

    S ← project(α S + β Σ x xᵀ),    α = (t + n₀)/(t + b + n₀),    β = 1/(t + b + n₀).

The start S₀ counts as n₀ rows. The paper has n₀ = 0, so the first step, α = 0, forgets S₀: F collapses to
the single direction of the first row, from which EM recovers only by rounding errors. Here n₀ = 0 means
`LEAST_PRIOR_ROWS`.

With `projections.EM` and blocks of one row this is Algorithm 1. With `projections.Eigen`, which commutes
with a change of scale, it equals adding up (t + n₀) S with α = β = 1 and dividing at the end. It needs no
random start and ends within a few per cent of the optimum, so it is the default.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import projections
from kalvi.numerics.namespaces import Setting, as_setting
from kalvi.numerics.projections import Eigen, Projection
from kalvi.rules.factor_analysis import factor_model
from kalvi.rules.factor_analysis.factor_model import Scalar
from kalvi.rules.rule import Batch, StreamRule, in_blocks

LEAST_PRIOR_ROWS = 1e-6
"""The start counts as at least this many rows, so that the first step is defined."""


class RecursiveFAState(eqx.Module):
    """The Gaussian of the rows so far."""

    posterior: LowRankCovariance
    rows: Scalar  # their total weight


class RecursiveFA(StreamRule[RecursiveFAState]):
    """Streaming factor analysis: a Gaussian N(mean, F Fᵀ + diag ψ) for the rows themselves.

    Parameters
    ----------
    projection : Projection, default Eigen(polish=2)
        The method that brings the covariance back to F Fᵀ + diag ψ after a block.
    prior_rows : float, default 1
        The number of rows that the start counts as.
    centred : bool, default True
        Whether the mean is learned from the rows, exactly; otherwise it stays that of the start.
    block_size : int, default 16
        The number of rows that one projection absorbs.
    """

    projection: Projection = Eigen(polish=2)
    prior_rows: Setting = eqx.field(converter=as_setting, default=1.0)
    centred: bool = eqx.field(static=True, default=True)
    block_size: int = eqx.field(static=True, default=16)

    def init(
        self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None
    ) -> RecursiveFAState:
        return RecursiveFAState(prior, jnp.zeros((), prior.mean.dtype))

    def update(
        self, state: RecursiveFAState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> RecursiveFAState:
        def advance(state, block):
            some = jnp.any(block.weight > 0)
            return jax.lax.cond(some, lambda: self._absorb(state, block), lambda: state), None

        return jax.lax.scan(advance, state, in_blocks(batch, self.block_size))[0]

    def _absorb(self, state: RecursiveFAState, block: Batch) -> RecursiveFAState:
        q = state.posterior
        centre = factor_model.centre if self.centred else factor_model.subtract_mean
        x, mean, rows = centre(q.mean, state.rows, block)
        prior_rows = jnp.maximum(self.prior_rows, LEAST_PRIOR_ROWS).astype(rows.dtype)
        total = rows + prior_rows
        keep, scale = (state.rows + prior_rows) / total, jnp.sqrt(block.weight / total)
        factor, diag = q.covariance.factor, q.covariance.diag
        gram = projections.gram(factor, diag, x)
        factor, diag = self.projection(
            projections.ProjectionTarget(factor, diag, x, scale, gram, keep)
        )
        return RecursiveFAState(
            LowRankCovariance(mean, factor, factor_model.floor_noise(factor, diag)), rows
        )
