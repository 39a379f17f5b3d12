"""Coordinate ascent for smooth binary factorisation.

Document 004, sections 4 to 6. A sweep brings Γ to its best, the rows to theirs given the columns, the prior
of the rows, Γ again, the columns, and their prior. The bound never falls.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.algorithms.base import Rule
from kalvi.algorithms.silk.model import Silk, double_sum, statistics, update_rows
from kalvi.algorithms.silk.observed import Observed
from kalvi.algorithms.silk.posteriors import Exact, MeanSolver
from kalvi.algorithms.silk.priors import learned


class Swept(eqx.Module):
    """A factorisation, and the parts of the bound before the last sweep."""

    silk: Silk
    loss: Float[Array, " r"]  # of every row, Σ E log p(x | ψ)
    kl: Float[Array, " 2"]  # of the rows and of the columns
    sweeps: Int[Array, ""]

    @property
    def elbo(self) -> float:
        """The bound before the last sweep, summed in float64."""
        return double_sum(self.loss) - double_sum(self.kl)


class SILK(Rule[Swept]):
    """One sweep over the observed entries a call."""

    solver: MeanSolver = eqx.field(default_factory=Exact)
    learn_prior: bool = eqx.field(static=True, default=True)

    def init(self, prior: Silk, *, key: PRNGKeyArray | None = None) -> Swept:
        """From a first guess, such as `start` makes."""
        dtype = prior.rows.posterior.mean.dtype
        n = prior.rows.prior.n if prior.rows.spot is None else len(prior.rows.spot)
        nothing = jnp.zeros(n, dtype), jnp.zeros(2, dtype)
        return Swept(prior, *nothing, jnp.zeros((), jnp.int32))

    def update(self, state: Swept, batch: Any, *, key: PRNGKeyArray | None = None) -> Swept:
        """After one more sweep over the observed entries."""
        silk, observed = state.silk, batch
        kl = jnp.stack([silk.rows.kl(), silk.cols.kl()])
        silk, loss = self._half(silk, observed)
        turned, _ = self._half(silk.transpose(), observed.transpose())
        return Swept(turned.transpose(), loss, kl, state.sweeps + 1)

    def _half(self, silk: Silk, observed: Observed) -> tuple[Silk, Float[Array, " r"]]:
        found = statistics(silk, observed)
        silk = update_rows(silk, found, self.solver)
        if self.learn_prior:
            silk = Silk(learned(silk.rows), silk.cols)
        return silk, found.loss
