"""Linear fits from files and pickles: checks of the parts, and the fit made from them."""

from numbers import Real
from typing import Any

import equinox as eqx
import jax
import numpy as np

from kalvi.estimators.input_checks import require_consistent
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit import FIELDS, OPTIMUM, LinearFit
from kalvi.estimators.linear.fit_results import Optimum
from kalvi.estimators.linear.grids import how_sought
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.estimators.linear.stream import LinearStream, streams_of
from kalvi.gaussians import Dense
from kalvi.rules.rvga import Streaming
from kalvi.rules.side_by_side import Copies
from kalvi.streams import Buffer

STRUCTURAL = {"rank", "fit_intercept", "dtype", "prior_scale"}
"""The entries of a file about the structure of its state."""
STATES = ("state", "with_waiting", "without_projection")


def restore_fit(
    model: Any, parts: dict[str, Any], settings: LinearSettings, family: Family
) -> LinearFit:
    """The fit with these parts; parts that no fit can have are refused."""
    structure: Any = parts.get("structure_")
    kept: dict[str, Any] = {field: parts.get(name) for name, field in FIELDS.items()}
    optimum = [parts[name] for name in OPTIMUM if name in parts]
    _check_kinds(model, kept, structure, optimum)
    found = Optimum(*optimum) if len(optimum) > 1 else None
    learned = "learned" in (structure["prior_scale"], structure.get("drift"))
    settings = settings.resolved(learned)
    sought = "" if kept["klprox_scale"] is not None else how_sought(settings, learned)
    sparse = bool(structure.get("sparse", False))  # missing in older files
    stream = LinearStream(settings, family, model.n_features_in_, sought, sparse)
    for name in STATES:
        kept[name] = kept[name] and _as_copies(model, stream, kept[name])
    for name in STATES:  # older files have no drift
        kept[name] = kept[name] and stream.anchored(kept[name])
    fit = LinearFit(stream, **kept, optimum=found)
    _check_sizes(model, fit, structure)
    return fit


def _check_kinds(model: Any, kept: dict[str, Any], structure: Any, optimum: list[Any]) -> None:
    states = isinstance(kept["state"], Streaming | Copies)
    whole = states and isinstance(kept["buffer"], Buffer)
    require_consistent(whole, model, "state_ and buffer_")
    known = isinstance(structure, dict) and set(structure) >= STRUCTURAL
    require_consistent(known, model, "structure_")
    numbers = all(isinstance(n, Real | np.bool_) for n in optimum)
    complete = len(optimum) in (0, 1, len(OPTIMUM))
    require_consistent(numbers and complete, model, ", ".join(OPTIMUM))


def _check_sizes(model: Any, fit: LinearFit, structure: dict[str, Any]) -> None:
    state, stored, unprojected = fit.state, fit.with_waiting, fit.without_projection
    dim = (fit.n_features + structure["fit_intercept"]) * fit.family.likelihood.outputs
    size = all(stream.posterior.mean.shape == (dim,) for stream in streams_of(state))
    require_consistent(size, model, "n_features_in_ and state_")
    alike = stored is None or _alike(stored, state)
    require_consistent(alike, model, "state_ and the rows that wait")
    full = unprojected is None or _alike_in_full(unprojected, state)
    require_consistent(full, model, "state_ and what predictions are made from")
    require_consistent(fit.buffer.seen >= 0, model, "rows seen")
    timed = fit.clock is None or (isinstance(fit.clock, Real) and bool(np.isfinite(fit.clock)))
    require_consistent(timed, model, "clock_")
    if fit.buffer.waiting is not None:
        x, *numbers = fit.buffer.waiting
        rows = (x.shape[0],)
        each = len(numbers) == 2 + (fit.clock is not None)
        shapes = (
            x.shape == (*rows, fit.n_features) and all(a.shape == rows for a in numbers) and each
        )
        require_consistent(shapes, model, "the rows that wait")


def _as_copies(model: Any, stream: LinearStream, state: Any) -> Any:
    """The state as copies where settings are sought; older files have those of a grid stacked."""
    if stream.grid is None:
        require_consistent(isinstance(state, Streaming), model, "state_ and prior_scale")
        return state
    if isinstance(state, Streaming):
        n = len(stream.points)
        stacked = not stream.learned and np.ndim(state.log_evidence) == 1
        require_consistent(
            stacked and len(state.log_evidence) == n, model, "state_ and prior_scale"
        )
        parts = [jax.tree.map(lambda leaf, i=i: leaf[i], state) for i in range(n)]
        return Copies.begin(stream.grid, parts)
    n, m = len(stream.points), len(state.streams)
    points = state.points.shape == (m,) and m > 0
    points = (
        points
        and state.tried.shape == (n,)
        and bool(np.all((state.points >= 0) & (state.points < n)))
    )
    weights = state.log_weights.shape == (n,) and bool(np.all(np.isfinite(state.log_weights)))
    past = state.history
    history = past.log_weights.shape == (len(past.rows), n) and past.surprises.ndim == 1
    whole = points and weights and history and all(isinstance(s, Streaming) for s in state.streams)
    require_consistent(whole, model, "the copies of state_")
    return state


def _alike_in_full(one: Any, other: Any) -> bool:
    """Whether two states are alike except that the first has a full covariance."""
    if isinstance(one, Copies) and isinstance(other, Copies):
        pairs = zip(one.streams, other.streams, strict=False)
        same = len(one.streams) == len(other.streams)
        return same and all(_alike_in_full(a, b) for a, b in pairs)
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
