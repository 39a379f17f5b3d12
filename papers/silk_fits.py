"""Fits of smooth binary factorisation for its experiments: which family, which side smooth, how solved.

`fit` sweeps until five sweeps gain less than `gain` nats, and says what it predicts for the hidden entries.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.estimators.binary_factorization import sweeps
from kalvi.evaluation import metrics
from kalvi.numerics.precision import matching_precision
from kalvi.rules.silk import (
    SILK,
    Exact,
    Locations,
    MeanSolver,
    Observed,
    Silk,
    Table,
    group_locations,
    list_entries,
    paired_probabilities,
    unordered_locations,
)
from kalvi.streams import run
from papers.silk_data import Matrix, Prior

MEAN_FIELD, CHAINS, COUPLED = "mean field", "chains", "coupled"
FAMILIES = {MEAN_FIELD: "mean_field", CHAINS: "chains", COUPLED: "coupled"}
"""What the estimator calls them."""
SPARSE = 0.3
"""Matrices of which less is seen are kept as lists of entries."""
BOTH, NEITHER = (True, True), (False, False)


class Fit(NamedTuple):
    """The factorisation, the bound before every sweep, and seconds after compilation."""

    silk: Silk
    elbos: np.ndarray
    seconds: float
    probability: np.ndarray
    loss: float

    @property
    def elbo(self) -> float:
        """The last bound."""
        return float(self.elbos[-1])

    @property
    def rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the rows and of the columns, those of the strongest factors first."""
        return _rates(self.silk, True), _rates(self.silk, False)


class Settings(NamedTuple):
    """How a fit is made."""

    family: str = CHAINS
    smooth: tuple[bool, bool] = BOTH
    solver: MeanSolver = Exact()  # type: ignore[call-arg]
    learn: bool = True
    gain: float = 0.05  # nats over five sweeps
    sweeps: int = 500
    memory: int = 5  # past sweeps that are combined; 0: plain sweeps
    rough: bool = False  # start without smoothness, ρ ≈ ∞, as in section 7 of the document
    dtype: str = "float64"


USUAL = Settings()


def fit(
    matrix: Matrix,
    k: int,
    settings: Settings = USUAL,
    *,
    priors: tuple[Prior, Prior] | None = None,
    seed: int = 0,
) -> Fit:
    """Sweeps from the singular vectors to where they gain little; `priors` replace the first ones."""
    with matching_precision(settings.dtype):
        seen = observed(matrix)
        first = begin(matrix, seen, k, settings, seed)
        first = roughened(first) if settings.rough else first
        if priors is not None:
            first = with_priors(first, priors)
        state, elbos, seconds = climb(first, seen, settings)
        probability = predicted(state, matrix.hidden)
    loss = metrics.log_loss(probability, matrix.answers) if len(probability) else np.nan
    return Fit(state, elbos, seconds, probability, loss)


def observed(matrix: Matrix) -> Observed:
    """The seen entries, as a table or where they are few as a list."""
    if matrix.seen.mean() < SPARSE:
        row, col = np.nonzero(matrix.seen)
        sign = (2 * matrix.x[row, col] - 1).astype(np.int8)
        return list_entries(row, col, sign, None, matrix.x.shape)
    return Table.of(np.where(matrix.seen, 2 * matrix.x - 1, 0).astype(np.int8))


def begin(matrix: Matrix, seen: Observed, k: int, settings: Settings, seed: int = 0) -> Silk:
    """The first guess."""
    sides = matrix.row_locations, matrix.col_locations
    rows, cols = (
        _places(locations, n, smooth).on_device(settings.dtype)
        for locations, n, smooth in zip(sides, matrix.x.shape, settings.smooth, strict=True)
    )
    how = sweeps.SweepSettings(FAMILIES[settings.family], dtype=settings.dtype)
    return sweeps.guess_factors(seen, (rows, cols), k, how, jr.key(seed))


def _places(locations: np.ndarray | None, n: int, smooth: bool) -> Locations:
    return (
        group_locations(locations) if smooth and locations is not None else unordered_locations(n)
    )


def with_priors(silk: Silk, priors: Sequence[Prior]) -> Silk:
    """The same posteriors under given priors."""
    for side, prior in zip(("rows", "cols"), priors, strict=True):
        old = getattr(silk, side).prior
        numbers = [jnp.asarray(a, old.mean.dtype) for a in (prior.mean, prior.variance, prior.rate)]
        silk = eqx.tree_at(
            lambda s, side=side: [
                getattr(getattr(s, side).prior, name) for name in ("mean", "variance", "rate")
            ],
            silk,
            numbers,
        )
    return silk


def roughened(silk: Silk) -> Silk:
    """The same factors under priors in which neighbours have nothing in common, exp(−ρ d/2) = e⁻²⁰."""
    for side in ("rows", "cols"):
        prior = getattr(silk, side).prior
        gaps = np.asarray(prior.gaps)
        rate = 40 / np.median(gaps[np.isfinite(gaps) & (gaps > 0)])
        whole = jnp.full_like(prior.rate, rate)
        silk = eqx.tree_at(lambda s, side=side: getattr(s, side).prior.rate, silk, whole)
    return silk


def climb(first: Silk, seen: Observed, settings: Settings) -> tuple[Silk, np.ndarray, float]:
    """Sweeps until five gain less than `gain`; the bounds before each, and after the last."""
    rule = SILK(settings.solver, settings.learn, settings.memory)
    run.advance(rule, rule.init(first), seen)  # compiles, as does the next line
    sweeps.bound(first, seen)
    began = time.process_time()
    found = sweeps.sweep(rule, first, seen, settings.gain, settings.sweeps)
    return found.silk, found.history, time.process_time() - began


def predicted(silk: Silk, where: np.ndarray) -> np.ndarray:
    """P(x = 1) of the marked entries under the posterior."""
    with matching_precision(silk.rows.posterior.mean.dtype):
        row, col = map(jnp.asarray, np.nonzero(where))
        return np.asarray(run.call(_paired, silk, row, col), float)


def _paired(silk: Silk, row: jax.Array, col: jax.Array) -> jax.Array:
    rows, cols = silk.rows.moments().at(row), silk.cols.moments().at(col)
    return paired_probabilities(rows, cols, silk.rows.posterior.adds_mean)


def _rates(silk: Silk, rows: bool) -> np.ndarray:
    side, other = (silk.rows, silk.cols) if rows else (silk.cols, silk.rows)
    strength = np.asarray(side.prior.variance) * np.mean(np.asarray(other.posterior.mean) ** 2, 0)
    return np.asarray(side.prior.rate)[np.argsort(-strength)]
