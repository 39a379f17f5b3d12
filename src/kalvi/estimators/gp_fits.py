"""Gaussian processes fitted to a table: the bound at given hyperparameters, and the search for the best."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from tqdm import tqdm

from kalvi import run
from kalvi.algorithms.klprox import (
    Conditioned,
    KLProx,
    Latent,
    Sites,
    conditioned,
    evidence_gradient,
    klprox,
    predict,
)
from kalvi.estimators.gp_covariances import REACH, Covariance, padded_size
from kalvi.likelihoods import Likelihood

NOWHERE = 1e12
"""What the search is told where the bound does not exist, in nats below zero."""
PREDICTED_ROWS = 1024


class Mean(NamedTuple):
    """The prior mean of the latent function: a constant, learned or not, and perhaps a function."""

    constant: float
    learned: bool
    function: Callable[[np.ndarray], Any] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self.function is None:
            return np.full(len(x), self.constant)
        values = np.asarray(self.function(x), float)
        if values.shape != (len(x),):
            raise ValueError(
                f"mean must give one number for each of the {len(x)} rows; got shape {values.shape}."
            )
        return values + self.constant


class Hyper(NamedTuple):
    """What a Gaussian process is made of, and its free numbers as one vector."""

    covariance: Covariance
    likelihood: Likelihood
    mean: Mean

    @property
    def theta(self) -> np.ndarray:
        constant = [self.mean.constant] if self.mean.learned else []
        return np.concatenate([self.covariance.theta, self._logs, constant])

    @property
    def names(self) -> list[str]:
        paths = jax.tree_util.tree_flatten_with_path(self.likelihood)[0]
        kind = type(self.likelihood).__name__
        likelihood = [kind + jax.tree_util.keystr(path) for path, _ in paths]
        return self.covariance.names + likelihood + ["mean"] * self.mean.learned

    @property
    def _logs(self) -> np.ndarray:
        return np.log([float(leaf) for leaf in jax.tree.leaves(self.likelihood)])

    @property
    def values(self) -> dict[str, float]:
        """The free numbers by name, as they are."""
        shown = np.append(np.exp(self.theta[:-1]), self.theta[-1:])
        shown = shown if self.mean.learned else np.exp(self.theta)
        return {name: float(v) for name, v in zip(self.names, shown, strict=True)}

    def bounds(self, spread: float) -> np.ndarray:
        """Where the vector is sought; the mean within a hundred `spread`s."""
        logs = self._logs
        constant = [self.mean.constant] if self.mean.learned else []
        rest = [np.column_stack([logs - REACH, logs + REACH])] + [
            np.array([[c - 100 * spread, c + 100 * spread]]) for c in constant
        ]
        return np.concatenate([self.covariance.bounds, *rest])

    def at(self, theta: np.ndarray) -> "Hyper":
        """The same with other numbers."""
        cov, logs, constant = np.split(
            theta, np.cumsum([len(self.covariance.theta), len(self._logs)])
        )
        leaves, structure = jax.tree.flatten(self.likelihood)
        values = [
            jnp.asarray(np.exp(log), leaf.dtype) for log, leaf in zip(logs, leaves, strict=True)
        ]
        mean = self.mean._replace(constant=float(constant[0])) if len(constant) else self.mean
        return Hyper(self.covariance.at(cov), jax.tree.unflatten(structure, values), mean)

    def gathered(self, by_cov: np.ndarray, likelihood: Likelihood, by_mean: float) -> np.ndarray:
        """The gradient with respect to `theta`, from those of the parts."""
        pairs = zip(jax.tree.leaves(self.likelihood), jax.tree.leaves(likelihood), strict=True)
        logs = [float(value) * float(slope) for value, slope in pairs]
        return np.concatenate([by_cov, logs, [by_mean] if self.mean.learned else []])


class Table(NamedTuple):
    """The rows, checked."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Exact(NamedTuple):
    """A fit with one latent a row: N × N numbers, N³ operations a pass."""

    hyper: Hyper
    found: KLProx
    x: np.ndarray
    prior: Latent
    factors: Conditioned

    regime = "exact"

    @property
    def elbo(self) -> float:
        return float(self.found.elbo)

    @property
    def gap(self) -> float:
        return float(self.found.gap)

    @property
    def converged(self) -> bool:
        return bool(self.found.converged)

    def latent(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent function at new points."""
        cov, size = self.hyper.covariance, len(self.prior.mean)
        parts = []
        for start in range(0, len(x), PREDICTED_ROWS):
            block = _filled(x[start : start + PREDICTED_ROWS])
            mean = jnp.asarray(self.hyper.mean(block), self.prior.mean.dtype)
            law = cov.cross(block, self.x, size), mean, cov.diagonal(block)
            parts.append(run.call(predict, self.prior, self.found, self.factors, *law))
        means, variances = (np.concatenate(part)[: len(x)] for part in zip(*parts, strict=True))
        return means, np.maximum(variances, 0)


class ExactProblem:
    """The bound of a table as a function of hyperparameters; each ascent starts where the last ended."""

    def __init__(self, table: Table, dtype: Any, max_passes: int):
        size = padded_size(len(table.y))
        self.table, self.dtype, self.size = table, dtype, size
        self.max_passes = jnp.asarray(max_passes)
        self.y, self.weight = (
            jnp.asarray(np.pad(a, (0, size - len(a))), dtype) for a in (table.y, table.weight)
        )
        self.sites: Sites | None = None

    def evaluate(self, hyper: Hyper) -> tuple[float, np.ndarray]:
        """The optimal bound and its gradient."""
        prior, found = self._solve(hyper)
        if not np.isfinite(found.elbo):
            return -NOWHERE, np.zeros_like(hyper.theta)
        slopes = run.call(_slopes, hyper.likelihood, prior, self.y, self.weight, found)
        by_cov = hyper.covariance.pull(self.table.x, slopes.cov)
        by_mean = float(jnp.sum(slopes.mean))
        return float(found.elbo), hyper.gathered(by_cov, slopes.likelihood, by_mean)

    def fit(self, hyper: Hyper) -> Exact:
        """The optimum at given hyperparameters."""
        prior, found = self._solve(hyper)
        factors = run.call(conditioned, prior.cov, found.sites.curvature)
        return Exact(hyper, found, self.table.x, prior, factors)

    def value(self, hyper: Hyper) -> float:
        """The optimal bound alone."""
        return float(self._solve(hyper)[1].elbo)

    def _solve(self, hyper: Hyper) -> tuple[Latent, KLProx]:
        cov = hyper.covariance.gram(self.table.x, self.size)
        mean = np.pad(hyper.mean(self.table.x), (0, self.size - len(self.table.y)))
        prior = Latent(jnp.asarray(mean, self.dtype), cov)
        for start in (self.sites, None):
            args = hyper.likelihood, prior, self.y, self.weight, start, self.max_passes
            found: KLProx = run.call(_klprox, *args)
            if np.isfinite(found.elbo):
                self.sites = found.sites
                break
        return prior, found


def search(
    problem: Any,
    hyper: Hyper,
    spread: float,
    optimizer: str | Callable,
    grid: dict[str, Any] | None,
    restarts: int,
    rng: np.random.RandomState,
    verbose: bool,
) -> tuple[Hyper, int]:
    """The hyperparameters with the highest bound, and how often the bound was asked for."""
    if optimizer == "grid":
        return _grid_search(problem, hyper, grid, verbose)
    bounds, count = hyper.bounds(spread), 0
    starts = [hyper.theta] + [rng.uniform(*bounds.T) for _ in range(restarts)]
    best, highest = hyper, -np.inf
    with _bar(verbose) as tell:

        def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, highest, count
            there, count = hyper.at(theta), count + 1
            elbo, slope = problem.evaluate(there)
            if elbo > highest:
                best, highest = there, elbo
            tell(highest)
            return -elbo, -slope

        for start in starts:
            if callable(optimizer):
                optimizer(descend, start, bounds)
            else:
                options = {"ftol": 1e-9, "gtol": 1e-4}
                minimize(
                    descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
                )
    return best, count


def _grid_search(
    problem: Any, hyper: Hyper, grid: dict[str, Any] | None, verbose: bool
) -> tuple[Hyper, int]:
    """Every combination of the named values; neighbours follow one another, so that each starts warm."""
    names, values = hyper.names, grid or {}
    unknown = [name for name in values if name not in names]
    if unknown or not values:
        raise ValueError(
            f"grid must give values for some of {', '.join(names)}; got {', '.join(values) or 'none'}."
        )
    best, highest, count = hyper, -np.inf, 0
    places = [names.index(name) for name in values]
    logs = [
        np.asarray(values[n], float) if n == "mean" else np.log(np.asarray(values[n], float))
        for n in values
    ]
    with _bar(verbose) as tell:
        for point in product(*logs):
            theta = hyper.theta
            theta[places] = point
            there, count = hyper.at(theta), count + 1
            elbo = problem.value(there)
            if elbo > highest:
                best, highest = there, elbo
            tell(highest)
    return best, count


@contextmanager
def _bar(verbose: bool) -> Iterator[Callable[[float], None]]:
    with tqdm(unit=" bounds", disable=not verbose) as bar:

        def tell(highest: float) -> None:
            bar.set_postfix(elbo=f"{highest:.3f}", refresh=False)
            bar.update()

        yield tell


def _filled(x: np.ndarray) -> np.ndarray:
    """A block of new points padded to a power of two: few sizes to compile."""
    size = max(1 << max(len(x) - 1, 0).bit_length(), 8)
    return np.concatenate([x, np.broadcast_to(x[:1], (size - len(x), x.shape[1]))])


def _klprox(likelihood, prior, y, weight, start, max_passes) -> KLProx:
    return klprox(likelihood, prior, y, weight, start, max_passes=max_passes)


def _slopes(likelihood, prior: Latent, y, weight, found: KLProx):
    factors = conditioned(prior.cov, found.sites.curvature)
    return evidence_gradient(likelihood, prior, y, weight, found, factors)


def cast(likelihood: Likelihood, dtype: Any) -> Likelihood:
    """The likelihood with its numbers in a dtype."""
    return jax.tree.map(
        lambda a: jnp.asarray(a, dtype) if eqx.is_inexact_array(a) else a, likelihood
    )
