"""Further passes over the rows: from the posterior of one pass to the optimum of the variational bound.

A pass visits every row at the Gaussian that an ascent proposes (`gaussians.ascents`) and adds up what the
rows say there (`visits`); at its end the ascent turns to the next Gaussian. Nothing is kept of a row. Where
rows lie on many machines only the sums travel.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import Updatable
from kalvi.gaussians.ascents import Ascent, Sums
from kalvi.predictors.models import Model
from kalvi.rules.base import Batch, PassRule
from kalvi.rules.visits import sums


class Revisiting(eqx.Module):
    """An ascent, the Gaussian that the present pass visits, and what it has added up."""

    ascent: Ascent
    visited: Any
    sums: Sums

    @classmethod
    def begin_pass(cls, ascent: Ascent) -> "Revisiting":
        """Before the first row of a pass."""
        return cls(ascent, ascent.visited, ascent.nothing())

    @property
    def posterior(self) -> Any:
        return self.ascent.posterior


class Revisit(PassRule[Revisiting]):
    """Passes over the same rows: `update` visits a block, `turn` ends a pass and starts the next.

    Parameters
    ----------
    model : Model
        The predictor and the likelihood.
    """

    model: Model

    def init(
        self, prior: Updatable, *, start: Updatable, key: PRNGKeyArray | None = None
    ) -> Revisiting:
        """Before the first pass, which visits `start`; an empty factor stays empty: begin with a stream."""
        return Revisiting.begin_pass(start.ascent(prior))

    def update(
        self, state: Revisiting, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Revisiting:
        new = sums(self.model, state.visited, batch)
        return eqx.tree_at(lambda s: s.sums, state, jax.tree.map(jnp.add, state.sums, new))

    def turn(self, state: Revisiting) -> Revisiting:
        return Revisiting.begin_pass(state.ascent.turn(state.sums))
