"""A grid of hyperparameters, every method from the sites of the point before it.

The kernel is GPML's covSEiso, σ² exp(−|x − z|²/(2 l²)); the squared distances of a split are computed once,
and one compiled program serves every point of the grid. The loss is the mean −log p(y | x) of the new rows,
in nats: probabilities of labels, densities of standardised targets.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from kalvi.likelihoods import Bernoulli, Laplace, Likelihood
from kalvi.numerics.precision import matching_precision
from kalvi.rules.klprox.function_space import LatentPrior, Sites, condition, klprox, predict
from kalvi.streams import run
from papers import klprox_references as references
from papers.klprox_data import Split

TOLERANCE = 1e-4
"""Of the squared natural-gradient norm, in nats: bounds and losses agree to 1e-4."""
METHODS = ("Laplace", "EP", "proximal")


class Distances(NamedTuple):
    """A split as Gaussian processes see it: squared distances and answers."""

    rows: np.ndarray
    cross: np.ndarray  # new rows × rows
    y: np.ndarray
    y_new: np.ndarray


class Task(NamedTuple):
    """Prior covariances of the latents and answers, at the rows and at new rows."""

    cov: Any
    cross: Any  # new rows × rows
    var: Any  # at the new rows
    y: Any
    y_new: Any


class Grid(NamedTuple):
    """Logarithms of the length scale and of σ."""

    lengths: np.ndarray
    scales: np.ndarray

    def points(self) -> Iterator[tuple[tuple[int, int], float, float]]:
        """Index and values, snaking through the grid so that every point follows a neighbour."""
        for i, length in enumerate(self.lengths):
            order = range(len(self.scales))
            for j in order if i % 2 == 0 else reversed(order):
                yield (i, j), float(length), float(self.scales[j])


class Swept(NamedTuple):
    """What a method found over a grid (lengths × scales)."""

    loss: np.ndarray
    evidence: np.ndarray
    seconds: np.ndarray
    passes: np.ndarray
    converged: np.ndarray
    probability: np.ndarray  # of the new rows' own answers, at the point of least loss

    @property
    def best(self) -> float:
        """The least loss of the grid, as the paper reports it."""
        return float(np.nanmin(self.loss))

    @property
    def chosen(self) -> float:
        """The loss where the evidence is largest: no new row is used to choose."""
        return float(self.loss.flat[np.nanargmax(self.evidence)])


def distances(split: Split) -> Distances:
    """The squared distances of a split."""
    rows = cdist(split.x, split.x, "sqeuclidean")
    return Distances(rows, cdist(split.x_new, split.x, "sqeuclidean"), split.y, split.y_new)


class Outcome(NamedTuple):
    """Where the next task may start, log p(y) of every new row, and how it went."""

    start: Any
    score: np.ndarray
    evidence: float
    passes: int
    converged: bool


Solver = Callable[[Task, Any], Outcome]


def task(split: Distances, length: float, scale: float) -> Task:
    """The squared-exponential kernel at one point of the grid."""
    decay = np.exp(-2 * length) / 2
    cov, cross = (np.exp(2 * scale - decay * squares) for squares in (split.rows, split.cross))
    return Task(cov, cross, np.full(len(split.y_new), np.exp(2 * scale)), split.y, split.y_new)


def sweep(solver: Solver, split: Distances, grid: Grid) -> Swept:
    """A method at every point of the grid; a first call that compiles is not counted."""
    shape = len(grid.lengths), len(grid.scales)
    loss, evidence, seconds = (np.full(shape, np.nan) for _ in range(3))
    passes, converged = np.zeros(shape, int), np.zeros(shape, bool)
    start, best, probability = None, np.inf, np.array([])
    solver(task(split, 0.0, 0.0), None)
    for at, length, scale in grid.points():
        began = time.process_time()
        start, score, *rest = solver(task(split, length, scale), start)
        evidence[at], passes[at], converged[at] = rest
        seconds[at], loss[at] = time.process_time() - began, -np.mean(score)
        if loss[at] < best:
            best, probability = loss[at], np.exp(score)
    return Swept(loss, evidence, seconds, passes, converged, probability)


def proximal(likelihood: Likelihood) -> Solver:
    """The variational optimum, by kalvi."""

    def solve(given: Task, start: Sites | None) -> Outcome:
        with matching_precision("float64"):
            arrays = Task(*(jnp.asarray(a, dtype=np.float64) for a in given))
            nothing = jnp.zeros_like(arrays.y)
            begin = Sites(nothing, nothing) if start is None else start
            found, score = run.call(_optimum, likelihood, arrays, begin)
            ended = float(found.elbo), int(found.passes), bool(found.converged)
            return Outcome(found.sites, np.asarray(score), *ended)

    return solve


def _optimum(likelihood: Likelihood, given: Task, start: Sites):
    prior = LatentPrior(jnp.zeros_like(given.y), given.cov)
    weight = jnp.ones_like(given.y)
    found = klprox(likelihood, prior, given.y, weight, start, tolerance=TOLERANCE)
    factors = condition(prior.cov, found.sites.curvature)
    nothing = jnp.zeros_like(given.var)
    law = predict(prior, found, factors, given.cross, nothing, given.var)
    score = jax.vmap(lambda y, m, v: likelihood.log_predictive(y, m, v))(given.y_new, *law)
    return found, score


def reference(method: str, likelihood: Likelihood) -> Solver:
    """Laplace's approximation or expectation propagation, by the references in NumPy."""
    fit, tilted = _fits(likelihood)[method]

    def solve(given: Task, start: references.Fit | None) -> Outcome:
        found = fit(given.cov, given.y, start)
        mean, var = found.predict(given.cross.T, given.var)
        score = tilted(given.y_new, mean, np.maximum(var, 1e-12))[0]
        return Outcome(found, score, found.evidence, found.passes, found.converged)

    return solve


def _fits(likelihood: Likelihood):
    """The fit of each method and log p(y | mean, var) of its predictions."""
    if isinstance(likelihood, Bernoulli):
        tilted, laplace = references.tilted_logistic, references.laplace
    elif isinstance(likelihood, Laplace):
        scale = float(likelihood.scale)
        tilted = references.tilted_laplace(scale)

        def laplace(cov, y, start):
            return references.kinked(cov, y, scale)  # an interior method has no use for a start

    else:
        raise TypeError(f"references for Bernoulli and Laplace; got {type(likelihood).__name__}.")
    return {
        "Laplace": (laplace, tilted),
        "EP": (lambda cov, y, start: references.ep(tilted, cov, y, start), tilted),
    }


def solver(method: str, likelihood: Likelihood) -> Solver:
    """A method by its name."""
    return proximal(likelihood) if method == "proximal" else reference(method, likelihood)
