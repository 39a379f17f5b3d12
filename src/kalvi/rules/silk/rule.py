"""Coordinate ascent for smooth binary factorisation, and its acceleration.

Document 004, sections 4 to 6. A sweep optimises in turn Γ, the rows given the columns, the prior of the
rows, Γ again, the columns, and their prior; the bound never falls. With `Coupled` posteriors the factors
are then rotated to fit their priors best (`rotations`).

Plain sweeps are slow if logits are large, if priors and factors follow each other, and along changes of the
factors that do not affect the logits. Sweeps are therefore combined by Anderson's method (`anderson`). A
combination has new priors with the covariances of the last sweep, so its own bound may be lower; the next
sweep makes them consistent. If the bound is still lower after that sweep, the ascent continues from the
plain point, and sweeps are not combined for a while.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi.rules.rule import IterativeRule
from kalvi.rules.silk.anderson import SweepHistory, combine_sweeps, empty_history, remember_sweep
from kalvi.rules.silk.model import Silk, double_sum, statistics, update_rows
from kalvi.rules.silk.observed import Observed
from kalvi.rules.silk.posteriors import Exact, MeanSolver
from kalvi.rules.silk.priors import with_best_prior
from kalvi.rules.silk.rotations import rotate_to_priors

LONGEST_REST = 16
"""The most sweeps without combination after a rejection (1, 2, 4, … of them)."""


class SILKState(eqx.Module):
    """A factorisation, and the parts of the bound at the start of the last sweep."""

    silk: Silk  # the start of the next sweep
    plain: Silk  # its start without the last combination
    loss: Float[Array, " r"]  # of every row, Σ E log p(x | ψ)
    kl: Float[Array, " 2"]  # of the rows and of the columns
    past: SweepHistory
    trial: Bool[Array, ""]  # whether `silk` is a combination that is not yet tested
    rest: Int[Array, ""]  # sweeps before the next combination
    refused: Int[Array, ""]  # successive rejected combinations
    sweeps: Int[Array, ""]

    @property
    def elbo(self) -> float:
        """The bound at the start of the last accepted sweep, summed in float64."""
        return double_sum(self.loss) - double_sum(self.kl)


class SILK(IterativeRule[SILKState]):
    """One sweep over the observed entries for each call."""

    solver: MeanSolver = eqx.field(default_factory=Exact)
    learn_prior: bool = eqx.field(static=True, default=True)
    memory: int = eqx.field(static=True, default=5)  # the number of combined sweeps; 0: none

    def init(self, prior: Silk, *, key: PRNGKeyArray | None = None) -> SILKState:
        """The state at a first guess, such as `start` makes."""
        dtype = prior.rows.posterior.mean.dtype
        n = prior.rows.prior.n if prior.rows.spot is None else len(prior.rows.spot)
        loss = jnp.full(n, -jnp.inf, dtype)
        none = (jnp.zeros((), bool), *(jnp.zeros((), jnp.int32),) * 3)
        past = empty_history(prior, self.memory)
        state = SILKState(prior, prior, loss, jnp.zeros(2, dtype), past, *none)
        return jax.tree.map(jnp.array, state)  # every part gets its own memory

    def update(self, state: SILKState, batch: Any, *, key: PRNGKeyArray | None = None) -> SILKState:
        """The state after one more sweep over the observed entries."""
        here = state.silk
        kl = jnp.stack([here.rows.kl(), here.cols.kl()])
        there, loss = self.sweep(here, batch)
        fell = ~_rises(state, loss, kl)
        # a combination may have a lower bound, but not the sweep after it
        spared, refused = fell & state.trial, fell & ~state.trial
        past = remember_sweep(state.past, here, there, refused)
        rest = jnp.where(refused, 2**state.refused, jnp.maximum(state.rest - 1, 0))
        times = jnp.clip(state.refused + refused, 0, LONGEST_REST.bit_length() - 1)
        stays = (rest > 0) | spared
        onward = combine_sweeps(past, there, stays) if self.memory else there
        return SILKState(
            _either(refused, state.plain, onward),
            _either(fell, state.plain, there),
            jnp.where(fell, state.loss, loss),
            jnp.where(fell, state.kl, kl),
            past,
            ~stays & ~refused & (past.count >= 2),
            rest,
            times,
            state.sweeps + 1,
        )

    def sweep(self, silk: Silk, observed: Observed) -> tuple[Silk, Float[Array, " r"]]:
        """A plain sweep, and the data's part of the bound before it."""
        silk, loss = self._half(silk, observed)
        turned_over, _ = self._half(silk.transpose(), observed.transpose())
        silk = turned_over.transpose()
        if silk.rows.posterior.rotates:
            silk = rotate_to_priors(silk, learns=self.learn_prior)
            if self.learn_prior:
                silk = Silk(with_best_prior(silk.rows), with_best_prior(silk.cols))
        return silk, loss

    def _half(self, silk: Silk, observed: Observed) -> tuple[Silk, Float[Array, " r"]]:
        found = statistics(silk, observed)
        silk = update_rows(silk, found, self.solver)
        if self.learn_prior:
            silk = Silk(with_best_prior(silk.rows), silk.cols)
        return silk, found.loss


def _rises(state: SILKState, loss: Float[Array, " r"], kl: Float[Array, " 2"]) -> Bool[Array, ""]:
    """Whether the bound is not lower than before, up to the rounding of its sum."""
    first = jnp.isneginf(state.loss[0])
    gain = jnp.sum(loss - jnp.where(first, 0, state.loss)) - jnp.sum(kl - state.kl)
    eps = float(jnp.finfo(loss.dtype).eps)  # the rounding errors of rows are independent
    slack = 8 * eps * (jnp.sqrt(jnp.sum(loss**2)) + jnp.sum(jnp.abs(kl)))
    return first | (gain >= -slack)


def _either(first: Bool[Array, ""], a: Silk, b: Silk) -> Silk:
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)
