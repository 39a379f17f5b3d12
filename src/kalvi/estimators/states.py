"""What fitted streaming models are read from, rows and states in parts, and what comes from a file."""

from typing import Any

import jax
import numpy as np

from kalvi.algorithms.rvga import Streaming
from kalvi.estimators import settings
from kalvi.streams import Buffer


class Settled:
    """What a fitted model's results are read from, made when the first of them is asked for.

    `model` is the estimator as it was fitted: parameters set later are for the next call. `stored` is the
    state after the waiting rows, of a model out of a file. `host` is what predictions read.
    """

    def __init__(self, model: Any, stored: Any = None):
        self.model: Any = object.__new__(type(model))
        self.model.__dict__.update(vars(model), _settled=self)
        self.stored = stored
        self.value: Any = None
        self.host: Any = None


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


def check_restored(model: Any, stored: Any) -> None:
    """Refuse a streaming model whose parts are not those of one fit.

    `stored` is the state after the waiting rows, or None.
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
    _check_waiting(model, buffer, n)
    settings.check_settings(model.get_params(), model._scale_names())


def _alike(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure and arrays of the same shapes and types."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    same = jax.tree.structure(one) == jax.tree.structure(other)
    return same and all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)


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
