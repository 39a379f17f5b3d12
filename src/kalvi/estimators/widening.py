"""More features for a model that has learned: as if they had been there, zero in every row."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from kalvi import streams
from kalvi.estimators.common import all_or_nothing
from kalvi.estimators.optimum import streamable
from kalvi.estimators.states import Settled
from kalvi.numerics.precision import matching


class Widening:
    """What a streaming model does when rows get wider."""

    n_features_in_: int
    prior: Any
    dtype: Any

    @all_or_nothing
    def widen(self, n_features: int) -> "Widening":
        """More features, `n_features` in all: as if they had been there before, zero in every row."""
        check_is_fitted(self, "state_")
        if n_features < self.n_features_in_ or self.prior is not None:
            raise ValueError(
                f"widen needs {self.n_features_in_} features or more and a model without prior=; "
                f"got n_features={n_features}, prior={self.prior!r}."
            )
        with matching(self.dtype):
            self.state_, self.buffer_ = widened(self, n_features)
        self.n_features_in_ = n_features
        self._settled = Settled(self)
        return self


def widened(model: Any, n_features: int) -> tuple[Any, streams.Buffer]:
    """The state and the waiting rows of a streaming model with so many features in all.

    A feature that was zero in every row leaves its coefficient at the prior, independent of all others: the
    result is what learning from the wider rows would have given, with a low rank up to its projection,
    which counts the features.
    """
    places = parameter_places(model, np.arange(model.n_features_in_), n_features)
    state, prior = streamable(model.state_, model.rank), model._priors(n_features)
    put = eqx.filter_vmap(_put, in_axes=(0, 0, None)) if model._on_grid() else _put
    posterior = put(state.posterior, prior, places)
    return eqx.tree_at(lambda s: s.posterior, state, posterior), _wider(model.buffer_, n_features)


def parameter_places(model: Any, features: np.ndarray, n_features: int) -> Any:
    """Where the parameters of features, the intercept last, are among those of more, for every output."""
    intercept = bool(model.fit_intercept)
    own = np.append(features, [n_features] * intercept).astype(int)
    return jnp.asarray(
        np.concatenate([own + (n_features + intercept) * k for k in range(model._outputs())])
    )


def _put(posterior: Any, prior: Any, places: Any) -> Any:
    return posterior.among(prior, places)


def _wider(buffer: streams.Buffer, n_features: int) -> streams.Buffer:
    """The waiting rows with zeros for the new features."""
    if buffer.waiting is None:
        return buffer
    x, y, weight = buffer.waiting
    if sp.issparse(x):
        x = sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], n_features))
    else:
        x = np.pad(x, [(0, 0), (0, n_features - x.shape[1])])
    return buffer._replace(waiting=(x, y, weight))
