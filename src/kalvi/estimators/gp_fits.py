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

from kalvi.estimators.gp_covariances import REACH, Covariance, padded_size
from kalvi.likelihoods import Likelihood
from kalvi.rules.base import weighted
from kalvi.rules.klprox import (
    Conditioned,
    KLProx,
    Latent,
    Sites,
    conditioned,
    evidence_gradient,
    klprox,
    predict,
)
from kalvi.rules.klprox.function_space import first_sites
from kalvi.streams import run

GAP, SEARCHED_GAP, GAIN = 1e-8, 1e-4, 1e-4
"""Nats: where the ascent over the sites stops, in the end and while hyperparameters are sought, and what a
step of that search has to gain to be followed by another."""
NOWHERE = 1e12
"""What the search is told where the bound does not exist, in nats below zero."""
MEAN_REACH = 100.0
"""The constant of the mean is sought within this distance of its start, in its unit."""
PREDICTED_ROWS = 1024


class Mean(NamedTuple):
    """The prior mean of the latent function: a constant, learned or not, and perhaps a function."""

    constant: float
    learned: bool
    unit: float = 1.0  # in which the constant is sought
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
        constant = [self.mean.constant / self.mean.unit] if self.mean.learned else []
        return np.concatenate([self.covariance.theta, self._logs, constant])

    @property
    def names(self) -> list[str]:
        paths = jax.tree_util.tree_flatten_with_path(self._numbers)[0]
        kind = type(self.likelihood).__name__
        likelihood = [kind + jax.tree_util.keystr(path) for path, _ in paths]
        return self.covariance.names + likelihood + ["mean"] * self.mean.learned

    @property
    def _logs(self) -> np.ndarray:
        return np.log([float(leaf) for leaf in jax.tree.leaves(self._numbers)])

    @property
    def _numbers(self) -> Likelihood:
        return eqx.filter(self.likelihood, eqx.is_inexact_array_like)

    @property
    def values(self) -> dict[str, float]:
        """The free numbers by name, as they are."""
        shown = np.exp(np.concatenate([self.covariance.theta, self._logs]))
        shown = np.append(shown, [self.mean.constant] if self.mean.learned else [])
        return {name: float(v) for name, v in zip(self.names, shown, strict=True)}

    @property
    def bounds(self) -> np.ndarray:
        """Where the vector is sought."""
        rest = self.theta[len(self.covariance.theta) :]
        reach = np.full(len(rest), REACH)
        if self.mean.learned:
            reach[-1] = MEAN_REACH
        return np.concatenate(
            [self.covariance.bounds, np.column_stack([rest - reach, rest + reach])]
        )

    def at(self, theta: np.ndarray) -> "Hyper":
        """The same with other numbers."""
        cov, logs, constant = np.split(
            theta, np.cumsum([len(self.covariance.theta), len(self._logs)])
        )
        leaves, structure = jax.tree.flatten(self._numbers)
        values = [
            jnp.asarray(np.exp(log), leaf.dtype) for log, leaf in zip(logs, leaves, strict=True)
        ]
        mean = self.mean
        if mean.learned:
            mean = mean._replace(constant=float(constant[0]) * mean.unit)
        likelihood = eqx.combine(jax.tree.unflatten(structure, values), self.likelihood)
        return Hyper(self.covariance.at(cov), likelihood, mean)

    def gathered(self, by_cov: np.ndarray, likelihood: Likelihood, by_mean: float) -> np.ndarray:
        """The gradient with respect to `theta`, from those of the parts."""
        pairs = zip(jax.tree.leaves(self._numbers), jax.tree.leaves(likelihood), strict=True)
        logs = [float(value) * float(slope) for value, slope in pairs]
        constant = [by_mean * self.mean.unit] if self.mean.learned else []
        return np.concatenate([by_cov, logs, constant])


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

        def law(block: np.ndarray):
            mean = jnp.asarray(self.hyper.mean(block), self.prior.mean.dtype)
            new = cov.cross(block, self.x, size), mean, cov.diagonal(block)
            return run.call(predict, self.prior, self.found, self.factors, *new)

        return in_blocks(x, law)


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
        self.gap = SEARCHED_GAP

    def evaluate(self, hyper: Hyper) -> tuple[float, np.ndarray]:
        """The optimal bound and its gradient."""
        prior, found = self._solve(hyper, self.gap)
        if not np.isfinite(found.elbo):
            return -NOWHERE, np.zeros_like(hyper.theta)
        slopes = run.call(_slopes, hyper.likelihood, prior, self.y, self.weight, found)
        by_cov = hyper.covariance.pull(self.table.x, slopes.cov)
        by_mean = float(jnp.sum(slopes.mean))
        return float(found.elbo), hyper.gathered(by_cov, slopes.likelihood, by_mean)

    def fit(self, hyper: Hyper) -> Exact:
        """The optimum at given hyperparameters."""
        prior, found = self._solve(hyper, GAP)
        factors = run.call(_factors, hyper.likelihood, prior, found)
        return Exact(hyper, found, self.table.x, prior, factors)

    def value(self, hyper: Hyper) -> float:
        """The optimal bound alone."""
        return float(self._solve(hyper, self.gap)[1].elbo)

    def _solve(self, hyper: Hyper, gap: float) -> tuple[Latent, KLProx]:
        cov = hyper.covariance.gram(self.table.x, self.size)
        mean = np.pad(hyper.mean(self.table.x), (0, self.size - len(self.table.y)))
        prior = Latent(jnp.asarray(mean, self.dtype), cov)
        # always sites, never None, so that one program serves
        first = run.call(first_sites, hyper.likelihood, prior.mean, self.weight)
        for start in (self.sites or first, first):
            limits = self.max_passes, jnp.asarray(gap, self.dtype)
            args = hyper.likelihood, prior, self.y, self.weight, start
            found: KLProx = run.call(_klprox, *args, *limits)
            if np.isfinite(found.elbo):
                self.sites = found.sites
                break
        return prior, found


def search(
    problem: Any,
    hyper: Hyper,
    optimizer: str | Callable,
    grid: dict[str, Any] | None,
    restarts: int,
    rng: np.random.RandomState,
    verbose: bool,
) -> tuple[Hyper, int]:
    """The hyperparameters with the highest bound, and how often the bound was asked for."""
    if optimizer == "grid":
        return _grid_search(problem, hyper, grid, verbose)
    if not len(hyper.theta):
        return hyper, 0
    problem.gap = GAP if callable(optimizer) else SEARCHED_GAP
    bounds, count = hyper.bounds, 0
    starts = [hyper.theta] + [rng.uniform(*bounds.T) for _ in range(restarts)]
    best, highest, lowest = hyper, -np.inf, np.inf
    with _bar(verbose) as tell:

        def descend(theta: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, highest, lowest, count
            there, count = hyper.at(theta), count + 1
            elbo, slope = problem.evaluate(there)
            if elbo == -NOWHERE and np.isfinite(lowest):
                # a little worse than any: from a cliff a line search would not come back
                return 1 + abs(lowest) - lowest, slope
            lowest = min(lowest, elbo)
            if elbo > highest:
                best, highest = there, elbo
            tell(highest)
            return -elbo, -slope

        for start in starts:
            if callable(optimizer):
                optimizer(descend, start, bounds)
            else:
                _minimise(descend, start, bounds)
    return best, count


def _minimise(descend: Callable, start: np.ndarray, bounds: np.ndarray) -> None:
    """L-BFGS in units in which its first step, as long as the gradient, moves the logarithms by one."""
    value, slope = descend(start)
    unit = max(float(np.linalg.norm(slope)), 1.0)

    def scaled(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = descend(theta)
        return value / unit, slope / unit

    options = {"ftol": GAIN / max(abs(value), unit), "gtol": 1e-3 / unit}
    minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def _grid_search(
    problem: Any, hyper: Hyper, grid: dict[str, Any] | None, verbose: bool
) -> tuple[Hyper, int]:
    """Every combination of the named values; neighbours follow one another, so that each starts warm."""
    names, values = hyper.names, _grid_values(hyper, grid)
    best, highest, count = hyper, -np.inf, 0
    places = [names.index(name) for name in values]
    with _bar(verbose) as tell:
        for point in product(*values.values()):
            theta = hyper.theta
            theta[places] = point
            there, count = hyper.at(theta), count + 1
            elbo = problem.value(there)
            if elbo > highest:
                best, highest = there, elbo
            tell(highest)
    return best, count


def _grid_values(hyper: Hyper, grid: Any) -> dict[str, np.ndarray]:
    """The values to try, as entries of `theta`."""
    names, given = hyper.names, grid if isinstance(grid, dict) else {}
    if not given or any(name not in names for name in given):
        raise ValueError(
            "optimizer='grid' needs grid, a dict with values for some of "
            f"{', '.join(names) or 'no hyperparameters: all are fixed'}; got {grid!r}."
        )
    found = {}
    for name, values in given.items():
        try:
            numbers = np.ravel(np.asarray(values, float))
        except (TypeError, ValueError):
            numbers = np.zeros(0)
        allowed = np.isfinite(numbers) & ((numbers > 0) | (name == "mean"))
        if not numbers.size or not np.all(allowed):
            kind = "numbers" if name == "mean" else "positive numbers"
            raise ValueError(f"grid[{name!r}] must hold {kind}; got {values!r}.")
        found[name] = numbers / hyper.mean.unit if name == "mean" else np.log(numbers)
    return found


@contextmanager
def _bar(verbose: bool) -> Iterator[Callable[[float], None]]:
    with tqdm(unit=" bounds", disable=not verbose) as bar:

        def tell(highest: float) -> None:
            bar.set_postfix(elbo=f"{highest:.3f}", refresh=False)
            bar.update()

        yield tell


def in_blocks(x: np.ndarray, law: Callable[[np.ndarray], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of any number of new points, a block at a time."""
    starts = range(0, len(x), PREDICTED_ROWS)
    parts = [law(_filled(x[start : start + PREDICTED_ROWS])) for start in starts]
    means, variances = (np.concatenate(part)[: len(x)] for part in zip(*parts, strict=True))
    return means, np.maximum(variances, 0)


def per_point(function: Callable, likelihood: Likelihood, *columns: np.ndarray) -> Any:
    """function(likelihood, columns) for points of any number, filled up to a power of two."""
    n = len(columns[0])
    found = run.call(function, likelihood, *(_filled(column[:, None])[:, 0] for column in columns))
    return jax.tree.map(lambda a: np.asarray(a, np.float64)[:n], found)


def _filled(x: np.ndarray) -> np.ndarray:
    """A block of new points padded to a power of two: few sizes to compile."""
    size = max(1 << max(len(x) - 1, 0).bit_length(), 8)
    return np.concatenate([x, np.broadcast_to(x[:1], (size - len(x), x.shape[1]))])


def _klprox(likelihood, prior, y, weight, start, max_passes, gap) -> KLProx:
    """The optimum, without a bound where rounding has made the divergence from the prior negative."""
    limits = {"max_passes": max_passes, "tolerance": gap}
    found = klprox(likelihood, prior, y, weight, start, **limits)
    value = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v).value)(y, found.mean, found.var)
    fit = jnp.sum(weighted(weight, value))
    slack = float(np.sqrt(jnp.finfo(y.dtype).eps)) * (len(y) + jnp.abs(fit))
    return found._replace(elbo=jnp.where(found.elbo <= fit + slack, found.elbo, jnp.nan))


def _factors(likelihood, prior: Latent, found: KLProx) -> Conditioned:
    curvature = found.sites.curvature
    return conditioned(prior.cov, curvature, log_concave=likelihood.log_concave)


def _slopes(likelihood, prior: Latent, y, weight, found: KLProx):
    factors = _factors(likelihood, prior, found)
    return evidence_gradient(likelihood, prior, y, weight, found, factors)


def cast(likelihood: Likelihood, dtype: Any) -> Likelihood:
    """The likelihood with its numbers in a dtype."""
    return jax.tree.map(
        lambda a: jnp.asarray(a, dtype) if eqx.is_inexact_array(a) else a, likelihood
    )
