"""Further passes of a streaming model over rows in many places: what a place adds up, and the turns.

A pass visits rows at one Gaussian and leaves sums (`algorithms.revisit`, `algorithms.revisit_full`); a turn
makes the next Gaussian of them. Sums are NumPy arrays, because they travel.
"""

from typing import Any
from warnings import warn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from kalvi import linalg, run, streams
from kalvi.algorithms.base import Batch, Rule
from kalvi.algorithms.revisit import Climb, Revisit
from kalvi.algorithms.revisit_full import FullClimb, RevisitFull
from kalvi.estimators.climbs import VISITED_NUMBERS, VISITED_ROWS
from kalvi.estimators.optimum import streamable
from kalvi.estimators.states import Settled
from kalvi.gaussians import Diagonal, Gaussian, LowRankPrecision
from kalvi.precision import matching

NAMES = ("classes_", "n_features_in_", "feature_names_in_", "structure_")
"""What rows are checked against."""
CLOSE = 0.1
"""Nats of `elbo_gap_` a parameter that need no warning. Half of it is the distance to the optimum: means
are 0.3 standard deviations off on average, and an interval of 95 % still covers 94."""


class Visits(Rule[Any]):
    """A pass that adds up what rows say at one Gaussian."""

    climber: Revisit | RevisitFull
    visited: Any

    def init(self, prior: Any, *, key: PRNGKeyArray | None = None) -> Any:
        """The sums of no rows, given such sums."""
        return prior

    def update(self, state: Any, batch: Batch, *, key: PRNGKeyArray | None = None) -> Any:
        return jax.tree.map(jnp.add, state, self.climber.visit(self.visited, batch))


def shell(model: Any) -> Any:
    """A model that knows what its rows look like and nothing else."""
    new: Any = clone(model)
    new.__dict__.update({name: vars(model)[name] for name in NAMES if name in vars(model)})
    return new


def begun(model: Any, known: Any = None) -> Climb | FullClimb:
    """A climb from the posterior of a model; its prior, or what a model `known` before had learned."""
    with matching(model.dtype):
        state = streamable(model._current()[1], model.rank)
        prior = model._priors(model.n_features_in_) if known is None else known.posterior_
        return _climber(model).init(
            _climbing(prior, model), start=_climbing(state.posterior, model)
        )


def visited(model: Any, climb_at: Gaussian, sums: Any, rows: tuple) -> Any:
    """The sums with those of further rows (X, y, weight), which are checked."""
    x, y, weight = checked(model, *rows)
    with matching(model.dtype):
        size = int(np.clip(VISITED_NUMBERS // climb_at.dim, 1, VISITED_ROWS))
        batches = streams.array_batches(x, y, weight, block_size=size, **model._layout())
        rule = Visits(_climber(model), climb_at)
        found = run.resume(rule, jax.tree.map(jnp.asarray, sums), batches)
        return jax.tree.map(np.asarray, found)


def turned(model: Any, climb: Climb | FullClimb, sums: Any) -> Climb | FullClimb:
    """The climb after a pass over all rows."""
    with matching(model.dtype):
        full = eqx.tree_at(lambda c: c.sums, climb, jax.tree.map(jnp.asarray, sums))
        climber = _climber(model)
        return run.call(type(climber).turn, climber, full)


def ended(model: Any, climb: Climb | FullClimb) -> Any:
    """The model with the posterior where the climb is; its evidence stays that of the stream."""
    new: Any = clone(model)
    new.__dict__.update({k: v for k, v in vars(model).items() if k not in new.__dict__})
    with matching(model.dtype):
        found: Any = climb.posterior
        if model.rank == 0:
            found = Diagonal(found.mean, 1 / found.precision.diag)
        state = streamable(model._current()[1], model.rank)
        new.state_ = eqx.tree_at(lambda s: s.posterior, state, found)
        gap = float(run.call(_gap, climb))
    rows = model.buffer_.seen + model.buffer_._count()
    new.buffer_, new.n_passes_ = streams.Buffer(rows), 1 + int(climb.passes)
    new.elbo_, new.elbo_gap_ = float(climb.here.elbo), gap
    new._settled = Settled(new)
    new.converged_ = gap <= CLOSE * climb.posterior.dim
    if not new.converged_:
        warn(
            f"the variational bound had not converged after {new.n_passes_} passes "
            f"(elbo_gap_ = {gap:.2g} nats). Refine more.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return new


def checked(model: Any, x: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows as the likelihood takes them, refused like those of `partial_fit`."""
    x, y = model._check_rows(x, y, reset=False, y_numeric=not is_classifier(model))
    return x, model._targets(y), model._check_weight(sample_weight, x)


def _gap(climb: Climb | FullClimb) -> Float[Array, ""]:
    """The squared natural-gradient norm, twice the nats to the optimum near it, as in `climbing`.

    Of a low rank: that of the mean, and of the diagonal of the precision in units of itself.
    """
    if isinstance(climb, FullClimb):
        here, root = climb.here, climb.posterior.root
        slope, change = root.T @ here.gradient, root.T @ here.target @ root
        return slope @ slope + jnp.sum((change - linalg.identity_like(change)) ** 2) / 2
    q, here = climb.posterior, climb.here
    change = here.diagonal / q.precision.diagonal() - 1
    return here.gradient @ q.covariance.matvec(here.gradient) + change @ change / 2


def _climber(model: Any) -> Revisit | RevisitFull:
    return (RevisitFull if model.rank is None else Revisit)(model._stream_likelihood())


def _climbing(q: Any, model: Any) -> Any:
    """Variances alone are a precision of no factors."""
    if model.rank == 0:
        empty = jnp.zeros((q.dim, 0), q.mean.dtype)
        return LowRankPrecision(q.mean, empty, 1 / q.var)
    return q
