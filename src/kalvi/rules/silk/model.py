"""The state of a smooth binary factorisation: two sides, each with a prior and a posterior.

Document 004, sections 1 and 3. Logits ψ = ⟨uᵣ, α_c⟩ of rows and columns, Ornstein–Uhlenbeck priors of both,

    ELBO = Σ E log p(x | ψ) − KL(q(u) ‖ p(u)) − KL(q(α) ‖ p(α)),
    KL   = ½ (E eᵀΣ⁻¹e − n k + log|Σ| + log|precision of q|),     e = u − μ.

(The document's L_α has N_r for N_c and the sign of the entropy reversed.)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.numerics.namespaces import AnyArray
from kalvi.rules.silk.moments import Moments
from kalvi.rules.silk.observed import Observed, Statistics
from kalvi.rules.silk.posteriors import MeanSolver, Posterior, SideSites


class Side(eqx.Module):
    """The factors of the rows or of the columns: the document's Kalman parameters."""

    prior: OrnsteinUhlenbeck
    posterior: Posterior
    spot: Int[Array, " r"] | None = None  # the location of each row, if rows share locations
    ordered: bool = eqx.field(static=True, default=True)  # False: no smoothness, ρ = ∞

    def with_prior(self, prior: OrnsteinUhlenbeck) -> "Side":
        return Side(prior, self.posterior, self.spot, self.ordered)

    def with_posterior(self, posterior: Posterior) -> "Side":
        return Side(self.prior, posterior, self.spot, self.ordered)

    def moments(self) -> Moments:
        """The moments of the factors of every row."""
        found = self.posterior.moments()
        return found if self.spot is None else found.at(self.spot)

    def squares(self) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
        """E eᵣ² and E (eᵣ₊₁ − eᵣ)² about the prior mean."""
        return second_moments(self.posterior, self.prior.mean)

    def kl(self) -> Float[Array, ""]:
        """KL(posterior ‖ prior)."""
        quadratic = jnp.sum(self.prior.quadratic(*self.squares()) + self.prior.logdet())
        return (quadratic - self.posterior.mean.size + self.posterior.log_precision) / 2


class Silk(eqx.Module):
    """A factorisation: the factors of the rows and of the columns."""

    rows: Side
    cols: Side

    def transpose(self) -> "Silk":
        """The factorisation with rows and columns swapped."""
        return Silk(self.cols, self.rows)


def second_moments(
    posterior: Posterior, mean: Float[Array, " k"]
) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
    """E (u − mean)² of every location and of the steps between them."""
    square = (posterior.mean - mean[None]) ** 2 + posterior.var
    return square, jnp.diff(posterior.mean, axis=0) ** 2 + posterior.step_var


def statistics(silk: Silk, observed: Observed) -> Statistics:
    """The statistics of the rows from all entries, at the best Γ."""
    rows, cols = silk.rows.moments(), silk.cols.moments()
    return observed.statistics(rows, cols, silk.rows.posterior.adds_mean)


def sites(side: Side, found: Statistics) -> SideSites:
    """The statistics of each location: the sums over the rows that share it."""
    spot, n = side.spot, side.prior.n
    if spot is None:
        return SideSites(found.pull, found.curvature)

    def gathered(a: Array) -> Array:
        return jax.ops.segment_sum(a, spot, n, indices_are_sorted=True)

    return SideSites(gathered(found.pull), gathered(found.curvature))


def update_rows(silk: Silk, found: Statistics, solver: MeanSolver) -> Silk:
    """The posterior of the rows, given the statistics of their entries."""
    side = silk.rows
    posterior = side.posterior.update(side.prior, sites(side, found), solver)
    return Silk(side.with_posterior(posterior), silk.cols)


def elbo(silk: Silk, observed: Observed) -> Float[Array, ""]:
    """The bound on the log evidence, at the best Γ."""
    return jnp.sum(statistics(silk, observed).loss) - silk.rows.kl() - silk.cols.kl()


def double_sum(values: Float[AnyArray, " n"]) -> float:
    """The sum in float64, because bounds of large matrices have more digits than a float32."""
    return float(np.sum(np.asarray(values, np.float64)))
