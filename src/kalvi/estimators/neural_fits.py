"""How a network gets its posterior: four methods from the same rows to a Gaussian or a mixture of them.

vifa       training by Adam, in rounds with variational inference of the covariance and MacKay's updates
           of the prior precisions and the noise; a full covariance where there is room for one
swag       training, then the Gaussian of the iterates at a constant learning rate
multiswag  several of the last, from different starts
lrvga      one pass over the rows, nothing trained before
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from tqdm import tqdm

from kalvi.collectors import Collector
from kalvi.evaluation.predictions import squared_residuals
from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.gaussians.ascents import Sums
from kalvi.gaussians.mixture import Mixture
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron
from kalvi.rules import evidence
from kalvi.rules.base import Batch
from kalvi.rules.revisit import AddedUp, Revisit, Revisiting
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.rules.training import Trained, Training
from kalvi.rules.vifa import PrecisionVI
from kalvi.streams import run

ROUNDS = 10
"""Between rounds of training the prior precisions and the noise are brought up to the evidence."""
POLISH = 3
"""Natural-gradient steps of the mean at most, after the training; one makes a linear model exact."""
PRETRAINED = 0.75
"""The share of the epochs before SWAG begins to collect."""
SWAG_RATE = 0.1
"""The constant learning rate of SWAG, as a share of the training's."""
NETWORK_BLOCK = 8
"""Rows between two linearisations of a network that is learned in one pass."""
ROW_NUMBERS = 2**24
"""Numbers in the Jacobian of a batch, where a low-rank precision is learned."""
ROWS_PER_FACTOR = 4
"""Rows of the Jacobian of a batch for each factor: more cost more, and say the same."""
ROUND_BATCHES, LAST_BATCHES = 10, 100
"""Batches that a low-rank precision learns from in each round, and in the end."""
PASS_ROWS, ROUND_ROWS = 256, 2048
"""Rows that a pass for a full covariance holds the Jacobian of, and rows that stand for all in a round."""


class Problem(NamedTuple):
    """What there is to learn, and how."""

    perceptron: Perceptron
    likelihood: Any
    batch: Batch  # padded to whole batches
    n_samples: float
    batch_size: int
    epochs: int
    rate: float
    rank: int | None  # None for a full covariance
    learn_prior: bool
    learn_noise: bool
    prior_precision: float
    dtype: Any
    key: PRNGKeyArray
    verbose: bool

    def start(self, member: int = 0) -> tuple[Model, Any]:
        """The model, and random parameters."""
        network, theta = self.perceptron.network(jr.fold_in(self.key, member), self.dtype)
        return Model(network, self.likelihood), theta


class Fitted(NamedTuple):
    """What came out."""

    model: Model
    posterior: Any
    prior_precision: np.ndarray
    elbo: float | None
    state: Any = None  # of a stream that can go on


def fit_vifa(problem: Problem) -> Fitted:
    """Training and variational inference in turns."""
    model, theta = problem.start()
    hyper = _first_hyper(problem, model, theta)
    rule = _training(problem, model, hyper)
    state: Trained = rule.init(theta)
    learn = _full if problem.rank is None else _low_rank
    q: Any = None
    ends = np.linspace(0, problem.epochs, min(ROUNDS, problem.epochs) + 1).astype(int)
    with _bar(problem, problem.epochs) as bar:
        for number, (first, last) in enumerate(pairwise(ends)):
            state = _epochs(problem, rule, state, int(first), int(last - first), bar)
            q = learn(problem, model, hyper, state.theta, q, number)
            hyper = _brought_up(problem, model, q, hyper)
            model = _noisy(model, hyper)
            rule = eqx.tree_at(
                lambda r: (r.model, r.prior_precision), rule, (model, hyper.prior_precision)
            )
    q, elbo = learn(problem, model, hyper, state.theta, q, None), None
    if problem.rank is None:
        q, elbo = _polished(problem, model, hyper, q)
    return Fitted(model, q, np.asarray(hyper.prior_precision), elbo)


def fit_swag(problem: Problem, member: int = 0) -> Fitted:
    """The Gaussian of the iterates."""
    model, theta = problem.start(member)
    hyper = _first_hyper(problem, model, theta)
    before = max(int(PRETRAINED * problem.epochs), 1)
    after = max(problem.epochs - before, 2 * (problem.rank or 2))
    rule, collector = _training(problem, model, hyper), Collector("swag", rank=problem.rank or 0)
    with _bar(problem, before + after) as bar:
        state = _epochs(problem, rule, rule.init(theta), 0, before, bar)
        model = _with_residual_noise(problem, model, state.theta)
        calm = eqx.tree_at(lambda r: (r.model, r.rate), rule, (model, SWAG_RATE * rule.rate))
        calm = eqx.tree_at(lambda r: r.horizon, calm, None, is_leaf=lambda x: x is None)
        state = calm.init(state.theta)
        for epoch in range(after):
            state = _epochs(problem, calm, state, before + epoch, 1, bar)
            collector.collect(np.asarray(state.theta))
    q = collector.posterior
    model = _with_residual_noise(problem, model, q.mean)
    return Fitted(model, q, np.asarray(hyper.prior_precision), None)


def fit_multiswag(problem: Problem, members: int) -> Fitted:
    """A mixture of the Gaussians of several runs."""
    fits = [fit_swag(problem, member) for member in range(members)]
    model, noises = fits[0].model, [fit.model.noise_variance() for fit in fits]
    found = [noise for noise in noises if noise is not None]
    if found:
        model = model.with_noise(jnp.mean(jnp.stack(found), axis=0))
    return fits[0]._replace(model=model, posterior=Mixture([fit.posterior for fit in fits]))


def fit_lrvga(problem: Problem, before: Fitted | None = None) -> Fitted:
    """One pass over the rows, or more rows after those of `before`."""
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
        state: Streaming = rule.init(_prior(problem, theta, alpha))
    else:
        alpha, state = jnp.asarray(before.prior_precision), before.state
    with _bar(problem, len(problem.batch.weight), " rows") as bar:
        state = run.resume(rule, state, _cut(problem, 8 * rule.block_size, bar))
    noise = state.noise if rule.learn_noise else None
    fitted = model if noise is None else model.with_noise(noise.variance)
    return Fitted(fitted, state.posterior, np.asarray(alpha), None, state)


def _training(problem: Problem, model: Model, hyper: evidence.Hyper) -> Training:
    steps = problem.epochs * (len(problem.batch.weight) // problem.batch_size)
    return Training(
        model,
        problem.n_samples,
        hyper.prior_precision,
        rate=problem.rate,
        horizon=float(max(steps, 1)),
        batch_size=problem.batch_size,
    )


def _epochs(problem: Problem, rule, state, first: int, n: int, bar: tqdm):
    """Some epochs of training."""

    def shown(_: Any) -> None:
        bar.update()

    key = jr.fold_in(problem.key, 2**20)
    return run.resume(
        rule, state, [problem.batch] * n, key=key, first_block=first, after_block=shown
    )


def _first_hyper(problem: Problem, model: Model, theta) -> evidence.Hyper:
    alpha = jnp.full_like(theta, problem.prior_precision)
    noise = model.noise_variance()
    noise = jnp.ones(1, theta.dtype) if noise is None else noise.astype(theta.dtype)
    return evidence.Hyper(alpha, noise, jnp.zeros((), theta.dtype))


def _brought_up(problem: Problem, model: Model, q, hyper: evidence.Hyper) -> evidence.Hyper:
    """The hyperparameters after a round."""
    squares = jnp.zeros_like(hyper.noise)
    if model.noise_variance() is not None:
        squares = run.call(squared_residuals, model, q.mean, problem.batch)
    groups = problem.perceptron.groups()
    found = run.call(
        evidence.updated,
        q,
        hyper,
        jnp.asarray(groups),
        int(groups.max()) + 1,
        squares,
        jnp.asarray(problem.n_samples, squares.dtype),
    )
    if not problem.learn_prior:
        found = found._replace(prior_precision=hyper.prior_precision)
    return found if problem.learn_noise else found._replace(noise=hyper.noise)


def _full(problem: Problem, model: Model, hyper, theta, q, number: int | None):
    """A full covariance at the mean that was trained: from some of the rows, in the end from all."""
    prior = _prior_of(hyper)
    q = Dense.from_root(theta, prior.root) if q is None else q
    q = eqx.tree_at(lambda q: q.mean, q, theta)
    rows = problem if number is None else _some_rows(problem, number)
    rule = AddedUp(model, q)
    found = run.resume(rule, rule.init(), _cut(rows, PASS_ROWS))
    return run.call(_at_target, q, prior, found)


def _at_target(q: Dense, prior: Dense, found: Sums) -> Dense:
    """The Gaussian visited, with the precision that the rows and the prior ask for there."""
    return q.toward(found.curvature + q.gather(prior.precision), prior)


def _polished(problem: Problem, model: Model, hyper: evidence.Hyper, q: Dense):
    """Natural-gradient steps as long as the bound rises, and the bound."""
    rule, prior = Revisit(model), _prior_of(hyper)
    state: Revisiting = run.call(_begun, rule, prior, q)
    state = run.resume(rule, state, _cut(problem, PASS_ROWS))
    state = run.call(Revisit.turn, rule, state)
    for _ in range(POLISH):
        before = float(state.ascent.elbo)
        state = run.resume(rule, state, _cut(problem, PASS_ROWS))
        state = run.call(Revisit.turn, rule, state)
        if not float(state.ascent.elbo) > before:
            break
    return state.posterior, float(state.ascent.elbo)


def _begun(rule: Revisit, prior: Dense, start: Dense) -> Revisiting:
    return rule.init(prior, start=start)


def _prior_of(hyper: evidence.Hyper) -> Dense:
    deviations = 1 / jnp.sqrt(hyper.prior_precision)
    return Dense.from_root(jnp.zeros_like(deviations), jnp.diag(deviations))


def _low_rank(problem: Problem, model: Model, hyper, theta, q, number: int | None):
    """A precision of low rank, from some batches at the mean that was trained.

    The mean stays: a batch has a few rows a factor, too few to say where it should go.
    """
    if q is None:
        q = _prior(problem, theta, hyper.prior_precision)
    rule = PrecisionVI(model, problem.n_samples, hyper.prior_precision, mean_step=0.0)
    outputs = model.likelihood.outputs
    size = min(ROW_NUMBERS // len(theta), ROWS_PER_FACTOR * q.precision.factor.shape[1]) // outputs
    size = min(max(size, 1), len(problem.batch.weight))
    many = LAST_BATCHES if number is None else ROUND_BATCHES
    key = jr.fold_in(problem.key, 2**21 + (ROUNDS if number is None else number))
    q = eqx.tree_at(lambda q: q.mean, q, theta)
    state = run.resume(rule, rule.init(q), _drawn(problem, size, many, key), key=key)
    return state.posterior


def _prior(problem: Problem, theta, alpha) -> Any:
    if problem.rank is None:
        return Dense.from_root(theta, jnp.diag(1 / jnp.sqrt(alpha)))
    return LowRankPrecision(theta, jnp.zeros((len(theta), problem.rank), theta.dtype), alpha)


def _cut(problem: Problem, size: int, bar: tqdm | None = None):
    """All rows, `size` of them at a time, the last ones padded."""
    n = len(problem.batch.weight)
    for first in range(0, n, size):
        part = [a[first : first + size] for a in problem.batch]
        short = size - len(part[2])
        yield Batch(*(jnp.pad(a, [(0, short)] + [(0, 0)] * (a.ndim - 1)) for a in part))
        if bar is not None:
            bar.update(size - short)


def _some_rows(problem: Problem, number: int) -> Problem:
    """A problem of fewer rows that weigh as much, others each time; a small one as it is."""
    n = len(problem.batch.weight)
    if n <= ROUND_ROWS:
        return problem
    part = next(_drawn(problem, ROUND_ROWS, 1, jr.fold_in(problem.key, 2**22 + number)))
    share = jnp.sum(part.weight) / problem.n_samples
    return problem._replace(batch=part._replace(weight=part.weight / share))


def _drawn(problem: Problem, size: int, many: int, key: PRNGKeyArray):
    """Random batches of rows."""
    real = np.flatnonzero(np.asarray(problem.batch.weight) > 0)  # the others are padding
    rng = np.random.default_rng(np.asarray(jr.key_data(key)))
    for _ in range(many):
        which = (
            real[rng.integers(0, len(real), size)]
            if len(real) < size
            else rng.permutation(real)[:size]
        )
        yield Batch(*(a[which] for a in problem.batch))


def _noisy(model: Model, hyper: evidence.Hyper) -> Model:
    return model if model.noise_variance() is None else model.with_noise(hyper.noise)


def _with_residual_noise(problem: Problem, model: Model, theta) -> Model:
    """The model with the noise that the residuals show."""
    if model.noise_variance() is None or not problem.learn_noise:
        return model
    squares = run.call(squared_residuals, model, jnp.asarray(theta), problem.batch)
    return model.with_noise(jnp.maximum(squares / problem.n_samples, evidence.SMALLEST_NOISE))


def _bar(problem: Problem, total: int, unit: str = " epochs") -> tqdm:
    return tqdm(total=total, unit=unit, disable=not problem.verbose)


FITS: dict[str, Callable[..., Fitted]] = {
    "vifa": fit_vifa,
    "swag": fit_swag,
    "multiswag": fit_multiswag,
    "lrvga": fit_lrvga,
}
