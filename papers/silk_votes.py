"""Forecasts of votes in the United Nations: countries that move, as smooth rows of one factorisation.

Figure 4. A row is a country in one session, a column a roll call; the rows of a country lie one session
apart and those of different countries far apart, so that a country's factors are a path through time:
dynamic ideal points. Without smoothness a country has one set of factors for all time. Of every other
country the last tenth of the sessions is hidden; an abstention is no yes.

Roll calls of different sessions have no row in common, so that singular vectors know nothing of how
sessions go together: the paths start from the factors without smoothness.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from kalvi import plots
from kalvi.evaluation import metrics
from kalvi.numerics.precision import matching_precision
from kalvi.rules.silk import Chains, Side, Silk
from papers import datasets
from papers import silk_fits as fits
from papers import silk_pictures as pictures
from papers.results import Result
from papers.silk_data import Matrix, real
from papers.silk_fits import CHAINS, NEITHER, Fit, Settings
from papers.silk_real import (
    NONE,
    SMOOTH,
    better,
    calibrated,
    losses,
    reliability,
    scores,
)

FAR = 1e5
"""Sessions between countries: as good as infinitely many."""
K, FIRST_RATE, WIDER = 4, 0.01, 20.0
"""Factors; where the search for the rate begins; how much less is known of a session than of all."""
SETTINGS = Settings(CHAINS, NEITHER, gain=20.0, sweeps=100, dtype="float32")
COUNTRIES = (
    "United States",
    "United Kingdom",
    "Israel",
    "Russia",
    "China",
    "India",
    "Egypt",
    "South Africa",
)


class Votes(NamedTuple):
    """Roll calls by countries; the same by countries in sessions; and which row is which."""

    static: Matrix
    dynamic: Matrix
    country: np.ndarray
    session: np.ndarray


def figure_4(quick: bool) -> Result:
    """The United Nations."""
    votes = forecasts(900 if quick else None)
    k = 2 if quick else K
    still = fits.fit(votes.static, k, SETTINGS)
    moving = through_time(votes, still, k)
    found = {SMOOTH: moving, NONE: still}
    rows = scores(votes.static, found)
    what = "Forecasts of United Nations votes"
    claims = [better(rows, votes.static, found, what), calibrated(rows, what)]
    title = f"Votes of every other country in the last tenth of {len(votes.static.x)} roll calls' sessions"
    return Result(4, title, rows, claims, partial(_draw, votes, moving, rows, f"4. {title}"))


def forecasts(last: int | None) -> Votes:
    """The last roll calls, or all, with every other country's last sessions hidden."""
    whole, info = real("un_votes", abstentions=0), datasets.load("un_votes")
    first = 0 if last is None else len(whole.x) - last
    x, seen, session = whole.x[first:], whole.seen[first:], info["row_session"][first:].astype(int)
    distinct = np.unique(session)
    late = session >= distinct[-max(len(distinct) // 10, 1)]
    chosen = np.random.default_rng(0).permutation(x.shape[1]) % 2 == 0
    hidden = seen & np.outer(late, chosen)
    static = Matrix(x, seen & ~hidden, hidden, None, None)
    return by_session(static, session)


def by_session(static: Matrix, session: np.ndarray) -> Votes:
    """A row for every country in every session in which it has votes."""
    present = static.seen | static.hidden
    pairs = [
        (c, s) for c in range(present.shape[1]) for s in np.unique(session[present[:, c]]).tolist()
    ]
    country, when = np.array(pairs).T
    here = when[:, None] == session
    x, seen, hidden = (a.T[country] & here for a in (static.x > 0, static.seen, static.hidden))
    dynamic = Matrix(x.astype(np.int8), seen, hidden, country * FAR + when, None)
    return Votes(static, dynamic, country, when)


def through_time(votes: Votes, still: Fit, k: int) -> Fit:
    """The factorisation with a path for every country, started where countries do not move."""
    settings = SETTINGS._replace(smooth=(True, False))
    with matching_precision(settings.dtype):
        seen = fits.observed(votes.dynamic)
        first = _spread_out(fits.begin(votes.dynamic, seen, k, settings), still.silk, votes.country)
        silk, elbos, seconds = fits.climb(first, seen, settings)
    entry = np.zeros(votes.static.x.shape)
    row, call = np.nonzero(votes.dynamic.hidden)
    entry[call, votes.country[row]] = fits.predicted(silk, votes.dynamic.hidden)
    probability = entry[votes.static.hidden]
    return Fit(
        silk, elbos, seconds, probability, metrics.log_loss(probability, votes.static.answers)
    )


def _spread_out(first: Silk, still: Silk, country: np.ndarray) -> Silk:
    """The factors of countries and roll calls that do not move, on paths of a slow prior."""
    whole = still.cols.posterior
    mean, var = whole.mean[country], WIDER * whole.var[country]
    numbers = still.cols.prior.mean, still.cols.prior.variance
    rate = jnp.full_like(first.rows.prior.rate, FIRST_RATE)
    prior = eqx.tree_at(lambda p: (p.mean, p.variance, p.rate), first.rows.prior, (*numbers, rate))
    return Silk(Side(prior, Chains.independent(mean, var), None, True), still.rows)


def _draw(votes: Votes, moving: Fit, rows: list, title: str) -> plots.Figure:
    names = [str(n) for n in datasets.binary_matrix("un_votes").names]
    side = moving.silk.rows.posterior
    mean, std = np.asarray(side.mean), np.sqrt(np.asarray(side.var))
    roll_calls = np.asarray(moving.silk.cols.posterior.mean)
    main = int(np.argmax(mean.std(axis=0) * roll_calls.std(axis=0)))
    tracks = {}
    for name in COUNTRIES:
        mine = votes.country == names.index(name) if name in names else np.zeros(len(mean), bool)
        if mine.any():
            tracks[name] = votes.session[mine] + 1945, mean[mine, main], std[mine, main]
    panels = [
        partial(pictures.tracks, tracks, title="the strongest factor of some countries", xlabel="year",
                since=float(votes.session[votes.dynamic.hidden.any(axis=1)].min() + 1945)),
        reliability(votes.static, moving, "forecasts"),
        losses(rows),
    ]  # fmt: skip
    return plots.compose([panels], title=title, size=(17, 5.2))
