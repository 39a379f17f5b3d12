"""Smooth binary factorisation from random pieces, for matrices too large to sweep.

A step reads the entries of some rows and some columns. Their statistics for these rows, scaled up to all
columns, are mixed into the remembered sites of the rows, and likewise for the columns:

    site ← (1 − ρ) site + ρ · (scaled statistics),      ρ = (visits + 1)^−power,

Then the posteriors follow from sites and priors, as in a sweep. With β = ρ/(1 − ρ) this is the KL-proximal
point of the bound, a natural-gradient step (Khan, Baqué, Fleuret & Fua 2015, section 3), here with the
sampling noise of the piece. Every row counts its own visits and has its own ρ. Memory is that of the sites,
n k(k+3)/2 numbers a side.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.rules.rule import IterativeRule
from kalvi.rules.silk.expected import expected_statistics
from kalvi.rules.silk.first_sites import sites_of_posterior
from kalvi.rules.silk.model import Side, Silk, sites
from kalvi.rules.silk.observed import Statistics
from kalvi.rules.silk.posteriors import Exact, MeanSolver
from kalvi.rules.silk.priors import with_best_prior
from kalvi.rules.silk.table import Table


class RememberedSites(NamedTuple):
    """The sites of each row, averaged over the pieces so far."""

    found: Statistics
    visits: Int[Array, " r"]


class StochasticSILKState(eqx.Module):
    """A factorisation after some pieces."""

    silk: Silk
    rows: RememberedSites
    cols: RememberedSites
    bound: Float[Array, ""]  # before the last step, from its piece scaled to all entries
    steps: Int[Array, ""]


class StochasticSILK(IterativeRule[StochasticSILKState]):
    """Learns from one random piece of the matrix for each call; needs a key."""

    n_rows: int = eqx.field(static=True)
    n_cols: int = eqx.field(static=True)
    power: float = eqx.field(static=True, default=0.6)  # of the step sizes
    solver: MeanSolver = eqx.field(default_factory=Exact)
    learn_prior: bool = eqx.field(static=True, default=True)
    expected: bool = eqx.field(static=True, default=False)  # as `ExpectedSILK`, unbounded

    def init(self, prior: Silk, *, key: PRNGKeyArray | None = None) -> StochasticSILKState:
        """The state at a first guess, such as `start` makes; its posteriors become the first sites."""
        dtype = prior.rows.posterior.mean.dtype
        rows, cols = (
            RememberedSites(sites, jnp.zeros(len(sites.loss), jnp.int32))
            for sites in map(sites_of_posterior, (prior.rows, prior.cols))
        )
        nothing, never = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return jax.tree.map(jnp.array, StochasticSILKState(prior, rows, cols, nothing, never))

    def update(
        self, state: StochasticSILKState, batch: Any, *, key: PRNGKeyArray | None = None
    ) -> StochasticSILKState:
        """The state after one more piece of a `Table`."""
        if key is None:
            raise ValueError("StochasticSILK draws rows and columns: give `run` a key.")
        n, m = batch.shape
        row_key, col_key = jr.split(key)
        rows = jr.permutation(row_key, n)[: self.n_rows]
        cols = jr.permutation(col_key, m)[: self.n_cols]
        piece, silk = batch.piece(rows, cols), state.silk
        divergence = silk.rows.kl() + silk.cols.kl()
        side, remembered, loss = self._half(silk, state.rows, piece, rows, cols)
        bound = jnp.sum(loss) * (n / len(rows)) - divergence
        silk = Silk(side, silk.cols)
        other, remembered_cols, _ = self._half(
            silk.transpose(), state.cols, piece.transpose(), cols, rows
        )
        return StochasticSILKState(
            Silk(side, other), remembered, remembered_cols, bound, state.steps + 1
        )

    def _half(
        self, silk: Silk, past: RememberedSites, piece: Table, rows: Array, cols: Array
    ) -> tuple[Side, RememberedSites, Float[Array, " b"]]:
        """The side of the rows after a piece, and the part of the bound from the piece."""
        here, there = silk.rows.moments().at(rows), silk.cols.moments()
        scale = len(there.mean) / len(cols)
        moments = here, there.at(cols), silk.rows.posterior.adds_mean
        ask = partial(piece.reduce, of=expected_statistics) if self.expected else piece.statistics
        new = ask(*moments)
        visits = past.visits[rows]
        share = (visits + 1.0).astype(new.loss.dtype) ** -self.power

        def mixed(old: Array, new: Array) -> Array:
            part = share.reshape((-1,) + (1,) * (new.ndim - 1))
            return old.at[rows].add(part * (scale * new - old[rows]))

        found = jax.tree.map(mixed, past.found, new)
        side = silk.rows
        posterior = side.posterior.update(side.prior, sites(side, found), self.solver)
        side = side.with_posterior(posterior)
        side = with_best_prior(side) if self.learn_prior else side
        return side, RememberedSites(found, past.visits.at[rows].add(1)), scale * new.loss
