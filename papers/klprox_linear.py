"""Bayesian logistic regression with w ~ N(0, δ I): one method after the other over a grid of δ.

`proximal` is the variational optimum by kalvi: in the weights with `vga` where there are no more columns
than rows, in the predictors with `klprox` and the kernel δ X Xᵀ where there are, each δ from the optima of
those before. δ is chosen by the bound, for MAP by cross-validation in five folds. Losses are in bits.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.numerics.precision import matching_precision
from kalvi.rules.klprox.function_space import Sites
from kalvi.rules.rule import Batch
from kalvi.rules.vga import vga
from kalvi.streams import run
from papers import klprox_grid
from papers import klprox_linear_references as references
from papers.klprox_data import Split
from papers.klprox_references import laplace

FOLDS = 5
TOLERANCE = 1e-8
"""Of the squared natural-gradient norm in weight space, in nats."""


class Curve(NamedTuple):
    """A method over the grid: negative bounds, losses in bits, the δ it would choose, seconds in all."""

    deltas: np.ndarray
    bound: np.ndarray
    loss: np.ndarray
    choice: int
    seconds: float

    @property
    def chosen(self) -> tuple[float, float]:
        """Negative bound and loss at its choice."""
        return float(self.bound[self.choice]), float(self.loss[self.choice])


class Products(NamedTuple):
    """The inner products of rows, and of new rows with rows."""

    rows: np.ndarray
    cross: np.ndarray
    new: np.ndarray  # squared lengths


Method = Callable[[Split, np.ndarray], Curve]


def bits(probability: np.ndarray, y: np.ndarray) -> float:
    """Mean −log₂ p(y)."""
    return metrics.log_loss(probability, y) / float(np.log(2))


def products(split: Split) -> Products:
    """All that function space needs of the inputs."""
    return Products(
        split.x @ split.x.T,
        split.x_new @ split.x.T,
        np.einsum("ij,ij->i", split.x_new, split.x_new),
    )


def proximal(split: Split, deltas: np.ndarray) -> Curve:
    """The best Gaussian, in the smaller of the two spaces."""
    n, d = split.x.shape
    return weight_space(split, deltas) if d <= n else function_space(split, deltas)


def weight_space(split: Split, deltas: np.ndarray) -> Curve:
    """The best Gaussian over the weights."""
    bound, loss, start, d = [], [], None, split.x.shape[1]
    with matching_precision("float64"):
        rows = (split.x, split.y, np.ones(len(split.y)))
        batch, new = Batch(*map(jnp.asarray, rows)), jnp.asarray(split.x_new)
        prior = Dense(np.zeros(d), deltas[0] * np.eye(d))
        run.call(_probability, run.call(_optimum, prior, batch, prior).posterior, new)  # compiles
        began = time.process_time()
        for delta in deltas:
            prior = Dense(np.zeros(d), delta * np.eye(d))
            found = run.call(_optimum, prior, batch, start or prior)
            start = found.posterior
            bound.append(-float(found.elbo))
            loss.append(bits(np.asarray(run.call(_probability, start, new)), split.y_new))
    return _by_bound(deltas, bound, loss, time.process_time() - began)


def _optimum(prior: Dense, batch: Batch, start: Dense):
    return vga(Bernoulli(), prior, batch, start, tolerance=TOLERANCE)


def _probability(q: Dense, x):
    predicted = jax.vmap(lambda m, v: Bernoulli().predict(m, v)[0])
    return predicted(x @ q.mean, q.marginal_variance(x))


def function_space(split: Split, deltas: np.ndarray) -> Curve:
    """The best Gaussian over the predictors of the rows."""
    given, solve = products(split), klprox_grid.proximal(Bernoulli())

    def task(delta: float) -> klprox_grid.Task:
        cov, cross, var = (delta * a for a in given)
        return klprox_grid.Task(cov, cross, var, split.y, split.y_new)

    solve(task(deltas[0]), None)  # compiles
    bound, loss, start, before, began = [], [], None, None, time.process_time()
    for delta in deltas:
        ahead = _ahead(start, before)
        before, (start, score, evidence, *_) = start, solve(task(delta), ahead)
        bound.append(-evidence)
        loss.append(-np.mean(score) / np.log(2))
    return _by_bound(deltas, bound, loss, time.process_time() - began)


def _ahead(sites: Sites | None, before: Sites | None) -> Sites | None:
    """As far ahead of the sites as they are of those before them; curvatures by their ratio."""
    if sites is None or before is None:
        return sites
    with matching_precision("float64"):
        growth = jnp.clip(sites.curvature / before.curvature, 0.1, 10.0)
        return Sites(2 * sites.pull - before.pull, growth * sites.curvature)


def _by_bound(deltas: np.ndarray, bound: list[float], loss: list[float], seconds: float) -> Curve:
    return Curve(deltas, np.array(bound), np.array(loss), int(np.argmin(bound)), seconds)


def approximate(fit: Callable[..., references.Weights], split: Split, deltas: np.ndarray) -> Curve:
    """A Gaussian over the weights by one of the references."""
    bound, loss, start, began = [], [], None, time.process_time()
    for delta in deltas:
        start = fit(split.x, split.y, delta, start)
        bound.append(start.bound)
        loss.append(bits(start.probability(split.x_new), split.y_new))
    return _by_bound(deltas, bound, loss, time.process_time() - began)


mean_field: Method = partial(approximate, references.mean_field)
cholesky: Method = partial(approximate, references.cholesky_optimum)


def mode(split: Split, deltas: np.ndarray) -> Curve:
    """MAP, its δ by cross-validation."""
    began, n = time.process_time(), len(split.y)
    folds = np.random.default_rng(0).permutation(n) % FOLDS
    held_out = np.mean([_fold(split, folds == k, deltas) for k in range(FOLDS)], axis=0)
    loss = _modes(split, deltas)
    choice = int(np.argmin(held_out))
    none = np.full(len(deltas), np.nan)
    return Curve(deltas, none, loss, choice, time.process_time() - began)


def _fold(split: Split, out: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    return _modes(Split(split.x[~out], split.y[~out], split.x[out], split.y[out]), deltas)


def _modes(split: Split, deltas: np.ndarray) -> np.ndarray:
    """The losses of the modes at every δ."""
    losses, start = [], None
    if split.x.shape[1] <= len(split.y):
        for delta in deltas:
            start = references.mode(split.x, split.y, delta, start)
            losses.append(bits(expit(split.x_new @ start.mean), split.y_new))
        return np.array(losses)
    given = products(split)
    for delta in deltas:
        start = laplace(delta * given.rows, split.y, start)
        losses.append(bits(expit(delta * given.cross @ start.coefficients), split.y_new))
    return np.array(losses)
