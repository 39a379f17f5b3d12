"""What fitted streaming models are read from, rows and states in parts, and what comes from a file."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from kalvi.estimators import settings
from kalvi.gaussians import Dense
from kalvi.numerics.namespaces import on_device
from kalvi.rules.grid import stack, take
from kalvi.rules.rvga import Streaming
from kalvi.streams import Buffer, run


class Settled:
    """What a fitted model's results are read from, made when the first of them is asked for.

    `model` is the estimator as it was fitted: parameters set later are for the next call. Each result is a
    state, its best member and the posterior in the user's units.
    """

    def __init__(
        self,
        model: Any,
        *,
        ahead: "Ahead | None" = None,
        stored: Any = None,
        unprojected: Any = None,
    ):
        self.model: Any = object.__new__(type(model))
        self.model.__dict__.update(vars(model), _settled=self)
        self.ahead = ahead
        self.stored = stored  # the state after the waiting rows, of a model out of a file
        self.unprojected = unprojected  # the same for predictions: see Ahead
        self.value: Any = None  # with the waiting rows absorbed as a block
        self.host: Any = None  # the same as NumPy arrays
        self.predicting: Any = None  # what predictions are made from


class Ahead(NamedTuple):
    """A state of low rank with its first waiting rows absorbed, in a full covariance.

    A block of rows is projected onto the rank when it is full. Until then predictions are made from what
    its rows say without the projection: each is absorbed once, where projecting them anew with every
    prediction would cost as much as the whole block.
    """

    base: Any  # the state after the last full block
    count: int  # rows absorbed since
    state: Any


def ahead_of(model: Any, known: Ahead | None) -> Ahead:
    """The state of a model with all its waiting rows, from what is `known` of the first of them."""
    if known is None or known.base is not model.state_:
        known = Ahead(model.state_, 0, _in_full(on_device(model.state_), model._on_grid()))
    rows = model.buffer_.since(known.count, model._schedule(model.n_features_in_), model._layout())
    if rows is None:
        return known
    rule = model._rule(model.n_features_in_)
    count = known.count + int(np.sum(np.asarray(rows.weight) > 0))
    return Ahead(known.base, count, run.call(type(rule).update, rule, known.state, rows))


def _in_full(state: Any, on_grid: bool) -> Any:
    """The state with a full covariance; of a grid, each of its members."""
    q = state.posterior
    members = [take(q, i) for i in range(q.mean.shape[0])] if on_grid else [q]
    dense = [member.to_dense() for member in members]
    dense = stack(dense) if on_grid else dense[0]
    return eqx.tree_at(lambda s: s.posterior, state, dense)


def weighty(x, y: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows that have a weight."""
    if np.all(weight > 0):
        return x, y, weight
    which = np.flatnonzero(weight > 0)
    return x[which], y[which], weight[which]


def put(state: Any, member: Any, index: int) -> Any:
    """The state of a grid with one member replaced."""
    return jax.tree.map(lambda many, one: many.at[index].set(one), state, member)


def fits_together(right: bool, model: Any, what: str) -> None:
    """Refuse attributes that no fit has left, such as those of a file that was changed."""
    if not right:
        raise ValueError(
            f"this {type(model).__name__} has attributes that contradict each other: {what}"
        )


def check_restored(model: Any, stored: Any, unprojected: Any) -> None:
    """Refuse a streaming model whose parts are not those of one fit.

    `stored` is the state after the waiting rows, `unprojected` the same for predictions, or None.
    """
    kept = vars(model)
    state, buffer, structure = (kept.get(name) for name in ("state_", "buffer_", "structure_"))
    whole = isinstance(state, Streaming) and isinstance(buffer, Buffer)
    fits_together(whole and isinstance(structure, dict), model, "state_, buffer_ and structure_")
    names = ("rank", "fit_intercept", "dtype", "prior_scale")
    fits_together(set(names) <= set(structure), model, "structure_")
    labels = np.asarray(kept.get("classes_", [0, 1]))
    fits_together(labels.ndim == 1 and len(labels) > 1, model, "classes_")
    fits_together(bool(np.all(labels[:-1] < labels[1:])), model, "the order of classes_")
    check_names(model)
    n = model.n_features_in_
    dim = (n + structure["fit_intercept"]) * model._outputs()
    fits_together(state.posterior.mean.shape[-1] == dim, model, "n_features_in_ and state_")
    fits_together(stored is None or _alike(stored, state), model, "state_ and the rows that wait")
    full = unprojected is None or _alike_in_full(unprojected, state)
    fits_together(full, model, "state_ and what predictions are made from")
    _check_waiting(model, buffer, n)
    settings.check_settings(model.get_params(), model._scale_names())


def _alike_in_full(one: Any, other: Any) -> bool:
    """Whether two states are alike but that the first has a full covariance."""
    if not isinstance(one, Streaming) or not isinstance(one.posterior, Dense):
        return False
    q, shape = one.posterior, np.shape(other.posterior.mean)
    square = q.mean.shape == shape and q.root.shape == (*shape, shape[-1])
    same = q.mean.dtype == q.root.dtype == other.posterior.mean.dtype
    return square and same and _alike(_without_posterior(one), _without_posterior(other))


def _without_posterior(state: Any) -> Any:
    return eqx.tree_at(lambda s: s.posterior, state, None)


def _alike(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure and arrays of the same shapes and types."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)


def check_names(model: Any) -> None:
    """Refuse names of columns that are not as many as the columns."""
    n, names = model.__dict__.get("n_features_in_"), model.__dict__.get("feature_names_in_")
    fits_together(isinstance(n, int | np.integer) and bool(n >= 0), model, "n_features_in_")
    fits_together(names is None or bool(len(names) <= n), model, "feature_names_in_")


def _check_waiting(model: Any, buffer: Buffer, n_features: int) -> None:
    fits_together(buffer.seen >= 0, model, "rows seen")
    if buffer.waiting is not None:
        x, y, weight = buffer.waiting
        rows = (x.shape[0],)
        shapes = x.shape == (*rows, n_features) and y.shape == rows and weight.shape == rows
        fits_together(shapes, model, "the rows that wait")
