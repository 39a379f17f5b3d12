"""Stochastic gradient ascent of the factor-analysis likelihood, row by row.

Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", Algorithm 1 and eqs 4.23-4.26.
With z = E[z | x] and M⁻¹ = Cov[z | x], r = x − F z and β = log ψ,

    ∇_F log p(x) = Ψ⁻¹ (r zᵀ − F M⁻¹),      ∇_β log p(x) = ½ [Ψ⁻¹ (r ∘ r + diag(F M⁻¹ Fᵀ)) − 1],
    F ← F + α ∇_F,   β ← β + α ∇_β,         αₜ = α/(1 + decay t).

The printed running mean subtracts itself (line 5); here rows are centred exactly. During the first
`warm_up` rows only the mean moves.

The plain steps (`SGA.plain()`) depend on the units: rows a hundred times larger make them a hundred times
less effective, rows a hundred times smaller make them diverge. With `scaled` the steps are taken in units
of the standard deviations v^{1/2} of the start, which multiplies ∇_F by diag v. No step is longer than
`longest` for β, and than `longest` standard deviations of a feature for its row of F, so a single outlying
row does not destroy F.

With an Optax `optimiser` the move in (F, β) is what it makes of the gradients of −log p, that of F in the
same units; the bounds hold for it too. Its own learning rate takes the place of α and the decay.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Setting, as_setting
from kalvi.rules.factor_analysis import factor_model
from kalvi.rules.factor_analysis.factor_model import Factor, Number, PerFeature, Rows, Scalar
from kalvi.rules.rule import Batch, IterativeRule, in_blocks


class SGAState(eqx.Module):
    """The Gaussian of the rows so far, and the squared units of the steps."""

    posterior: LowRankCovariance
    units: PerFeature
    rows: Scalar  # their total weight
    memory: Any = None  # of the optimiser


class SGA(IterativeRule[SGAState]):
    """Stochastic gradient ascent of the likelihood; blocks give the same result as single rows.

    Parameters
    ----------
    step_size : float, default 0.005
        α.
    decay : float, default 0.001
        Steps fall as 1/(1 + decay t).
    warm_up : float, default 100
        The number of first rows that move only the mean.
    longest : float, default 0.1
        A bound on each step of log ψ, and on that of F in standard deviations; infinity means none.
    scaled : bool, default True
        Whether steps are in units of the standard deviations of the start.
    centred : bool, default True
        Whether the mean is learned from the rows, exactly; otherwise it stays that of the start.
    optimiser : Optax transformation or None, default None
        In place of the plain steps: `optax.adam(1e-3)`.
    """

    step_size: Setting = eqx.field(converter=as_setting, default=0.005)
    decay: Setting = eqx.field(converter=as_setting, default=0.001)
    warm_up: Setting = eqx.field(converter=as_setting, default=100.0)
    longest: Setting = eqx.field(converter=as_setting, default=0.1)
    scaled: bool = eqx.field(static=True, default=True)
    centred: bool = eqx.field(static=True, default=True)
    optimiser: Any = eqx.field(static=True, default=None)

    @classmethod
    def plain(cls, step_size: Number = 0.001, decay: Number = 0, warm_up: Number = 100) -> "SGA":
        """The printed steps: in the units of the rows, and without a bound."""
        return cls(step_size, decay, warm_up, float("inf"), False)

    def init(self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None) -> SGAState:
        factor_model.refuse_empty_columns("SGA", prior.covariance.factor)
        units = prior.variance() if self.scaled else jnp.ones_like(prior.mean)
        factor, diag = prior.covariance.factor, prior.covariance.diag
        memory = None if self.optimiser is None else self.optimiser.init((factor, jnp.log(diag)))
        return SGAState(prior, units, jnp.zeros((), prior.mean.dtype), memory)

    def update(self, state: SGAState, batch: Batch, *, key: PRNGKeyArray | None = None) -> SGAState:
        rows = in_blocks(batch, 1)
        return jax.lax.scan(lambda s, row: (self._absorb(s, row), None), state, rows)[0]

    def _absorb(self, state: SGAState, row: Batch) -> SGAState:
        covariance = state.posterior.covariance
        factor, diag = covariance.factor, covariance.diag
        x, mean, rows, number, weight = factor_model.centre_one(
            state.posterior.mean, state.rows, row, self.centred
        )
        counts = weight * (rows > self.warm_up)
        by_factor, by_log_diag = gradients(factor, diag, x)
        slopes = linalg.scale_rows(counts * state.units, by_factor), counts * by_log_diag
        (move, stretch), memory = self._move(state, slopes, number, counts)
        reach = self.longest * jnp.sqrt(covariance.diagonal())
        length = jnp.sqrt(jnp.sum(move**2, axis=1))
        move = linalg.scale_rows(jnp.where(length > reach, reach / length, 1), move)
        factor = factor + move
        diag = diag * jnp.exp(jnp.clip(stretch, -self.longest, self.longest))
        return SGAState(
            LowRankCovariance(mean, factor, factor_model.floor_noise(factor, diag)),
            state.units,
            rows,
            memory,
        )

    def _move(self, state: SGAState, slopes, number: Scalar, counts: Scalar):
        """The moves of F and of log ψ, and the optimiser's memory; rows of weight 0 change neither."""
        if self.optimiser is None:
            size = self.step_size / (1 + self.decay * number)
            return jax.tree.map(lambda slope: size * slope, slopes), None
        covariance = state.posterior.covariance
        downhill = jax.tree.map(jnp.negative, slopes)
        here = covariance.factor, jnp.log(covariance.diag)
        after = self.optimiser.update(downhill, state.memory, here)
        before = jax.tree.map(jnp.zeros_like, slopes), state.memory
        return jax.tree.map(lambda new, old: jnp.where(counts > 0, new, old), after, before)


def gradients(factor: Factor, diag: PerFeature, x: Rows) -> tuple[Factor, PerFeature]:
    """The gradients of Σ log N(x; 0, F Fᵀ + diag ψ) over the rows, in F and in log ψ."""
    hidden, spread = factor_model.hidden_moments(factor, diag, x)
    rest, wide = x - hidden @ factor.T, len(x) * (factor @ spread)
    by_factor = linalg.scale_rows(1 / diag, rest.T @ hidden - wide)
    squares = jnp.sum(rest**2, axis=0) + jnp.sum(wide * factor, axis=1)
    return by_factor, (squares / diag - len(x)) / 2
