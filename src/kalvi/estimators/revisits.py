"""Further passes of a streaming model over rows in many places: what a place adds up, and the turns.

A pass visits rows at one Gaussian and leaves sums (`rules.visits`); a turn of an ascent
(`gaussians.ascents`) makes the next Gaussian of them. Sums are NumPy arrays, because they travel.
"""

from typing import Any
from warnings import warn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from kalvi import streams
from kalvi.estimators.climbs import VISITED_NUMBERS, VISITED_ROWS
from kalvi.estimators.optimum import streamable
from kalvi.estimators.states import Settled
from kalvi.gaussians import Updatable
from kalvi.gaussians.ascents import Ascent, Sums
from kalvi.numerics.precision import matching
from kalvi.predictors.models import Model
from kalvi.rules.revisit import AddedUp
from kalvi.streams import run

NAMES = ("classes_", "n_features_in_", "feature_names_in_", "structure_")
"""What rows are checked against."""
CLOSE = 0.1
"""Nats of `elbo_gap_` a parameter that need no warning. Half of it is the distance to the optimum: means
are 0.3 standard deviations off on average, and an interval of 95 % still covers 94."""


def shell(model: Any) -> Any:
    """A model that knows what its rows look like and nothing else."""
    new: Any = clone(model)
    new.__dict__.update({name: vars(model)[name] for name in NAMES if name in vars(model)})
    return new


def begun(model: Any, known: Any = None) -> Ascent:
    """An ascent from the posterior of a model; its prior, or what a model `known` before had learned."""
    with matching(model.dtype):
        state = streamable(model._current()[1], model.rank)
        prior = model._priors(model.n_features_in_) if known is None else known.posterior_
        return state.posterior.ascent(prior)


def visited(model: Any, at: Updatable, sums: Sums, rows: tuple) -> Sums:
    """The sums with those of further rows (X, y, weight), which are checked."""
    x, y, weight = checked(model, *rows)
    with matching(model.dtype):
        size = int(np.clip(VISITED_NUMBERS // at.dim, 1, VISITED_ROWS))
        batches = streams.array_batches(x, y, weight, block_size=size, **model._layout())
        rule = AddedUp(Model(model._predictor(), model._stream_likelihood()), at)
        found = run.resume(rule, jax.tree.map(jnp.asarray, sums), batches)
        return jax.tree.map(np.asarray, found)


def turned(model: Any, ascent: Ascent, sums: Sums) -> Ascent:
    """The ascent after a pass over all rows."""
    with matching(model.dtype):
        return run.call(_turn, ascent, jax.tree.map(jnp.asarray, sums))


def ended(model: Any, ascent: Ascent) -> Any:
    """The model with the posterior where the ascent is; its evidence stays that of the stream."""
    new: Any = clone(model)
    new.__dict__.update({k: v for k, v in vars(model).items() if k not in new.__dict__})
    with matching(model.dtype):
        found, gap = run.call(_reached, ascent)
        state = streamable(model._current()[1], model.rank)
        new.state_ = eqx.tree_at(lambda s: s.posterior, state, found)
    rows = model.buffer_.seen + model.buffer_._count()
    new.buffer_, new.n_passes_ = streams.Buffer(rows), 1 + int(ascent.passes)
    new.elbo_, new.elbo_gap_ = float(ascent.elbo), float(gap)
    new._settled = Settled(new)
    new.converged_ = new.elbo_gap_ <= CLOSE * found.dim
    if not new.converged_:
        warn(
            f"the variational bound had not converged after {new.n_passes_} passes "
            f"(elbo_gap_ = {new.elbo_gap_:.2g} nats). Refine more.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return new


def checked(model: Any, x: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows as the likelihood takes them, refused like those of `partial_fit`."""
    x, y = model._check_rows(x, y, reset=False, y_numeric=not is_classifier(model))
    return x, model._targets(y), model._check_weight(sample_weight, x)


def _turn(ascent: Ascent, sums: Sums) -> Ascent:
    return ascent.turn(sums)


def _reached(ascent: Ascent) -> tuple[Updatable, Float[Array, ""]]:
    return ascent.posterior, ascent.gap()
