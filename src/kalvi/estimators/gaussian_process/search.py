"""The search for the hyperparameters with the highest bound: by L-BFGS, on a grid, or by the user's
function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import minimize
from tqdm import tqdm

from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters
from kalvi.estimators.gaussian_process.parameters import ProcessSettings
from kalvi.estimators.gaussian_process.problem import GAP, NOWHERE, SEARCHED_GAP, Problem

GAIN = 1e-4
"""The search continues if a step gains at least this much, in nats."""

Tell = Callable[[float], None]


def search(
    problem: Problem,
    hyper: Hyperparameters,
    settings: ProcessSettings,
    rng: np.random.RandomState,
) -> tuple[Hyperparameters, int]:
    """The hyperparameters with the highest bound, and the number of evaluations."""
    optimizer = settings.optimizer
    if optimizer == "grid":
        return _grid_search(problem, hyper, settings.grid, settings.verbose)
    if optimizer is None or not len(hyper.theta):
        return hyper, 0
    bounds = hyper.bounds
    starts = [hyper.theta, *(rng.uniform(*bounds.T) for _ in range(settings.n_restarts_optimizer))]
    minimise, gap = (optimizer, GAP) if callable(optimizer) else (_minimise, SEARCHED_GAP)
    with _progress(settings.verbose) as tell:
        objective = _Objective(problem, hyper, gap, tell)
        for start in starts:
            minimise(objective, start, bounds)
    return objective.best, objective.count


class _Objective:
    """The negative bound, for optimisers that minimise, and the best point that they tried."""

    def __init__(self, problem: Problem, hyper: Hyperparameters, gap: float, tell: Tell):
        self.problem, self.gap, self.tell = problem, gap, tell
        self.best, self.count = hyper, 0
        self.highest, self.lowest = -np.inf, np.inf

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        there, self.count = self.best.at(theta), self.count + 1
        elbo, slope = self.problem.evaluate(there, self.gap)
        if elbo == -NOWHERE and np.isfinite(self.lowest):
            # a little worse than any point: a line search would not return from a cliff
            return 1 + abs(self.lowest) - self.lowest, slope
        self.lowest = min(self.lowest, elbo)
        if elbo > self.highest:
            self.best, self.highest = there, elbo
        self.tell(self.highest)
        return -elbo, -slope


def _minimise(descend: Callable, start: np.ndarray, bounds: np.ndarray) -> None:
    """L-BFGS in units in which its first step, the length of the gradient, moves the logarithms by one."""
    value, slope = descend(start)
    unit = max(float(np.linalg.norm(slope)), 1.0)

    def scaled(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = descend(theta)
        return value / unit, slope / unit

    options = {"ftol": GAIN / max(abs(value), unit), "gtol": 1e-3 / unit}
    minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def _grid_search(
    problem: Problem, hyper: Hyperparameters, grid: dict[str, Any] | None, verbose: bool
) -> tuple[Hyperparameters, int]:
    """The best of all combinations of the named values; each search starts from a neighbour's result."""
    names, values = hyper.names, _grid_values(hyper, grid)
    best, highest, count = hyper, -np.inf, 0
    places = [names.index(name) for name in values]
    with _progress(verbose) as tell:
        for point in product(*values.values()):
            theta = hyper.theta
            theta[places] = point
            there, count = hyper.at(theta), count + 1
            elbo = problem.value(there)
            if elbo > highest:
                best, highest = there, elbo
            tell(highest)
    return best, count


def _grid_values(hyper: Hyperparameters, grid: Any) -> dict[str, np.ndarray]:
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
def _progress(verbose: bool) -> Iterator[Tell]:
    with tqdm(unit=" bounds", disable=not verbose) as bar:

        def tell(highest: float) -> None:
            bar.set_postfix(elbo=f"{highest:.3f}", refresh=False)
            bar.update()

        yield tell
