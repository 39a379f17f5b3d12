"""The optimum of the variational bound from the prior, without a stream: method="klprox"."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators import settings
from kalvi.estimators.climbs import MOST_PASSES, Found
from kalvi.gaussians import Gaussian
from kalvi.numerics.namespaces import on_device
from kalvi.rules.base import Batch
from kalvi.rules.klprox.weights import Weights, in_function_space, in_weight_space
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import run

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
    if likelihood.outputs == 1 and len(rows[1]) < batch.x.shape[1]:
        optimum = _in_function_space
    for scale in tqdm(scales, unit=" priors", disable=not (model.verbose and len(scales) > 1)):
        prior = settings.plain_prior(model.get_params(), scale, shape, model.dtype)
        found: Weights = run.call(optimum, likelihood, prior, batch, start, most)
        posterior: Any = found.posterior  # without the factors of rows that only fill the batch up
        found = found._replace(posterior=posterior.compact())
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
    if rank is not None:
        return state
    return eqx.tree_at(lambda s: s.posterior, state, state.posterior.to_dense())


def _state(model: Any, rule: RVGA, prior: Any, found: Weights, rows: tuple) -> Streaming:
    """What a stream would have left: the bound is the evidence of the rows."""
    total = jnp.asarray(rows[2].sum(), found.elbo.dtype)
    posterior: Any = found.posterior
    state = rule.init(posterior)
    state = eqx.tree_at(lambda s: (s.log_evidence, s.rows), state, (found.elbo, total))
    state = model._refitted(state, prior, rows)
    return eqx.tree_at(lambda s: s.log_evidence, state, found.elbo)


def _in_weight_space(likelihood, prior, batch: Batch, start: Gaussian | None, limit) -> Weights:
    return in_weight_space(likelihood, prior, batch, start, max_passes=limit, tolerance=GAP)


def _in_function_space(likelihood, prior, batch: Batch, start: Gaussian | None, limit) -> Weights:
    return in_function_space(likelihood, prior, batch, start, max_passes=limit, tolerance=GAP)
