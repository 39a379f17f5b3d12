"""Linear fits in files and pickles: a fit as its parts, and the fit that checked parts belong to."""

from numbers import Real
from typing import Any

import equinox as eqx
import jax
import numpy as np

from kalvi.estimators.input_checks import require_consistent
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit import FIELDS, OPTIMUM, LinearFit
from kalvi.estimators.linear.fit_results import Optimum
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.estimators.linear.stream import LinearStream
from kalvi.gaussians import Dense
from kalvi.rules.rvga import Streaming
from kalvi.streams import Buffer

STRUCTURAL = {"rank", "fit_intercept", "dtype", "prior_scale"}
"""What a file says of the structure of its state."""


def restore_fit(
    model: Any, parts: dict[str, Any], settings: LinearSettings, family: Family
) -> LinearFit:
    """The fit that these are parts of; what no fit has left is refused."""
    structure: Any = parts.get("structure_")
    kept: dict[str, Any] = {field: parts.get(name) for name, field in FIELDS.items()}
    optimum = [parts[name] for name in OPTIMUM if name in parts]
    _check_kinds(model, kept, structure, optimum)
    found = Optimum(*optimum) if len(optimum) > 1 else None
    grid = settings.seeks_scale and kept["klprox_scale"] is None
    sparse = bool(structure.get("sparse", False))  # older files do not say
    stream = LinearStream(settings, family, model.n_features_in_, grid, sparse)
    for name in ("state", "with_waiting", "without_projection"):  # older files know no drift
        kept[name] = kept[name] and stream.anchored(kept[name])
    fit = LinearFit(stream, **kept, optimum=found)
    _check_sizes(model, fit, structure)
    return fit


def _check_kinds(model: Any, kept: dict[str, Any], structure: Any, optimum: list[Any]) -> None:
    whole = isinstance(kept["state"], Streaming) and isinstance(kept["buffer"], Buffer)
    require_consistent(whole, model, "state_ and buffer_")
    known = isinstance(structure, dict) and set(structure) >= STRUCTURAL
    require_consistent(known, model, "structure_")
    numbers = all(isinstance(n, Real | np.bool_) for n in optimum)
    complete = len(optimum) in (0, 1, len(OPTIMUM))
    require_consistent(numbers and complete, model, ", ".join(OPTIMUM))


def _check_sizes(model: Any, fit: LinearFit, structure: dict[str, Any]) -> None:
    state, stored, unprojected = fit.state, fit.with_waiting, fit.without_projection
    dim = (fit.n_features + structure["fit_intercept"]) * fit.family.likelihood.outputs
    size = state.posterior.mean.shape[-1] == dim
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
