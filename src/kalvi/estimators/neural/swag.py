"""SWAG: training, and then a Gaussian fitted to the iterates at a constant rate, once or several times.

What fits the Gaussian is a kind of `Collector`: SWAG's own deviations, or factor analysis.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from kalvi.collectors import Collector
from kalvi.estimators.neural.problem import LearnedNetwork, NetworkProblem
from kalvi.evaluation.predictions import squared_residuals
from kalvi.gaussians.mixture import Mixture
from kalvi.predictors.models import Model
from kalvi.rules import evidence
from kalvi.streams import run

PRETRAINED = 0.75
"""The share of the epochs after which SWAG begins to collect."""
SWAG_RATE = 0.1
"""The constant learning rate of SWAG, as a share of the training's."""


def fit_swag(
    problem: NetworkProblem,
    before: LearnedNetwork | None = None,
    *,
    member: int = 0,
    kind: str = "swag",
) -> LearnedNetwork:
    """The Gaussian of the iterates of training number `member`, for a kind of collector."""
    model, theta = problem.start(member)
    hyper = problem.first_hyper(model, theta)
    pretrained = max(int(PRETRAINED * problem.epochs), 1)
    collected = max(problem.epochs - pretrained, 2 * (problem.rank or 2))
    rule, collector = problem.training(model, hyper), Collector(kind, rank=problem.rank or 0)
    with problem.progress(pretrained + collected) as bar:
        state = problem.train(rule, rule.init(theta), 0, pretrained, bar)
        model = _with_residual_noise(problem, model, state.theta)
        calm = eqx.tree_at(lambda r: (r.model, r.rate), rule, (model, SWAG_RATE * rule.rate))
        calm = eqx.tree_at(lambda r: r.horizon, calm, None, is_leaf=lambda x: x is None)
        state = calm.init(state.theta)
        for epoch in range(collected):
            state = problem.train(calm, state, pretrained + epoch, 1, bar)
            collector.collect(np.asarray(state.theta))
    q = collector.posterior
    model = _with_residual_noise(problem, model, q.mean)
    return LearnedNetwork(model, q, np.asarray(hyper.prior_precision), None)


def fit_multiswag(
    problem: NetworkProblem, before: LearnedNetwork | None = None, *, kind: str = "swag"
) -> LearnedNetwork:
    """A mixture of the Gaussians of several runs."""
    fits = [fit_swag(problem, member=member, kind=kind) for member in range(problem.members)]
    model, noises = fits[0].model, [fit.model.noise_variance() for fit in fits]
    found = [noise for noise in noises if noise is not None]
    if found:
        model = model.with_noise(jnp.mean(jnp.stack(found), axis=0))
    return fits[0]._replace(model=model, posterior=Mixture([fit.posterior for fit in fits]))


def _with_residual_noise(problem: NetworkProblem, model: Model, theta) -> Model:
    """The model with the noise of the residuals."""
    if model.noise_variance() is None or not problem.learn_noise:
        return model
    squares = run.call(squared_residuals, model, jnp.asarray(theta), problem.batch)
    return model.with_noise(jnp.maximum(squares / problem.n_samples, evidence.SMALLEST_NOISE))
