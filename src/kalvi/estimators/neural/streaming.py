"""L-RVGA: the posterior of a network by one pass over the rows, without training."""

import jax.numpy as jnp
import numpy as np

from kalvi.estimators.neural.problem import LearnedNetwork, NetworkProblem
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import run

NETWORK_BLOCK = 8
"""The number of rows between two linearisations of a network that is learned in one pass."""


def fit_lrvga(problem: NetworkProblem, before: LearnedNetwork | None = None) -> LearnedNetwork:
    """One pass over the rows, continuing from `before` if it is given."""
    model, theta = problem.start()
    model = model if before is None else before.model
    rule = RVGA(
        model.likelihood,
        predictor=model.predictor,
        look_ahead=1,
        block_size=NETWORK_BLOCK,
        learn_noise=problem.learn_noise and model.likelihood.noisy,
    )
    if before is None:
        widths = problem.perceptron.fan_in() if problem.learn_prior else problem.prior_precision
        alpha = jnp.broadcast_to(jnp.asarray(widths, problem.dtype), theta.shape)
        state: Streaming = rule.init(problem.prior(theta, alpha))
    else:
        alpha, state = jnp.asarray(before.prior_precision), before.state
    with problem.progress(len(problem.batch.weight), " rows") as bar:
        state = run.resume(rule, state, problem.blocks(8 * rule.block_size, bar))
    noise = state.noise if rule.learn_noise else None
    fitted = model if noise is None else model.with_noise(noise.variance)
    return LearnedNetwork(fitted, state.posterior, np.asarray(alpha), None, state)
