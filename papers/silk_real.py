"""Real binary matrices along an order: votes in the US Senate, spikes after sounds.

Figure 5: a tenth of the senators' votes, hidden at random. Figure 6: a tenth of the milliseconds of
trials. Each with smoothness along the order and without; roll calls at one place are drawn apart, since by
the prior they would be one and the same. (Figure 4, forecasts, is in `silk_votes`.)
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kalvi import plots
from kalvi.evaluation import metrics
from kalvi.rules.silk import separate_ties
from papers import datasets
from papers import silk_pictures as pictures
from papers.results import Claim, Result
from papers.silk_data import Matrix, real, scattered
from papers.silk_fits import CHAINS, COUPLED, NEITHER, Fit, Settings, fit, predicted

SMOOTH, NONE, BASE = "smooth", "no smoothness", "column means"
GAIN, SWEEPS = 5.0, 200
"""Nats that five sweeps must gain, of a bound of a hundred thousand."""
DEMOCRAT, REPUBLICAN = 100, 200


class Case(NamedTuple):
    """A matrix with entries hidden, and how it is fitted."""

    matrix: Matrix
    k: int
    smooth: tuple[bool, bool]
    family: str = COUPLED


def compared(case: Case) -> dict[str, Fit]:
    """With smoothness along the order, and without."""
    settings = Settings(case.family, case.smooth, gain=GAIN, sweeps=SWEEPS, dtype="float32")
    return {
        SMOOTH: fit(case.matrix, case.k, settings),
        NONE: fit(case.matrix, case.k, settings._replace(smooth=NEITHER)),
    }


def scores(matrix: Matrix, fits: dict[str, Fit]) -> list[dict[str, Any]]:
    """Losses and calibration, those of the means of the columns beside them."""
    answers = matrix.answers
    means = (matrix.x * matrix.seen).sum(axis=0) + 1
    means = means / (matrix.seen.sum(axis=0) + 2)
    probabilities = {name: f.probability for name, f in fits.items()}
    probabilities[BASE] = np.broadcast_to(means, matrix.x.shape)[matrix.hidden]
    return [
        {
            "method": name,
            "log loss": metrics.log_loss(p, answers),
            "Brier": metrics.brier(p, answers),
            "calibration error": metrics.calibration_error(p, answers),
            "bound": fits[name].elbo if name in fits else None,
            "sweeps": len(fits[name].elbos) - 1 if name in fits else None,
            "seconds": fits[name].seconds if name in fits else None,
            "hidden entries": len(answers),
        }
        for name, p in probabilities.items()
    ]


def better(rows: list[dict[str, Any]], matrix: Matrix, fits: dict[str, Fit], what: str) -> Claim:
    """The claim that smoothness helps, with the standard error of the difference."""
    numbers = {row["method"]: row["log loss"] for row in rows}
    numbers |= {"standard error": paired_error(matrix, fits)}
    text = f"{what}: smoothness lowers the log loss of what is hidden (by two standard errors)"
    return Claim(
        text, numbers, numbers[NONE] - numbers[SMOOTH] > 2 * numbers["standard error"], ours=True
    )


def paired_error(matrix: Matrix, fits: dict[str, Fit]) -> float:
    """The standard error of the mean difference of the two losses, rows of the matrix taken as units."""
    y, row = matrix.answers, np.nonzero(matrix.hidden)[0]
    smooth, none = (np.where(y == 1, f.probability, 1 - f.probability) for f in fits.values())
    n, count = len(matrix.x), np.bincount(row, minlength=len(matrix.x))
    gains = np.bincount(row, np.log(smooth / none), n)
    away = gains - gains.sum() / len(y) * count
    return float(np.sqrt(np.sum(away**2)) / len(y))


def calibrated(rows: list[dict[str, Any]], what: str) -> Claim:
    """The claim that probabilities mean what they say."""
    numbers = {row["method"]: row["calibration error"] for row in rows}
    text = f"{what}: probabilities are calibrated (expected calibration error below 0.02)"
    return Claim(text, numbers, numbers[SMOOTH] < 0.02, ours=True)


def reliability(matrix: Matrix, found: Fit, title: str) -> partial:
    """The panel of what was predicted against what happened."""
    table = metrics.calibration(found.probability, matrix.answers)
    return partial(plots.reliability, table.predicted, table.observed, table.count, title=title)


def losses(rows: list[dict[str, Any]]) -> partial:
    """The panel of the losses."""
    values = {row["method"]: row["log loss"] for row in rows}
    return partial(pictures.bars, values, title="log loss of hidden entries")


def strongest(found: Fit, n: int) -> np.ndarray:
    """The factors that move the log-odds most."""
    rows, cols = (np.asarray(s.posterior.mean) for s in (found.silk.rows, found.silk.cols))
    return np.argsort(-(rows.std(axis=0) * cols.std(axis=0)))[:n]


def latest(matrix: Matrix, n: int | None) -> Matrix:
    """The last rows, ties among their locations drawn apart."""
    assert matrix.row_locations is not None
    first = 0 if n is None else len(matrix.x) - n
    locations = separate_ties(matrix.row_locations[first:])
    x, seen, hidden = (a[first:] for a in (matrix.x, matrix.seen, matrix.hidden))
    return Matrix(x, seen, hidden, locations, matrix.col_locations)


def figure_5(quick: bool) -> Result:
    """The US Senate."""
    stored, info = real("us_senate_votes"), datasets.load("us_senate_votes")
    stored = latest(stored, 400 if quick else None)
    locations = stored.row_locations, None
    matrix = scattered(stored.x, stored.seen, locations, 0.1, np.random.default_rng(0))
    case = Case(matrix, 2 if quick else 3, (True, False), CHAINS)
    fits = compared(case)
    rows = scores(matrix, fits)
    what = "Votes in the Senate"
    claims = [better(rows, matrix, fits, what), calibrated(rows, what)]
    title = f"Hidden votes of senators, {_size(matrix)} roll calls × senators"

    def draw() -> plots.Figure:
        pair, served = strongest(fits[SMOOTH], 2), matrix.seen.any(axis=0)
        points = np.asarray(fits[SMOOTH].silk.cols.posterior.mean)[served][:, pair]
        party = info["col_party"][served]
        classes = np.where(party == REPUBLICAN, 0, np.where(party == DEMOCRAT, 1, 2)).tolist()
        panels = [
            partial(pictures.named_points, points, list(info["col_id"][served]), classes=classes,
                    title="senators: Democrats blue, Republicans orange"),
            reliability(matrix, fits[SMOOTH], "smooth"),
            losses(rows),
        ]  # fmt: skip
        return plots.compose([panels], title=f"5. {title}", size=(16, 5))

    return Result(5, title, rows, claims, draw)


def figure_6(quick: bool) -> Result:
    """Spikes in auditory cortex."""
    stored = datasets.binary_matrix("auditory_spikes")
    order = np.argsort(stored.names, kind="stable")
    x, sounds = stored.entries[order], stored.names[order]
    if quick:
        x, sounds = x[::20], sounds[::20]
    locations = None, 1000 * np.asarray(stored.col_locations)
    rng = np.random.default_rng(0)
    matrix = scattered(x, np.ones(x.shape, bool), locations, 0.1, rng)
    case = Case(matrix, 2 if quick else 5, (False, True))
    fits = compared(case)
    rows = scores(matrix, fits)
    what = "Spikes"
    claims = [better(rows, matrix, fits, what), calibrated(rows, what)]
    title = f"Spikes of auditory cells after sounds, {_size(matrix)} trials × milliseconds"

    def draw() -> plots.Figure:
        return _spikes(matrix, fits, rows, f"6. {title}")

    return Result(6, title, rows, claims, draw)


def _size(matrix: Matrix) -> str:
    return "{} × {}".format(*matrix.x.shape)


def _spikes(
    matrix: Matrix, fits: dict[str, Fit], rows: list[dict[str, Any]], title: str
) -> plots.Figure:
    time, found = np.asarray(matrix.col_locations), fits[SMOOTH]
    everything = np.ones(matrix.x.shape, bool)
    estimate = predicted(found.silk, everything).reshape(everything.shape)
    most = float(np.quantile(estimate, 0.995))
    edges = float(time[0]), float(time[-1]), len(matrix.x), 0
    look = {"extent": edges, "xlabel": "ms after the sound", "ylabel": "trial"}
    chosen = strongest(found, 4)
    side = found.silk.cols.posterior
    mean, std = np.asarray(side.mean)[:, chosen], np.sqrt(np.asarray(side.var))[:, chosen]
    panels = [
        partial(plots.image, matrix.x, title="spikes, trials by sound", **look),
        partial(
            pictures.scaled_image,
            estimate,
            title="probability of a spike",
            limits=(0.0, most),
            **look,
        ),
        partial(plots.paths, time, mean, std, title="factors over time", xlabel="ms"),
        losses(rows),
    ]
    return plots.compose([panels], title=title, size=(18, 5))
