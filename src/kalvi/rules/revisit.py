"""Further passes over the rows: from the posterior of one pass to the optimum of the variational bound.

A pass evaluates every row at the Gaussian that an ascent proposes (`gaussians.ascents`) and adds up the
terms of the rows (`visits`); at its end the ascent makes the next Gaussian. No row is kept. If rows are
stored on many machines, only the sums travel.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import Updatable
from kalvi.gaussians.ascents import Ascent, RowSums, zero_sums
from kalvi.predictors.models import Model
from kalvi.rules.rule import Batch, PassRule, Rule
from kalvi.rules.visits import sums


class SumPass(Rule[RowSums]):
    """One pass that sums the terms of all rows at one Gaussian; an ascent makes the next Gaussian from
    them.

    Parameters
    ----------
    model : Model
        The predictor and the likelihood.
    visited : Updatable
        The Gaussian at which the rows are evaluated.
    """

    model: Model
    visited: Updatable

    def init(self, prior: Any = None, *, key: PRNGKeyArray | None = None) -> RowSums:
        """The sums of no rows."""
        return zero_sums(self.visited)

    def update(self, state: RowSums, batch: Batch, *, key: PRNGKeyArray | None = None) -> RowSums:
        return jax.tree.map(jnp.add, state, sums(self.model, self.visited, batch))


class RevisitState(eqx.Module):
    """An ascent, the Gaussian at which the current pass evaluates rows, and the sums so far."""

    ascent: Ascent
    visited: Any
    sums: RowSums

    @classmethod
    def begin_pass(cls, ascent: Ascent) -> "RevisitState":
        """The state before the first row of a pass."""
        visited = ascent.proposal
        return cls(ascent, visited, zero_sums(visited))

    @property
    def posterior(self) -> Any:
        return self.ascent.posterior


class Revisit(PassRule[RevisitState]):
    """Passes over the same rows: `update` evaluates a block, `turn` ends a pass and starts the next.

    Parameters
    ----------
    model : Model
        The predictor and the likelihood.
    """

    model: Model

    def init(
        self,
        prior: Updatable,
        *,
        start: Updatable | None = None,
        key: PRNGKeyArray | None = None,
    ) -> RevisitState:
        """The state before the first pass, which is at `start` or, without one, at the prior.

        Zero factors of a low rank stay zero: begin with the posterior of a stream.
        """
        return RevisitState.begin_pass((prior if start is None else start).ascent(prior))

    def update(
        self, state: RevisitState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> RevisitState:
        added = SumPass(self.model, state.visited).update(state.sums, batch)
        return eqx.tree_at(lambda s: s.sums, state, added)

    def turn(self, state: RevisitState) -> RevisitState:
        return RevisitState.begin_pass(state.ascent.turn(state.sums))
