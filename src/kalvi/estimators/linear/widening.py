"""A fit with room for further features, such as those of levels that come later."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
import scipy.sparse as sp

from kalvi import streams
from kalvi.estimators.linear.fit import LinearFit
from kalvi.estimators.linear.stream import streams_of, with_streams
from kalvi.rules.rvga import Streaming
from kalvi.streams import run


def widen(fit: LinearFit, n_features: int) -> LinearFit:
    """The fit with so many features in all.

    The coefficient of a feature that was zero in every row keeps its prior, independent of all others.
    So the result is that of learning the wider rows, with a low rank up to its projection, which
    depends on the number of features.
    """
    wider = replace(fit.stream, n_features=n_features)
    if wider.points != fit.stream.points:
        before, after = fit.stream.schedule.largest, wider.schedule.largest
        raise ValueError(
            f"a stream that learns its drift in blocks of {before} rows cannot go on in blocks of {after}, "
            f"as suit {n_features:,} features; begin it with block_size={after}."
        )
    state = fit.resumable(fit.state)
    places = fit.parameter_indices(np.arange(fit.n_features), n_features)
    pairs = zip(streams_of(state), wider.points_of(state), strict=True)
    posteriors = [
        run.call(_embed, stream.posterior, wider.prior(point), places) for stream, point in pairs
    ]
    anchored = streams_of(wider.with_anchor(state))
    state = with_streams(
        state,
        [_widened(*parts) for parts in zip(streams_of(state), posteriors, anchored, strict=True)],
    )
    buffer = _widen_buffer(fit.buffer, n_features)
    return fit.changed(stream=wider, state=state, buffer=buffer, ahead=None)


def _embed(posterior: Any, prior: Any, places: Any) -> Any:
    return posterior.embed(prior, places)


def _widened(stream: Streaming, posterior: Any, anchored: Streaming) -> Streaming:
    """A stream with a wider posterior and its anchor."""
    stream = eqx.tree_at(lambda s: s.posterior, stream, posterior)
    if stream.drifting is None or anchored.drifting is None:
        return stream
    return eqx.tree_at(lambda s: s.drifting.anchor, stream, anchored.drifting.anchor)


def _widen_buffer(buffer: streams.Buffer, n_features: int) -> streams.Buffer:
    """The waiting rows with zeros for the new features."""
    if buffer.waiting is None:
        return buffer
    x, *others = buffer.waiting
    if sp.issparse(x):
        x = sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], n_features))
    else:
        x = np.pad(x, [(0, 0), (0, n_features - x.shape[1])])
    return buffer._replace(waiting=(x, *others))
