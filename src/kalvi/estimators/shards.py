"""Streaming models of shards into one of all their rows."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from sklearn.base import clone

from kalvi import streams
from kalvi.estimators.states import Settled
from kalvi.estimators.widening import parameter_places
from kalvi.merging import merge
from kalvi.precision import matching


def joined(models: Sequence[Any], places: Sequence[np.ndarray], n_features: int) -> Any:
    """One model from those of shards that began with the same prior and forgot nothing.

    `places` says for each shard where its features are among the `n_features` of all; what a shard has not
    seen it leaves at the prior. The evidence is the sum of the shards', each as if it were alone.
    """
    new: Any = clone(models[0])
    _check(models)
    settled = [model._current() for model in models]
    with matching(new.dtype):
        new.__dict__.update(_labels(models[0]), n_features_in_=n_features)
        prior = new._priors(n_features)
        posteriors = [
            best.posterior.among(prior, parameter_places(new, where, n_features))
            for (_, best, _), where in zip(settled, places, strict=True)
        ]
        state = jax.tree.map(lambda *parts: sum(parts), *(_counts(best) for _, best, _ in settled))
        whole = merge(posteriors, prior)
        new.state_ = eqx.tree_at(lambda s: s.posterior, state, whole, is_leaf=lambda x: x is None)
    rows = sum(model.buffer_.seen + model.buffer_._count() for model in models)
    new.buffer_, new.structure_, new.n_passes_ = streams.Buffer(rows), new._structure(), 1
    new._settled = Settled(new)
    return new


def _check(models: Sequence[Any]) -> None:
    first = models[0]
    for model in models:
        if model.get_params() != first.get_params():
            raise ValueError("the models to merge have different parameters; fit them alike.")
        if model._seeks_scale() or model.forgetting != 1 or model.process_noise != 0:
            raise ValueError(
                "models to merge need a given prior_scale, forgetting=1 and process_noise=0."
            )
        if getattr(model, "noise_scale", None) == "auto":
            raise ValueError(
                "linear models that learn their noise have priors in units of it and cannot be merged; "
                "fit the shards with a noise_scale."
            )


def _labels(model: Any) -> dict[str, Any]:
    return {name: vars(model)[name] for name in ("classes_",) if name in vars(model)}


def _counts(state: Any) -> Any:
    return eqx.tree_at(lambda s: s.posterior, state, None)
