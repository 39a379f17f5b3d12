"""Streaming models of shards into one of all their rows."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from sklearn.base import clone

from kalvi import streams
from kalvi.estimators.optimum import streamable
from kalvi.estimators.states import Settled
from kalvi.estimators.widening import parameter_places
from kalvi.gaussians.merging import check, check_different, check_prior, combined, proper
from kalvi.numerics.precision import matching
from kalvi.streams import run


def joined(
    models: Sequence[Any],
    places: Sequence[np.ndarray] | None = None,
    n_features: int | None = None,
    *,
    again: bool = False,
) -> Any:
    """One model from those of shards that began with the same prior and forgot nothing.

    `places` says for each shard where its features are among the `n_features` of all; what a shard has not
    seen it leaves at the prior. Without them all have the same. The evidence is the sum of the shards',
    each as if it were alone. The same posterior twice is refused unless `again`.
    """
    new: Any = clone(models[0])
    _check(models)
    settled = [model._current() for model in models]
    kept = _kept(models[0]) if places is None else _labels(models[0])
    width = models[0].n_features_in_ if n_features is None else n_features
    with matching(new.dtype):
        new.__dict__.update(kept, n_features_in_=width)
        prior = new._priors(width)
        posteriors = [streamable(best, new.rank).posterior for _, best, _ in settled]
        if places is not None:
            posteriors = [
                q.among(prior, parameter_places(new, where, width))
                for q, where in zip(posteriors, places, strict=True)
            ]
        state = jax.tree.map(lambda *parts: sum(parts), *(_counts(best) for _, best, _ in settled))
        check(posteriors, prior)
        if not again:
            check_different(posteriors, prior)
        whole = proper(run.call(combined, tuple(posteriors), prior))
        new.state_ = eqx.tree_at(lambda s: s.posterior, state, whole, is_leaf=lambda x: x is None)
    rows = sum(model.buffer_.seen + model.buffer_._count() for model in models)
    new.buffer_, new.structure_, new.n_passes_ = streams.Buffer(rows), new._structure(), 1
    new._settled = Settled(new)
    return new


def check_mergeable(model: Any) -> None:
    """Refuse a model whose shards could not be put together."""
    if model._seeks_scale() or model.forgetting != 1 or model.process_noise != 0:
        raise ValueError(
            "models to merge need a given prior_scale, forgetting=1 and process_noise=0."
        )
    if getattr(model, "noise_scale", None) == "auto":
        raise ValueError(
            "linear models that learn their noise have priors in units of it and cannot be merged; "
            "fit the shards with a noise_scale."
        )
    if model.rank is not None and model.prior is not None:
        check_prior("posteriors of a rank", model.prior)


def _check(models: Sequence[Any]) -> None:
    first = models[0]
    check_mergeable(first)
    for model in models[1:]:
        if not same_settings(model.get_params(), first.get_params()):
            raise ValueError("the models to merge have different parameters; fit them alike.")
        one, other = (np.asarray(_labels(m).get("classes_", [])) for m in (first, model))
        if not np.array_equal(one, other):
            raise ValueError(
                f"the models to merge have different classes, {one.tolist()} and {other.tolist()}; "
                "name all of them in partial_fit(classes=...)."
            )


def same_settings(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two sets of parameters are equal; arrays and Gaussians among them by their numbers."""
    return a.keys() == b.keys() and all(eqx.tree_equal(_plain(a[k]), _plain(b[k])) for k in a)


def _plain(value: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf) if np.ndim(leaf) else leaf, value)


def _labels(model: Any) -> dict[str, Any]:
    return {name: vars(model)[name] for name in ("classes_",) if name in vars(model)}


def _kept(model: Any) -> dict[str, Any]:
    names = ("feature_names_in_",)
    return _labels(model) | {name: vars(model)[name] for name in names if name in vars(model)}


def _counts(state: Any) -> Any:
    return eqx.tree_at(lambda s: s.posterior, state, None)
