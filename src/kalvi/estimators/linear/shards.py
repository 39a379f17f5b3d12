"""Merging fits of parts of the rows, and further passes of a fit over rows in many places.

A pass evaluates rows at one Gaussian and gives sums (`rules.visits`); a turn of an ascent
(`gaussians.ascents`) makes the next Gaussian from them. RowSums are NumPy arrays, because they travel.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import clone

from kalvi import streams
from kalvi.estimators.linear.estimator import LinearEstimator
from kalvi.estimators.linear.fit import LinearFit
from kalvi.estimators.linear.fit_results import Optimum
from kalvi.estimators.linear.refinement import visited_rows
from kalvi.estimators.linear.stream import Rows
from kalvi.gaussians import Gaussian, Updatable
from kalvi.gaussians.ascents import Ascent, RowSums
from kalvi.gaussians.merging import check, check_different, check_prior, combined, proper
from kalvi.numerics.namespaces import on_device
from kalvi.numerics.precision import matching_precision
from kalvi.predictors import linear_predictor
from kalvi.predictors.models import Model
from kalvi.rules.revisit import SumPass
from kalvi.rules.rvga import Streaming
from kalvi.rules.side_by_side import Point, pooled
from kalvi.streams import run

SHAPES = ("classes_", "n_features_in_", "feature_names_in_")
"""The attributes against which rows are checked."""
CLOSE = 0.1
"""The largest gap without a warning, in nats a parameter. Half of the gap is the distance to the optimum:
at this limit means are 0.3 standard deviations off on average, and a 95 % interval still covers 94 %."""


def merge_fits(
    fits: Sequence[LinearFit],
    places: Sequence[np.ndarray] | None = None,
    n_features: int | None = None,
    *,
    again: bool = False,
) -> LinearFit:
    """One fit from the fits of shards, which began with the same prior and did not forget.

    `places` has for each shard the positions of its features among the `n_features` of all; coefficients
    that a shard has not seen keep their prior. Without `places` all have the same features. The evidence is
    the sum over the shards, each on its own. The same posterior twice is refused unless `again`.
    """
    fits, point = _at_common_settings(fits)
    first = fits[0]
    whole = first if n_features is None else first.with_stream(n_features=n_features)
    with matching_precision(first.settings.dtype):
        prior = on_device(whole.stream.prior(point))
        states = [on_device(_best(fit)) for fit in fits]
        posteriors = [state.posterior for state in states]
        if places is not None:
            posteriors = [
                q.embed(prior, whole.parameter_indices(where, whole.n_features))
                for q, where in zip(posteriors, places, strict=True)
            ]
        check(posteriors, prior)
        if not again:
            check_different(posteriors, prior)
        counts = (eqx.tree_at(_apart, state, (None, None), is_leaf=_is_none) for state in states)
        state = jax.tree.map(lambda *parts: sum(parts), *counts)
        posterior = proper(run.call(combined, tuple(posteriors), prior))
        state = eqx.tree_at(lambda s: s.posterior, state, posterior, is_leaf=_is_none)
        n_rows = sum(fit.n_rows for fit in fits)
        if point is not None:
            state = pooled([fit.current.state for fit in fits], state, n_rows)
        state = whole.stream.anchored(state)
    return whole.with_state(state, n_rows, None)


def _best(fit: LinearFit) -> Streaming:
    """The leading stream of a fit, with the waiting rows."""
    best = fit.best_member(fit.resumable(fit.current.state))
    return best


def _apart(state: Streaming) -> Any:
    """The parts of a state that are not sums over rows."""
    return state.posterior, state.drifting


def _is_none(value: Any) -> bool:
    return value is None


def _at_common_settings(fits: Sequence[LinearFit]) -> tuple[Sequence[LinearFit], Point | None]:
    """The fits with only their leading copies, all with the settings that have the most weight over all
    fits.

    Another scale changes a posterior by what is known; another memory is that of the rows to come.
    """
    if not any(fit.learned for fit in fits):
        return fits, None
    if not all(fit.learned and fit.stream.points == fits[0].stream.points for fit in fits):
        raise ValueError("the models to merge must all have learned their settings, or none.")
    at = [fit.stream.counted(fit.current.state) for fit in fits]
    chosen = int(np.argmax(sum(state.log_weights for state in at)))
    moved = [
        replace(fit, state=fit.stream.moved(state, fit.best_index(fit.current.state), chosen))
        for fit, state in zip(fits, at, strict=True)
    ]
    return [replace(fit, buffer=streams.Buffer(fit.n_rows), ahead=None) for fit in moved], fits[
        0
    ].stream.points[chosen]


def merge_models(
    models: Sequence[LinearEstimator],
    places: Sequence[np.ndarray] | None = None,
    n_features: int | None = None,
    *,
    again: bool = False,
) -> Any:
    """One model from the models of shards; see `merge_fits`."""
    first: Any = models[0]
    _check_alike(models)
    names = ("classes_",) if places is not None else ("classes_", "feature_names_in_")
    new: Any = clone(first)
    new.__dict__.update({name: vars(first)[name] for name in names if name in vars(first)})
    new.fit_ = merge_fits([model.fit_ for model in models], places, n_features, again=again)
    new.n_features_in_ = new.fit_.n_features
    return new


def _check_alike(models: Sequence[LinearEstimator]) -> None:
    first = models[0]
    check_mergeable(first)
    for model in models[1:]:
        if not same_settings(_parameters(model), _parameters(first)):
            raise ValueError(
                "the models to merge have different parameters; fit them with the same ones."
            )
        one, other = (np.asarray(vars(m).get("classes_", [])) for m in (first, model))
        if not np.array_equal(one, other):
            raise ValueError(
                f"the models to merge have different classes, {one.tolist()} and {other.tolist()}; "
                "name all of them in partial_fit(classes=...)."
            )


def _parameters(model: LinearEstimator) -> dict[str, Any]:
    """The parameters, with the values that stand for those not given."""
    settings = model.fit_.resolved(model.settings())
    return model.get_params() | {"prior_scale": settings.prior_scale, "drift": settings.drift}


def as_for_tables(model: LinearEstimator) -> Any:
    """A model with the same parameters that learns no settings from a stream."""
    new: Any = clone(model)
    settings = model.settings().resolved(False)
    return new.set_params(prior_scale=settings.prior_scale, drift=settings.drift)


def same_settings(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two sets of parameters are equal; arrays and Gaussians are compared by their numbers."""
    return a.keys() == b.keys() and all(eqx.tree_equal(_plain(a[k]), _plain(b[k])) for k in a)


def _plain(value: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf) if np.ndim(leaf) else leaf, value)


def check_mergeable(model: LinearEstimator) -> None:
    """Refuse a model whose shards cannot be merged."""
    learned = "fit_" in vars(model) and model.fit_.learned
    settings = model.settings().resolved(learned)
    if (settings.seeks_scale and not learned) or settings.drifts:
        raise ValueError(
            "models to merge need a given prior_scale, forgetting=1, process_noise=0 and drift=None, or "
            "both learned on the way."
        )
    if model.get_params().get("noise_scale") == "auto":
        raise ValueError(
            "linear models that learn their noise have priors in units of it and cannot be merged; "
            "fit the shards with a noise_scale."
        )
    if settings.rank is not None and settings.prior is not None:
        check_prior("posteriors of a rank", settings.prior)


def begin_ascent(fit: LinearFit, known: Gaussian | None) -> Ascent:
    """An ascent from the posterior of a fit; its prior is that of the fit, or the posterior `known` before
    its rows."""
    with matching_precision(fit.settings.dtype):
        state = on_device(_best(fit))
        return state.posterior.ascent(on_device(fit.stream.prior() if known is None else known))


def without_fit(model: LinearEstimator) -> Any:
    """A model that knows the form of its rows and has learned nothing."""
    new: Any = clone(model)
    new.__dict__.update({name: vars(model)[name] for name in SHAPES if name in vars(model)})
    return new


def add_up(model: LinearEstimator, visited: Updatable, sums: RowSums, rows: Rows) -> RowSums:
    """The sums with further rows added, which the model checks."""
    settings, likelihood = model.settings(), model.family().likelihood
    with matching_precision(settings.dtype):
        size = visited_rows(visited.dim)
        batches = streams.array_batches(*rows, block_size=size, **settings.layout)
        rule = SumPass(Model(linear_predictor(likelihood.outputs), likelihood), visited)
        found = run.resume(rule, jax.tree.map(jnp.asarray, sums), batches)
        return jax.tree.map(np.asarray, found)


def turn(ascent: Ascent, sums: RowSums, dtype: Any) -> Ascent:
    """The ascent after a pass over all rows."""
    with matching_precision(dtype):
        return run.call(_turn, ascent, jax.tree.map(jnp.asarray, sums))


def end_ascent(fit: LinearFit, ascent: Ascent) -> LinearFit:
    """The fit with the posterior of the ascent; its evidence stays that of the stream."""
    with matching_precision(fit.settings.dtype):
        posterior, gap = run.call(_reached, ascent)
        state = on_device(_best(fit))
        state = eqx.tree_at(lambda s: s.posterior, state, posterior)
    close = float(gap) <= CLOSE * posterior.dim
    optimum = Optimum(1 + int(ascent.passes), float(ascent.elbo), float(gap), close)
    return fit.with_state(state, fit.n_rows, optimum)


def _turn(ascent: Ascent, sums: RowSums) -> Ascent:
    return ascent.turn(sums)


def _reached(ascent: Ascent) -> tuple[Updatable, Float[Array, ""]]:
    return ascent.posterior, ascent.gap()
