"""Sweeps over a binary matrix until they gain little, and the choice of the number of factors."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.estimators.binary_factorization.locations import Layout
from kalvi.estimators.binary_factorization.placement import placed_for
from kalvi.rules.silk import (
    SILK,
    Chains,
    Coupled,
    Exact,
    ExpectedSILK,
    Jacobi,
    MeanField,
    MeanSolver,
    Observed,
    Silk,
    StochasticSILK,
    start,
    start_from_factors,
    statistics,
)
from kalvi.rules.silk.expected import expected
from kalvi.rules.silk.model import double_sum
from kalvi.rules.silk.new_rows import fit_rows, side_from_prior
from kalvi.rules.silk.posteriors import Family
from kalvi.rules.silk.prune import contributions, select_factors, sort_factors
from kalvi.streams import run

FAMILIES: dict[str, Family] = {
    "chains": Chains.independent,
    "mean_field": MeanField.independent,
    "coupled": Coupled.independent,
}
SOLVERS: dict[str, MeanSolver] = {
    "exact": Exact(),
    "jacobi": Jacobi(),
    "jacobi_search": Jacobi(None),
}
BOUNDS = ("expected", "polya_gamma")
FINER = 500
"""Factors of other rows are found to a gain smaller by this factor, because they converge fast."""
ROUGHER = 100
"""Sweeps with expectations end at a gain larger by this factor, because their gains decrease slowly."""
WINDOW = 5
"""The number of sweeps whose gain decides whether to continue: one may gain nothing and the next a lot."""
FEWEST = 16
"""The smallest number of pieces that are averaged, to tell a gain of the bound from noise."""
NEGLIGIBLE = 1e-3
"""Factors with a smaller share of the logits' mean square are dropped at once by n_factors="auto"."""


class SweepSettings(NamedTuple):
    """The settings of the sweeps."""

    posterior: str = "chains"
    solver: str = "exact"
    max_sweeps: int = 1000
    tol: float = 1e-5  # nats for each number in the factors, over five sweeps
    dtype: str = "float64"
    piece: tuple[int, int] | None = None  # rows and columns of a stochastic step
    bound: str = "polya_gamma"


class SweepResult(NamedTuple):
    """A factorisation, the bound before every sweep and after the last, and whether they converged."""

    silk: Silk
    history: Float[np.ndarray, " s"]
    converged: bool

    @property
    def elbo(self) -> float:
        """The bound at the end."""
        return float(self.history[-1])


Tell = Callable[[float], None]


def _silent(elbo: float) -> None:
    """No progress is shown."""


def guess_factors(
    observed: Observed, layout: Layout, n_factors: int, settings: SweepSettings, key: PRNGKeyArray
) -> Silk:
    """The first guess, by singular vectors."""
    how = n_factors, settings.posterior, settings.dtype, settings.piece
    return run.call(_start, observed, layout, *how, np.asarray(jr.key_data(key)))


def take_guess(factors: tuple[Any, Any], layout: Layout, settings: SweepSettings) -> Silk:
    """The first guess from factors of the rows and of the columns."""
    return run.call(_take_guess, *factors, layout, settings.posterior)


def climb(
    first: Silk, observed: Observed, settings: SweepSettings, tell: Tell = _silent
) -> SweepResult:
    """Sweeps until five of them gain less than the tolerance."""
    enough = settings.tol * sum(observed.shape) * len(first.rows.prior.mean)
    limits = enough, settings.max_sweeps
    found = sweep(SILK(SOLVERS[settings.solver]), first, observed, *limits, tell)
    return found._replace(silk=run.call(sort_factors, found.silk))


def climb_expected(
    found: SweepResult, observed: Observed, settings: SweepSettings, tell: Tell = _silent
) -> SweepResult:
    """The ascent from the optimum of the Pólya–Gamma bound to that of the expected log-likelihood."""
    enough = ROUGHER * settings.tol * sum(observed.shape) * len(found.silk.rows.prior.mean)
    left = max(settings.max_sweeps - len(found.history) + 1, 1)
    rule = ExpectedSILK(SOLVERS[settings.solver])
    state, history, converged = run.copied(run.begin(rule, found.silk)), [], False
    while len(history) < left and not converged:
        state, observed = placed_for(len(history), state, observed)
        state = run.advance(rule, state, observed)
        history.append(state.elbo)
        tell(history[-1])
        converged = len(history) > WINDOW and history[-1] - history[-1 - WINDOW] < enough
    silk = run.call(sort_factors, state.best.silk)
    history = np.concatenate([found.history, history])
    return SweepResult(silk, history, bool(converged and found.converged))


def sweep(
    rule: SILK, first: Silk, observed: Observed, enough: float, most: int, tell: Tell = _silent
) -> SweepResult:
    """Sweeps by a rule until five of them gain less than `enough` nats, at most `most` of them."""
    state, history, converged = run.copied(run.begin(rule, first)), [], False
    while len(history) < most and not converged:
        state, observed = placed_for(len(history), state, observed)
        state = run.advance(rule, state, observed)
        history.append(state.elbo)
        tell(history[-1])
        converged = len(history) > WINDOW and history[-1] - history[-1 - WINDOW] < enough
    history.append(bound(state.plain, observed))
    return SweepResult(state.plain, np.array(history), bool(converged))


def climb_by_pieces(
    first: Silk,
    table: Any,
    settings: SweepSettings,
    key: PRNGKeyArray,
    tell: Tell = _silent,
) -> SweepResult:
    """Steps with random pieces, until five passes' worth raise the bound by no more than their noise.

    The history has the mean estimate of the bound in each pass, and at the end the bound.
    """
    piece = settings.piece or table.shape
    rows, cols = (min(most, n) for most, n in zip(piece, table.shape, strict=True))
    rule = StochasticSILK(
        rows, cols, solver=SOLVERS[settings.solver], expected=settings.bound == "expected"
    )
    steps = math.ceil(table.shape[0] / rows) * math.ceil(table.shape[1] / cols)
    state, history, noise, converged = rule.init(first), [], [], False
    while len(history) < settings.max_sweeps and not converged:
        seen = np.empty(max(steps, FEWEST))
        for i in range(len(seen)):
            state = run.advance(rule, state, table, key=jr.fold_in(key, int(state.steps)))
            seen[i] = float(state.bound)
        history.append(float(seen.mean()))
        noise.append(float(seen.var() / len(seen)))
        tell(history[-1])
        old, new = history[-2 * WINDOW : -WINDOW], history[-WINDOW:]
        spread = math.sqrt(sum(noise[-2 * WINDOW :])) / WINDOW
        converged = len(old) == WINDOW and sum(new) - sum(old) < WINDOW * spread
    history.append(bound(state.silk, table, settings.bound))
    return SweepResult(run.call(sort_factors, state.silk), np.array(history), bool(converged))


def bound(silk: Silk, observed: Observed, kind: str = "polya_gamma") -> float:
    """The bound, summed in float64."""
    loss, *divergences = run.call(_bound, silk, observed, kind)
    return double_sum(loss) - sum(map(float, divergences))


def select_n_factors(
    first: Silk, observed: Observed, settings: SweepSettings, tell: Tell = _silent
) -> SweepResult:
    """Sweep with a generous number of factors, and drop those that do not raise the bound.

    Factors that learned priors have switched off go first, all at once. Then the weakest go one by one, as
    long as the bound loses at most one nat for each number of the factor's prior (Akaike's price of a
    number that was learned by maximisation).
    """
    found = climb(first, observed, settings, tell)
    size = np.asarray(run.call(contributions, found.silk))
    needed = max(int(np.count_nonzero(size >= NEGLIGIBLE * size.sum())), 1)
    for n in (needed, *range(needed - 1, 0, -1)):
        if n == len(size):
            continue
        family = FAMILIES[settings.posterior]
        fewer = run.call(select_factors, found.silk, np.arange(n), family)
        fewer = climb(fewer, observed, settings, tell)
        if fewer.elbo < found.elbo - _price(found.silk):
            break
        found = fewer
    return found


def _price(silk: Silk) -> int:
    """The number of free parameters in the priors of a factor, its arbitrary scale not counted."""
    return sum(2 + side.ordered for side in (silk.rows, silk.cols)) - 1


def transform_rows(
    silk: Silk, observed: Observed, layout: Layout, settings: SweepSettings
) -> tuple[Silk, bool]:
    """The factors of other rows, given the columns and the priors."""
    values = observed.shape[0] * len(silk.rows.prior.mean)
    tolerance = jnp.asarray(settings.tol / FINER * values, settings.dtype)
    limits = tolerance, jnp.asarray(settings.max_sweeps), settings.bound
    found, converged = run.call(_transform_rows, silk, observed, layout, *limits)
    return found, bool(converged)


def _start(
    observed: Observed,
    layout: Layout,
    n_factors: int,
    posterior: str,
    dtype: str,
    piece: tuple[int, int] | None,
    key_data: Array,
) -> Silk:
    key, family = jr.wrap_key_data(key_data), FAMILIES[posterior]
    return start(observed, *layout, n_factors, family, key=key, dtype=dtype, piece=piece)


def _take_guess(u: Array, v: Array, layout: Layout, posterior: str) -> Silk:
    return start_from_factors(u, v, *layout, FAMILIES[posterior])


def _bound(silk: Silk, observed: Observed, kind: str) -> tuple[Array, Array, Array]:
    ask = expected if kind == "expected" else statistics
    return ask(silk, observed).loss, silk.rows.kl(), silk.cols.kl()


def _transform_rows(
    silk: Silk,
    observed: Observed,
    layout: Layout,
    tolerance: jax.Array,
    max_rounds: jax.Array,
    bound: str,
):
    family = silk.rows.posterior.independent  # that of the fit, whatever the parameter is now
    new = Silk(side_from_prior(silk.rows, layout[0], family), silk.cols)
    return fit_rows(new, observed, tolerance, max_rounds, unbounded=bound == "expected")
