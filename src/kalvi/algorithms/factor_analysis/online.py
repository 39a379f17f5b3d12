"""Online EM for factor analysis: running averages of the sufficient statistics, row by row.

Cappé & Moulines (2009), "On-line expectation-maximization algorithm for latent data models", as in
appendix C of Lambert, Bonnabel & Bach (2023). With z = E[z | x], M⁻¹ = Cov[z | x] under the present (F, ψ):

    S₁ ← (1 − γ) S₁ + γ x ∘ x,   S₂ ← (1 − γ) S₂ + γ z xᵀ,   S₃ ← (1 − γ) S₃ + γ (M⁻¹ + z zᵀ),
    F = S₂ᵀ S₃⁻¹,   ψ = S₁ − diag(F S₂),   γₜ = (t + 1)^{−0.6}.

Three slips of the printed equations are put right: S₂ averages S₂ (108 has μ), S₁ the squares of the rows
(109 has u), and the averages (113-114) average themselves. The printed steps γ₀ = γ₁ = 1 erase the start;
here it counts, as statistics of its own model: S₁ = diag(F Fᵀ) + ψ, S₂ = Fᵀ, S₃ = I.

The result is an average of F and ψ over the path, never fed back: with `average_from` over the rows after
that many, otherwise with weights that grow as t³, for which the end need not be known.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.algorithms.base import Batch, Rule
from kalvi.algorithms.factor_analysis import common
from kalvi.algorithms.factor_analysis.common import Factor, PerFeature, Scalar
from kalvi.gaussians import LowRankCovariance
from kalvi.precision import is_traced

GROWTH = 3.0
"""The weight of a row's F and ψ in the average grows as this power of its number."""


class Statistics(NamedTuple):
    """S₁, S₂ᵀ and S₃."""

    squares: PerFeature
    cross: Factor
    hidden: Float[Array, "p p"]


Model = tuple[Factor, PerFeature]


class Averaged(eqx.Module):
    """The averaged Gaussian, and the statistics that the next row moves."""

    posterior: LowRankCovariance
    statistics: Statistics
    rows: Scalar  # their total weight


class OnlineEM(Rule[Averaged]):
    """Online EM with averaging, the result that of the rows one by one.

    Parameters
    ----------
    power : float, default 0.6
        Steps are (t + 1)^−power; between 0.5 and 1.
    average_from : float or None, default None
        The row after which averaging begins, half the rows in the paper; None averages with growing
        weights.
    centred : bool, default True
        Whether the mean is learned from the rows, exactly; otherwise it is that of the start.
    """

    power: Scalar = eqx.field(converter=jnp.asarray, default=0.6)
    average_from: Scalar | None = eqx.field(
        converter=lambda value: None if value is None else jnp.asarray(value), default=None
    )
    centred: bool = eqx.field(static=True, default=True)

    def init(self, prior: LowRankCovariance, *, key: PRNGKeyArray | None = None) -> Averaged:
        factor = prior.covariance.factor
        if not is_traced(factor) and not bool(jnp.all(jnp.any(factor != 0, axis=0))):
            raise ValueError(
                "OnlineEM needs a start whose factor has no empty column, for EM never fills one; "
                "give `start` a key."
            )
        hidden = jnp.eye(factor.shape[1], dtype=factor.dtype)
        statistics = Statistics(prior.covariance.diagonal(), factor, hidden)
        return Averaged(prior, statistics, jnp.zeros((), factor.dtype))

    def update(self, state: Averaged, batch: Batch, *, key: PRNGKeyArray | None = None) -> Averaged:
        carry = (state, _maximise(state.statistics))
        rows = common.in_blocks(batch, 1)
        return jax.lax.scan(lambda c, row: (self._absorb(c, row), None), carry, rows)[0][0]

    def _absorb(self, carry: tuple[Averaged, Model], row: Batch) -> tuple[Averaged, Model]:
        """The E-step and the M-step of one row; a row of weight w moves as far as w steps would."""
        (state, (factor, diag)), q = carry, carry[0].posterior
        centre = common.centre if self.centred else common.about
        x, mean, rows = centre(q.mean, state.rows, row)
        number = rows - 1 if self.centred else rows  # the first row says nothing but the mean
        told = jnp.where(number > 0, row.weight[0], 0)
        number = jnp.maximum(number, 1)
        step = 1 - (1 - (number + 1) ** -self.power) ** told
        hidden, spread = common.loading(factor, diag, x)
        fresh = Statistics(x[0] ** 2, x.T * hidden, spread + hidden.T @ hidden)
        statistics = jax.tree.map(lambda a, b: a + step * (b - a), state.statistics, fresh)
        model = _maximise(statistics)
        share = jnp.minimum(told * self._share(number), 1)
        average = (q.covariance.factor, q.covariance.diag)
        average = [a + share * (b - a) for a, b in zip(average, model, strict=True)]
        return Averaged(LowRankCovariance(mean, *average), statistics, rows), model

    def _share(self, number: Scalar) -> Scalar:
        """The weight of the newest F and ψ in their average."""
        if self.average_from is None:
            return (1 + GROWTH) / (number + GROWTH)
        return 1 / jnp.maximum(number - self.average_from, 1)


def _maximise(statistics: Statistics) -> Model:
    """F and ψ of the statistics: ψ is a Schur complement, kept above rounding by the floor."""
    factor = statistics.cross @ common.inverted(statistics.hidden)
    diag = statistics.squares - jnp.sum(factor * statistics.cross, axis=1)
    return factor, common.floored(factor, diag)
