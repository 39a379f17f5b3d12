"""Further passes over the rows, to the optimum of the variational bound.

`climb` continues from the posterior of a stream; `solve` begins at the prior, without a stream
(method="klprox").
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
from tqdm import tqdm

from kalvi import streams
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit import LinearFit
from kalvi.estimators.linear.fit_results import Optimum
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.estimators.linear.stream import LinearStream, Rows
from kalvi.gaussians import Dense
from kalvi.gaussians.ascents import Ascent
from kalvi.likelihoods import Likelihood
from kalvi.numerics.natural_gradient import MEMORY
from kalvi.predictors import Predictor, linear_predictor
from kalvi.predictors.models import Model
from kalvi.rules.klprox.weights import WeightOptimum, in_function_space, in_weight_space
from kalvi.rules.revisit import Revisit, RevisitState
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.rules.vga import VGA, vga
from kalvi.streams import engines, run

REVISIT_BYTES = 2**31
"""passes="auto" makes one pass over tables that are larger than this, in bytes."""
MOST_PASSES, MOST_LOW_RANK = 2000, 100
"""The most passes of an ascent if the user sets no limit."""
TOLERANCE = 1e-3
"""A low-rank ascent continues while a pass gains more than this, in nats."""
VISITED_ROWS, VISITED_NUMBERS = 1024, 2**25
"""The most rows in a visited block, and the most numbers."""
GAP = 1e-12
"""The squared natural-gradient norm, in nats, at which the ascent of method="klprox" stops."""


def climbs(settings: LinearSettings, family: Family, n_rows: int, n_features: int) -> bool:
    """Whether `fit` continues to the optimum after one pass over a table of this size."""
    square = (family.likelihood.outputs * n_features) ** 2 if settings.rank is None else 0
    numbers = n_rows * n_features + 3 * MEMORY * square
    small = numbers * np.dtype(settings.dtype).itemsize <= REVISIT_BYTES
    wanted = small if settings.pass_limit is None else settings.pass_limit > 1
    return wanted and settings.has_optimum and not family.is_exact(settings.rank)


def climb(fit: LinearFit, rows: Rows) -> LinearFit:
    """The fit at the optimum of the bound over all its rows, starting from their stream."""
    fit = fit.standing_still()
    best = fit.current.best
    prior = fit.stream.prior(fit.point)
    ascend = _climb_dense if fit.settings.rank is None else _climb_low_rank
    posterior, optimum = ascend(fit, prior, best.posterior, rows)
    return fit.at(posterior, prior, rows, optimum)


def _climb_dense(fit: LinearFit, prior: Any, start: Any, rows: Rows) -> tuple[Any, Optimum]:
    """The best Gaussian with a full covariance; the first pass only evaluates the end of the stream."""
    batch = streams.whole_batch(*rows, **fit.settings.layout)
    most = np.int32(fit.settings.pass_limit or MOST_PASSES)
    likelihood = fit.family.likelihood
    predictor = linear_predictor(likelihood.outputs)
    parts = engines.placed((prior, batch, start), engines.is_small(batch.x))
    found: VGA = run.call(_maximise, likelihood, predictor, *parts, most)
    return found.posterior, _optimum(found)


def _climb_low_rank(fit: LinearFit, prior: Any, start: Any, rows: Rows) -> tuple[Any, Optimum]:
    """The best Gaussian of the rank of `start`."""
    settings = fit.settings
    most = settings.pass_limit or MOST_LOW_RANK
    likelihood = fit.family.likelihood
    rule = Revisit(Model(linear_predictor(likelihood.outputs), likelihood))
    by_numpy = engines.is_small(start) and rows[0].size <= engines.MOST_NUMBERS
    prior, start = engines.placed((prior, start), by_numpy)
    state: RevisitState = run.call(_begin_ascent, rule, prior, start)
    layout, size = {**settings.layout, "chunks": not by_numpy}, visited_rows(start.dim)
    with tqdm(total=most, unit=" passes", disable=not settings.verbose) as bar:
        goes_on, found = True, None
        while found is None or (goes_on and found.passes < most):
            batches = streams.array_batches(*rows, block_size=size, **layout)
            state = run.call(Revisit.turn, rule, run.resume(rule, state, batches))
            goes_on, *numbers = run.call(_progress, state.ascent)
            found = _optimum_of(*numbers)
            bar.set_postfix(elbo=f"{found.elbo:.3f}")
            bar.update()
    return run.call(_posterior_of, state.ascent), found


def visited_rows(dim: int) -> int:
    """The number of rows that are visited at once."""
    return int(np.clip(VISITED_NUMBERS // dim, 1, VISITED_ROWS))


def solve(settings: LinearSettings, family: Family, rows: Rows) -> LinearFit:
    """The fit at the optimum, for the prior scale with the most evidence if it is "auto".

    Each ascent except the first begins at the previous optimum.
    """
    settings = settings.resolved(False)
    scales = list(family.scales) if settings.seeks_scale else [settings.prior_scale]
    n, n_features = rows[0].shape
    outputs = family.likelihood.outputs
    batch = streams.whole_batch(*rows, **settings.layout)
    by_numpy = engines.is_small(batch.x)
    several = settings.verbose and len(scales) > 1
    empty = LinearFit(LinearStream(settings, family, n_features), None, streams.Buffer())
    few_rows = outputs == 1 and n < batch.x.shape[1]
    ascend: Callable = _in_function_space if few_rows else _in_weight_space
    most = np.int32(settings.pass_limit or MOST_PASSES)
    best: LinearFit | None = None
    most_evidence, start = -np.inf, None
    for scale in tqdm(scales, unit=" priors", disable=not several):
        prior = settings.make_prior(scale, n_features, outputs, variances=True)
        parts = engines.placed((prior, batch, start), by_numpy)
        found: WeightOptimum = run.call(ascend, family.likelihood, *parts, most)
        posterior: Any = found.posterior  # without the factors of padding rows
        start = posterior.compact()
        state = _solved_state(empty, prior, start, found.elbo, rows)
        evidence = family.evidence(state)  # integrated over the noise if it is learned
        if best is None or evidence > most_evidence:
            most_evidence = evidence
            optimum = _optimum(found)._replace(elbo=evidence)
            at_scale = replace(empty, klprox_scale=scale)
            best = at_scale.with_state(state, int(np.sum(rows[2] > 0)), optimum)
    assert best is not None
    return best


def _solved_state(fit: LinearFit, prior: Any, posterior: Any, elbo: Any, rows: Rows) -> Streaming:
    """The state that a stream would have at this posterior; its evidence is the bound."""
    total = np.asarray(rows[2].sum(), elbo.dtype)
    likelihood = fit.family.likelihood
    rule = RVGA(likelihood, predictor=linear_predictor(likelihood.outputs))
    state = run.begin(rule, posterior)
    state = eqx.tree_at(lambda s: (s.log_evidence, s.rows), state, (elbo, total))
    state = fit.family.update_noise(state, prior, rows, bool(fit.settings.fit_intercept))
    return eqx.tree_at(lambda s: s.log_evidence, state, elbo)


def _optimum(found: VGA | WeightOptimum) -> Optimum:
    return _optimum_of(found.passes, found.elbo, found.gap, found.converged)


def _optimum_of(passes: Any, elbo: Any, gap: Any, converged: Any) -> Optimum:
    return Optimum(int(passes), float(elbo), float(gap), bool(converged))


def _begin_ascent(rule: Revisit, prior: Any, start: Any) -> RevisitState:
    return rule.init(prior, start=start)


def _progress(ascent: Ascent) -> tuple[Any, ...]:
    """Whether to continue; the passes, the bound, the gap, and whether the ascent has converged."""
    goes_on, converged = ascent.should_continue(TOLERANCE), ascent.converged(TOLERANCE)
    return goes_on, ascent.passes, ascent.elbo, ascent.remaining(), converged


def _posterior_of(ascent: Ascent) -> Any:
    return ascent.posterior


def _maximise(
    likelihood: Likelihood,
    predictor: Predictor,
    prior: Dense,
    batch: Batch,
    start: Dense,
    most: Any,
) -> VGA:
    return vga(likelihood, prior, batch, start, predictor=predictor, max_passes=most)


def _in_weight_space(
    likelihood: Any, prior: Any, batch: Batch, start: Any, most: Any
) -> WeightOptimum:
    return in_weight_space(likelihood, prior, batch, start, max_passes=most, tolerance=GAP)


def _in_function_space(
    likelihood: Any, prior: Any, batch: Batch, start: Any, most: Any
) -> WeightOptimum:
    return in_function_space(likelihood, prior, batch, start, max_passes=most, tolerance=GAP)
