"""Rounds of training by Adam and variational inference of the covariance.

Between the rounds prior precisions and noise are updated by the evidence (MacKay's updates). A small
network has a full covariance.
"""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from kalvi.estimators.neural.problem import LearnedNetwork, NetworkProblem
from kalvi.evaluation.predictions import squared_residuals
from kalvi.gaussians import Dense, Diagonal
from kalvi.gaussians.ascents import NaturalAscent, RowSums, zero_sums
from kalvi.numerics.namespaces import on_device
from kalvi.predictors.models import Model
from kalvi.rules import evidence
from kalvi.rules.revisit import Revisit, RevisitState, SumPass
from kalvi.rules.training import TrainingState
from kalvi.rules.vifa import PrecisionVI
from kalvi.streams import run

ROUNDS = 10
"""The number of rounds; prior precisions and noise are updated by the evidence between them."""
POLISH = 3
"""The most natural-gradient steps of the mean after the training; one makes a linear model exact."""
ROW_NUMBERS = 2**24
"""The numbers in the Jacobian of a batch, if a low-rank precision is learned."""
ROWS_PER_FACTOR = 4
"""The rows of the Jacobian of a batch for each factor: more rows cost more, without a better result."""
ROUND_BATCHES, LAST_BATCHES = 10, 100
"""The number of batches from which a low-rank precision is learned in each round, and in the end."""
PASS_ROWS, ROUND_ROWS = 256, 2048
"""The rows whose Jacobian is held in a pass for a full covariance, and the rows sampled for a round."""


def fit_vifa(problem: NetworkProblem, before: LearnedNetwork | None = None) -> LearnedNetwork:
    """Alternate training and variational inference.

    Full covariances are computed by NumPy: most of it is matrix products and factorisations, for which
    NumPy is as fast as a program that has to be compiled.
    """
    seen = problem.on_host() if problem.rank is None else problem
    model, theta = seen.start()
    hyper = seen.first_hyper(model, theta)
    rule = problem.training(model, hyper)
    state: TrainingState = on_device(run.begin(rule, theta))
    learn = _full if problem.rank is None else _low_rank
    q: Any = None
    ends = np.linspace(0, problem.epochs, min(ROUNDS, problem.epochs) + 1).astype(int)
    with problem.progress(problem.epochs) as bar:
        for number, (first, last) in enumerate(pairwise(ends)):
            state = problem.train(rule, state, int(first), int(last - first), bar)
            q = learn(seen, model, hyper, seen.place(state.theta), q, number)
            hyper = _update_hyper(seen, model, q, hyper)
            model = _with_noise(model, hyper)
            rule = eqx.tree_at(
                lambda r: (r.model, r.prior_precision), rule, (model, hyper.prior_precision)
            )
    q, elbo = learn(seen, model, hyper, seen.place(state.theta), q, None), None
    if problem.rank is None:
        q, elbo = _polish(seen, model, hyper, q)
    return LearnedNetwork(*on_device((model, q)), np.asarray(hyper.prior_precision), elbo)


def _update_hyper(
    problem: NetworkProblem, model: Model, q, hyper: evidence.PriorAndNoise
) -> evidence.PriorAndNoise:
    """The hyperparameters after a round."""
    squares = 0 * hyper.noise
    if model.likelihood.noisy:
        squares = run.call(squared_residuals, model, q.mean, problem.batch)
    groups = problem.perceptron.groups()
    found = run.call(
        evidence.update_evidence,
        q,
        hyper,
        groups,
        int(groups.max()) + 1,
        squares,
        np.asarray(problem.n_samples, squares.dtype),
    )
    if not problem.learn_prior:
        found = found._replace(prior_precision=hyper.prior_precision)
    return found if problem.learn_noise else found._replace(noise=hyper.noise)


def _full(problem: NetworkProblem, model: Model, hyper, theta, q, number: int | None):
    """A full covariance at the trained mean, from a sample of the rows, and in the end from all."""
    q = run.call(_with_mean, hyper.prior_precision, theta, q)
    rows = problem if number is None else _some_rows(problem, number)
    found = run.resume(SumPass(model, q), run.call(zero_sums, q), rows.blocks(PASS_ROWS))
    return run.call(_at_target, q, hyper.prior_precision, found)


def _with_mean(precision: Array, theta: Array, q: Dense | None) -> Dense:
    """The last Gaussian, or the prior, with another mean."""
    return Dense.from_root(theta, (_prior_of(precision).to_dense() if q is None else q).root)


def _at_target(q: Dense, precision: Array, found: RowSums) -> Dense:
    """The visited Gaussian, with the best precision given the rows and the prior there."""
    prior = _prior_of(precision)
    return q.toward(found.curvature + q.gather(prior.precision), prior)


def _polish(problem: NetworkProblem, model: Model, hyper: evidence.PriorAndNoise, q: Dense):
    """Natural-gradient steps as long as the bound rises, and the bound."""
    rule = Revisit(model)
    state: RevisitState = run.call(_begin_polish, hyper.prior_precision, q)
    state = run.resume(rule, state, problem.blocks(PASS_ROWS))
    state = run.call(Revisit.turn, rule, state)
    for _ in range(POLISH):
        before = float(state.ascent.elbo)
        state = run.resume(rule, state, problem.blocks(PASS_ROWS))
        state = run.call(Revisit.turn, rule, state)
        if not float(state.ascent.elbo) > before:
            break
    return run.call(_posterior_of, state), float(state.ascent.elbo)


def _begin_polish(precision: Array, start: Dense) -> RevisitState:
    prior = _prior_of(precision).to_dense()
    return RevisitState.begin_pass(NaturalAscent.begin(prior, start, memory=POLISH - 1))


def _posterior_of(state: RevisitState) -> Dense:
    return state.posterior


def _prior_of(precision: Array) -> Diagonal:
    return Diagonal.from_parts(jnp.zeros_like(precision), 1 / precision)


def _low_rank(problem: NetworkProblem, model: Model, hyper, theta, q, number: int | None):
    """A low-rank precision from some batches at the trained mean.

    The mean does not change, because a batch has too few rows for each factor to improve it.
    """
    if q is None:
        q = problem.prior(theta, hyper.prior_precision)
    rule = PrecisionVI(model, problem.n_samples, hyper.prior_precision, mean_step=0.0)
    outputs = model.likelihood.outputs
    size = min(ROW_NUMBERS // len(theta), ROWS_PER_FACTOR * q.precision.factor.shape[1]) // outputs
    size = min(max(size, 1), len(problem.batch.weight))
    many = LAST_BATCHES if number is None else ROUND_BATCHES
    key = jr.fold_in(problem.key, 2**21 + (ROUNDS if number is None else number))
    q = eqx.tree_at(lambda q: q.mean, q, theta)
    state = run.resume(rule, rule.init(q), problem.draw(size, many, key), key=key)
    return state.posterior


def _some_rows(problem: NetworkProblem, number: int) -> NetworkProblem:
    """The problem with a random sample of rows, different each time and with the same total weight; a small
    problem unchanged."""
    n = len(problem.batch.weight)
    if n <= ROUND_ROWS:
        return problem
    part = next(problem.draw(ROUND_ROWS, 1, jr.fold_in(problem.key, 2**22 + number)))
    share = part.weight.sum() / problem.n_samples
    return problem._replace(batch=part._replace(weight=part.weight / share))


def _with_noise(model: Model, hyper: evidence.PriorAndNoise) -> Model:
    return model.with_noise(hyper.noise) if model.likelihood.noisy else model
