"""The optimum of the variational bound from the prior, without a stream: method="klprox"."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from kalvi import run, streams
from kalvi.algorithms.base import Batch
from kalvi.algorithms.klprox.weights import Weights, in_function_space, in_weight_space
from kalvi.algorithms.rvga import RVGA, Streaming
from kalvi.estimators import settings
from kalvi.estimators.climbs import MOST_PASSES, Found
from kalvi.gaussians import Gaussian, LowRankPrecision
from kalvi.likelihoods import Likelihood
from kalvi.namespaces import on_device

GAP = 1e-12
"""Squared natural-gradient norm, in nats, at which the ascent stops."""


def solve(model: Any, scales: Sequence[Any], rows: tuple) -> tuple[Streaming, Found, Any]:
    """The state of a model at the optimum, for the prior scale with the most evidence.

    Each ascent but the first begins at the optimum before it.
    """
    likelihood, start, best = model._stream_likelihood(), None, None
    shape = rows[0].shape[1], model._outputs()
    batch = streams.whole_batch(*rows, **model._layout())
    most = jnp.asarray(MOST_PASSES if model.passes == "auto" else int(model.passes))
    rule = RVGA(likelihood, predictor=model._predictor())
    optimum = _in_weight_space
    if isinstance(likelihood, Likelihood) and len(rows[1]) < batch.x.shape[1]:
        optimum = _in_function_space
    for scale in tqdm(scales, unit=" priors", disable=not (model.verbose and len(scales) > 1)):
        prior = settings.plain_prior(model.get_params(), scale, shape, model.dtype)
        found: Weights = _trimmed(run.call(optimum, likelihood, prior, batch, start, most))
        start = found.posterior
        state = _state(model, rule, prior, found, rows)
        if best is None or model._evidence(state) > model._evidence(best[0]):
            best = state, found, scale
    assert best is not None
    state, found, scale = best
    elbo = model._evidence(state)  # with a learned noise, integrated over it
    numbers = int(found.passes), elbo, float(found.gap), bool(found.converged)
    return state, Found(found.posterior, *numbers), scale


def streamable(state: Any, rank: int | None) -> Any:
    """A state of JAX arrays whose posterior has the structure that its stream goes on with."""
    state = on_device(state)
    posterior = state.posterior
    if rank is not None or not isinstance(posterior, LowRankPrecision):
        return state
    return eqx.tree_at(lambda s: s.posterior, state, posterior.to_dense())


def _state(model: Any, rule: RVGA, prior: Any, found: Weights, rows: tuple) -> Streaming:
    """What a stream would have left: the bound is the evidence of the rows."""
    total = jnp.asarray(rows[2].sum(), found.elbo.dtype)
    posterior: Any = found.posterior
    state = rule.init(posterior)
    state = eqx.tree_at(lambda s: (s.log_evidence, s.rows), state, (found.elbo, total))
    state = model._refitted(state, prior, rows)
    return eqx.tree_at(lambda s: s.log_evidence, state, found.elbo)


def _trimmed(found: Weights) -> Weights:
    """The same without the factors of rows that only fill the batch up."""
    q = found.posterior
    if not isinstance(q, LowRankPrecision):
        return found
    factor = q.precision.factor
    seen = np.flatnonzero(np.any(np.asarray(factor) != 0, axis=0))
    return found._replace(posterior=LowRankPrecision(q.mean, factor[:, seen], q.precision.diag))


def _in_weight_space(likelihood, prior, batch: Batch, start: Gaussian | None, limit) -> Weights:
    return in_weight_space(likelihood, prior, batch, start, max_passes=limit, tolerance=GAP)


def _in_function_space(likelihood, prior, batch: Batch, start: Gaussian | None, limit) -> Weights:
    return in_function_space(likelihood, prior, batch, start, max_passes=limit, tolerance=GAP)
