"""Online EM for factor analysis: running averages of the sufficient statistics, row by row.

Cappé & Moulines (2009), "On-line expectation-maximization algorithm for latent data models", as in
appendix C of Lambert, Bonnabel & Bach (2023); and Brownlie (2021), "Extending the Bayesian deep learning
method MultiSWAG", Algorithm 2. With z = E[z | x], M⁻¹ = Cov[z | x] under the present (F, ψ):

    S₁ ← (1 − γ) S₁ + γ x ∘ x,   S₂ ← (1 − γ) S₂ + γ z xᵀ,   S₃ ← (1 − γ) S₃ + γ (M⁻¹ + z zᵀ),
    F = S₂ᵀ S₃⁻¹,   ψ = S₁ − diag(F S₂),   γₜ = (c/(t + c − 1 + n₀))^power.

    Cappé & Moulines   c = 1, n₀ = 1, power 0.6, the path averaged: `OnlineEM()`
    Algorithm 2        c = 1, n₀ = 0, power 1, and S₃ is the present M⁻¹ plus the average of z zᵀ:
                       `OnlineEM.incremental()`
    forgetting         c = 2, n₀ = 0, power 1, so that a row counts in proportion to its number:
                       `OnlineEM.forgetting()`

Averages with equal weights never forget the first rows as a poor start explained them. Steps of t^−0.6
forget them, but are noisy below about ten thousand rows. Weights that grow with t are better than both at
any length.

Three slips in the first paper's equations are corrected: S₂ averages S₂ (108 has μ), S₁ the squares of
the rows (109 has u), and the averages (113-114) average themselves. Its steps γ₀ = γ₁ = 1 erase the start;
here it counts as n₀ rows, by the statistics of its own model: S₁ = diag(F Fᵀ) + ψ, S₂ = Fᵀ, S₃ = I.
Algorithm 2 as printed has a first row of zero and then 0/0; here rows are centred exactly, and the first
row only gives the mean.

During the first `warm_up` rows the E-step uses the start, so that together they make one iteration of batch
EM.

The result is an average of F and ψ over the path, which is not fed back: over the rows after
`average_from`, or otherwise with weights that grow as t³, for which the end need not be known.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics.namespaces import Setting, as_setting
from kalvi.rules.factor_analysis import factor_model
from kalvi.rules.factor_analysis.factor_model import Factor, Number, PerFeature, Scalar
from kalvi.rules.rule import Batch, StreamRule, in_blocks

GROWTH = 3.0
"""The weight of a row's F and ψ in the average grows as this power of its number."""
NOT_AVERAGED = float("inf")
"""The value of `average_from` that gives the last F and ψ themselves."""


class EMStatistics(NamedTuple):
    """S₁, S₂ᵀ and S₃; S₃ is without M⁻¹ if that of the current model is used."""

    squares: PerFeature
    cross: Factor
    hidden: Float[Array, "p p"]


class FactorParameters(NamedTuple):
    """F and ψ."""

    factor: Factor
    diag: PerFeature


class OnlineEMState(eqx.Module):
    """The averaged Gaussian, the statistics, and the model that reads the next row."""

    posterior: LowRankCovariance
    statistics: EMStatistics
    present: FactorParameters
    rows: Scalar  # their total weight


class OnlineEM(StreamRule[OnlineEMState]):
    """Online EM with averaging; blocks give the same result as single rows.

    Parameters
    ----------
    power : float, default 0.6
        Steps are (c/(t + c − 1 + n₀))^power; between 0.5 and 1.
    average_from : float or None, default None
        The row after which averaging begins, in the paper half of the rows; None averages with growing
        weights, infinity does not average.
    pace : float, default 1
        c: with power 1 the statistics weight row t by t^{c−1}.
    prior_rows : float, default 1
        n₀: the number of rows that the statistics of the start count as.
    warm_up : float, default 0
        The E-step uses the start until so many rows have come.
    present_spread : bool, default False
        Whether S₃ uses the current Cov[z | x] instead of an average.
    centred : bool, default True
        Whether the mean is learned from the rows, exactly; otherwise it stays that of the start.
    """

    power: Setting = eqx.field(converter=as_setting, default=0.6)
    average_from: Scalar | None = eqx.field(converter=as_setting, default=None)
    pace: Setting = eqx.field(converter=as_setting, default=1.0)
    prior_rows: Setting = eqx.field(converter=as_setting, default=1.0)
    warm_up: Setting = eqx.field(converter=as_setting, default=0.0)
    present_spread: bool = eqx.field(static=True, default=False)
    centred: bool = eqx.field(static=True, default=True)

    @classmethod
    def incremental(cls, warm_up: Number = 100, centred: bool = True) -> "OnlineEM":
        """Algorithm 2 of Brownlie (2021)."""
        return cls(1.0, NOT_AVERAGED, 1.0, 0.0, warm_up, True, centred)

    @classmethod
    def forgetting(cls, warm_up: Number = 100, centred: bool = True) -> "OnlineEM":
        """Statistics that weight the rows in proportion to their numbers; the result is the last F and
        ψ."""
        return cls(1.0, NOT_AVERAGED, 2.0, 0.0, warm_up, False, centred)

    def init(self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None) -> OnlineEMState:
        factor = prior.covariance.factor
        factor_model.refuse_empty_columns("OnlineEM", factor)
        hidden = jnp.eye(factor.shape[1], dtype=factor.dtype)
        statistics = EMStatistics(prior.covariance.diagonal(), factor, hidden)
        present = FactorParameters(factor, prior.covariance.diag)
        return OnlineEMState(prior, statistics, present, jnp.zeros((), factor.dtype))

    def update(
        self, state: OnlineEMState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> OnlineEMState:
        rows = in_blocks(batch, 1)
        return jax.lax.scan(lambda c, row: (self._absorb(c, row), None), state, rows)[0]

    def _absorb(self, state: OnlineEMState, row: Batch) -> OnlineEMState:
        """The E-step and the M-step of one row; a row of weight w moves as far as w rows would."""
        q, present = state.posterior, state.present
        x, mean, rows, number, weight = factor_model.centre_one(
            q.mean, state.rows, row, self.centred
        )
        step = 1 - (1 - self._step(number)) ** weight
        hidden, spread = factor_model.hidden_moments(*present, x)
        second = hidden.T @ hidden if self.present_spread else spread + hidden.T @ hidden
        fresh = EMStatistics(x[0] ** 2, x.T * hidden, second)
        statistics = jax.tree.map(lambda a, b: a + step * (b - a), state.statistics, fresh)
        model = _maximise(statistics, spread if self.present_spread else 0 * spread)
        # identical rows would make F = 0, where EM is stuck
        filled = jnp.all(jnp.any(model.factor != 0, axis=0))
        model = jax.tree.map(lambda a, b: jnp.where(filled, b, a), present, model)
        share = jnp.minimum(weight * self._share(number), 1)
        average = (q.covariance.factor, q.covariance.diag)
        average = [a + share * (b - a) for a, b in zip(average, model, strict=True)]
        moves = (weight > 0) & (rows >= self.warm_up)
        present = jax.tree.map(lambda a, b: jnp.where(moves, b, a), present, model)
        return OnlineEMState(LowRankCovariance(mean, *average), statistics, present, rows)

    def _step(self, number: Scalar) -> Scalar:
        """The step γ by which a row moves the statistics towards its own."""
        return (self.pace / (number + self.pace - 1 + self.prior_rows)) ** self.power

    def _share(self, number: Scalar) -> Scalar:
        """The weight of the newest F and ψ in their average."""
        if self.average_from is None:
            return (1 + GROWTH) / (jnp.maximum(number - self.warm_up, 1) + GROWTH)
        return 1 / jnp.maximum(number - self.average_from, 1)


def _maximise(statistics: EMStatistics, spread: Float[Array, "p p"]) -> FactorParameters:
    """F and ψ from the statistics; ψ is a Schur complement, which the floor keeps above rounding."""
    factor = statistics.cross @ factor_model.invert_positive(statistics.hidden + spread)
    diag = statistics.squares - jnp.sum(factor * statistics.cross, axis=1)
    return FactorParameters(factor, factor_model.floor_noise(factor, diag))
