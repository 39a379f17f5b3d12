"""Further passes over a table: from the posterior of one pass to the optimum of the variational bound."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from kalvi import streams
from kalvi.gaussians import Dense, Gaussian, LowRankPrecision
from kalvi.likelihoods import Likelihood
from kalvi.predictors import linear
from kalvi.predictors.models import Model
from kalvi.rules.base import Batch
from kalvi.rules.revisit import Revisit, Revisiting
from kalvi.rules.vga import VGA, vga
from kalvi.streams import run

MOST_PASSES, MOST_LOW_RANK = 2000, 100
"""Where a climb without a limit of its own stops, even if the bound still rises."""
TOLERANCE = 1e-3
"""Nats that a pass over the rows must gain for a low-rank posterior to go on."""
VISITED_ROWS, VISITED_NUMBERS = 1024, 2**25
"""Rows are visited in blocks of at most so many, and so many numbers in them."""


class Found(NamedTuple):
    """Where a climb ended."""

    posterior: Gaussian
    passes: int
    elbo: float
    gap: float  # squared natural-gradient norm; of a low rank, what the last pass gained, or rounding
    converged: bool


def climb_dense(
    likelihood: Likelihood,
    prior: Any,
    start: Any,
    rows: tuple,
    layout: dict[str, Any],
    limit: int | None,
    verbose: bool,
) -> Found:
    """The best Gaussian with a full covariance; the first pass only looks at where the stream ended."""
    batch = streams.whole_batch(*rows, **layout)
    most = jnp.asarray(MOST_PASSES if limit is None else limit)
    found: VGA = run.call(_revisited, likelihood, prior, batch, start, most)
    passes, elbo, gap = int(found.passes), float(found.elbo), float(found.gap)
    return Found(found.posterior, passes, elbo, gap, bool(found.converged))


def climb_low_rank(
    likelihood: Likelihood,
    prior: Any,
    start: LowRankPrecision,
    rows: tuple,
    layout: dict[str, Any],
    limit: int | None,
    verbose: bool,
) -> Found:
    """The best Gaussian of the rank of `start`."""
    most = MOST_LOW_RANK if limit is None else limit
    rule = Revisit(Model(linear(likelihood.outputs), likelihood))
    state: Revisiting = rule.init(prior, start=start)
    size = int(np.clip(VISITED_NUMBERS // start.dim, 1, VISITED_ROWS))
    with tqdm(total=most, unit=" passes", disable=not verbose) as bar:
        ascent = state.ascent
        while ascent.going(TOLERANCE) and int(ascent.passes) < most:
            batches = streams.array_batches(*rows, block_size=size, **layout)
            state = run.call(Revisit.turn, rule, run.resume(rule, state, batches))
            ascent = state.ascent
            bar.set_postfix(elbo=f"{float(ascent.elbo):.3f}")
            bar.update()
    gap = float(ascent.remaining())
    done = bool(ascent.converged(TOLERANCE))
    return Found(ascent.posterior, int(ascent.passes), float(ascent.elbo), gap, done)


def _revisited(likelihood: Likelihood, prior: Dense, batch: Batch, start: Dense, limit) -> VGA:
    predictor = linear(likelihood.outputs)
    return vga(likelihood, prior, batch, start, predictor=predictor, max_passes=limit)
