"""One pass over real streams, every chunk predicted before it is learned; each run in its own process.

Log loss by row is the mean of −log p(yₜ | y₁ … yₜ₋₁) over all rows. Log loss by chunk covers every
chunk but the first, predicted by what was learned before it; the calibration error is that of the same
predictions. Rows/s are those of learning only, after the first chunk. Memory is given before learning
(libraries and data) and at its highest. scikit-learn's SGD has its default penalty, and the best of
four in hindsight; river takes single rows. Flights: departures in time order, 491 indicators, late by
more than 15 minutes; by default kalvi learns the prior scale and the drift on the way. Texts: hashed
words and pairs of words, log(1 + count), rows of norm 1; kalvi in float32 with prior_scale=10 and a
low-rank precision.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from river.linear_model import LogisticRegression as RiverLogistic
from sklearn.linear_model import SGDClassifier

from benchmarks import memory
from benchmarks.changing import changing
from benchmarks.report import Report, spread
from benchmarks.timing import cpu_seconds
from kalvi import LogisticRegression
from kalvi.evaluation import metrics
from papers import datasets

LATE = 15
"""A flight is late after so many minutes."""
HASH, SIGN = 2654435761, 2246822519
"""Odd multipliers (Knuth's, and one of xxHash) of the column and of its sign, modulo 2³²."""
ALPHAS = (1e-4, 1e-2, 1e-3, 1e-5)
"""scikit-learn's default penalty first; the best of all is chosen in hindsight."""
NEWSGROUP = "sci.space"
EARN = "Reuters, topic earn, in time order"
SPACE = f"20 newsgroups, {NEWSGROUP} against the rest, shuffled"
DRIFT = 0.9995
"""A memory of two thousand flights, about three hours; chosen by hand."""


class Stream(NamedTuple):
    """Rows in their order, how many come at once, and rows kept for the end."""

    x: sp.csr_matrix
    y: np.ndarray  # 0 or 1
    chunk: int
    constant: bool = False  # whether a column of ones is among them
    held_out: tuple[sp.csr_matrix, np.ndarray] | None = None


class Outcome(NamedTuple):
    rows: int
    by_row: float  # mean −log p(yₜ | y₁ … yₜ₋₁)
    by_chunk: float  # the same, of every chunk but the first, predicted before it is learned
    calibration: float
    held_out: float
    rates: np.ndarray  # rows a CPU second of learning, of every chunk after the first
    before: float  # MB
    peak: float


def flights(rows: int | None = None) -> Stream:
    """Departures in time order: 1, log distance, hour, weekday, origin and destination as indicators."""
    stored = datasets.load("flights3m")
    minute = np.cumsum(stored["minute_delta"].astype(np.int64))[:rows]
    airports, n = len(stored["airports"]), len(minute)
    parts = [minute // 60 % 24, minute // 1440 % 7, stored["origin"][:n], stored["dest"][:n]]
    ends = np.cumsum([2, 24, 7, airports, airports])
    columns = np.zeros((n, 6), np.int32)
    columns[:, 1] = 1
    for j, (first, part) in enumerate(zip(ends, parts, strict=False), 2):
        columns[:, j] = first + part
    values = np.ones((n, 6))
    values[:, 1] = (np.log(stored["distance"][:n]) - 6.3) / 0.8
    x = sp.csr_matrix((values.ravel(), columns.ravel(), 6 * np.arange(n + 1)), (n, ends[-1]))
    return Stream(x, (stored["delay"][:n] > LATE).astype(int), 50_000, constant=True)


def reuters(bits: int, rows: int | None = None) -> Stream:
    """News in time order, whether the topic is earnings; words and pairs of words, hashed."""
    stored = datasets.load("reuters21578")
    x = _hashed(stored["X"], bits)[:rows]
    return Stream(x, (stored["y"][: x.shape[0]] == 1).astype(int), 1000)


def newsgroups(bits: int, rows: int | None = None) -> Stream:
    """The earlier messages of 20 newsgroups, shuffled, one group against the rest; later ones held out."""
    stored = datasets.load("news20_bydate")
    x, late = _hashed(stored["X"], bits), stored["split"] == 1
    y = (stored["class_names"][stored["y"]] == NEWSGROUP).astype(int)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~late))[:rows]
    return Stream(x[order], y[order], 1000, held_out=(x[late], y[late]))


def _hashed(counts: sp.csr_matrix, bits: int) -> sp.csr_matrix:
    """log(1 + count) of columns folded into 2^bits with signs, rows of norm one."""
    column = counts.indices.astype(np.uint64)
    place = (column * np.uint64(HASH) % np.uint64(2**32)) >> np.uint64(32 - bits)
    sign = 1 - 2.0 * ((column * np.uint64(SIGN) % np.uint64(2**32)) >> np.uint64(31))
    parts = (np.log1p(counts.data) * sign, place.astype(np.int32), counts.indptr)
    x = sp.csr_matrix(parts, (counts.shape[0], 2**bits))
    x.sum_duplicates()
    norm = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags_array(1 / np.where(norm > 0, norm, 1)) @ x)


def bayesian(stream: Stream, **settings):
    return LogisticRegression(passes=1, fit_intercept=not stream.constant, **settings)


def sgd(stream: Stream, **settings):
    return SGDClassifier(
        loss="log_loss", fit_intercept=not stream.constant, random_state=0, **settings
    )


def measure(data: Callable[..., Stream], sizes: tuple, model: Callable, settings: dict) -> Outcome:
    """One pass: every chunk is predicted, then learned."""
    stream = data(*sizes)
    before, learner = memory.resident(), model(stream, **settings)
    starts, forecast, seconds = range(0, len(stream.y), stream.chunk), [], []
    for start in starts:
        rows = slice(start, start + stream.chunk)
        if start:
            forecast.append(learner.predict_proba(stream.x[rows])[:, 1])
        seconds.append(cpu_seconds(learner.partial_fit, stream.x[rows], stream.y[rows], [0, 1]))
    forecast, later = np.concatenate(forecast), stream.y[stream.chunk :]
    evidence = getattr(learner, "log_evidence_", np.nan)
    final = np.nan
    if stream.held_out is not None:
        final = metrics.log_loss(
            learner.predict_proba(stream.held_out[0])[:, 1], stream.held_out[1]
        )
    return Outcome(
        len(stream.y),
        -evidence / len(stream.y),
        metrics.log_loss(forecast, later),
        metrics.calibration_error(forecast, later),
        final,
        np.diff([*starts, len(stream.y)])[1:] / np.array(seconds[1:]),
        before,
        memory.peak(),
    )


def measure_river(rows: int) -> Outcome:
    """river on the first flights, each predicted before it is learned."""
    stream, learner = flights(rows), RiverLogistic()
    before, forecast = memory.resident(), np.zeros(rows)
    words = np.split(stream.x.indices, stream.x.indptr[1:-1])
    values = np.split(stream.x.data, stream.x.indptr[1:-1])
    dicts = [
        dict(zip(w.tolist(), v.tolist(), strict=True)) for w, v in zip(words, values, strict=True)
    ]

    def learn():
        for t, (row, label) in enumerate(zip(dicts, stream.y.tolist(), strict=True)):
            forecast[t] = learner.predict_proba_one(row)[True]
            learner.learn_one(row, bool(label))

    seconds = cpu_seconds(learn)
    return Outcome(
        rows,
        metrics.log_loss(forecast, stream.y),
        np.nan,
        metrics.calibration_error(forecast, stream.y),
        np.nan,
        np.array([rows / seconds]),
        before,
        memory.peak(),
    )


def streams(report: Report, quick: bool) -> None:
    """Progressive losses, speed and memory of one pass over flights and texts."""
    rows, bits, few = (60_000, 12, 2000) if quick else (500_000, 14, None)
    contenders = {
        "kalvi, default": (bayesian, {}),
        "kalvi, prior_scale=1, no drift": (bayesian, {"prior_scale": 1.0}),
        f"kalvi, prior_scale=1, drift {DRIFT:g}": (bayesian, {"drift": DRIFT}),
        "kalvi, default, float32": (bayesian, {"dtype": "float32"}),
    }
    _race(report, f"{rows:,} flights", flights, (rows,), contenders, river=True)
    settings = {"prior_scale": 10.0, "dtype": "float32"}
    texts = {
        f"kalvi, rank {rank}": (bayesian, {"rank": rank, "block_size": 16, **settings})
        for rank in (10, 0)
    }
    for name, data in ((EARN, reuters), *([] if quick else [(SPACE, newsgroups)])):
        _race(report, f"{name}, 2^{bits} columns", data, (bits, few), texts)
    changing(report, quick)


def _race(report: Report, name, data, sizes, contenders, river: bool = False) -> None:
    """kalvi as given, SGD with the default penalty and with the best in hindsight."""
    found = _run(report, data, sizes, contenders)
    alphas = ALPHAS[:2] if len(sizes) > 1 and sizes[1] else ALPHAS
    rivals = _run(report, data, sizes, {a: (sgd, {"alpha": a}) for a in alphas})
    best = min(rivals, key=lambda alpha: rivals[alpha].by_chunk)
    found["scikit-learn SGD, default penalty"] = rivals[ALPHAS[0]]
    found[f"scikit-learn SGD, best penalty, {best:g}"] = rivals[best]
    if river:
        try:
            found["river"] = memory.apart(measure_river, *sizes)
        except Exception as error:
            report.failed("river", error)
    ours, ratio = next(iter(found)), {}
    for peer, outcome in found.items():
        if peer.startswith("kalvi"):
            continue
        ratio[peer] = report.faster(peer, found[ours].rates / outcome.rates, name)
        report.closer(peer, found[ours].by_chunk, outcome.by_chunk, name, "log loss by chunk")
        report.closer(peer, found[ours].by_row, outcome.by_row, name, "log loss by row")
        report.closer(peer, found[ours].held_out, outcome.held_out, name, "held-out log loss")
    report.heading(name)
    _table(report, found, ratio)


def _run(report: Report, data, sizes, contenders) -> dict[Any, Outcome]:
    """Every contender in a process of its own."""
    found = {}
    for name, (model, settings) in contenders.items():
        try:
            found[name] = memory.apart(measure, data, sizes, model, settings)
        except Exception as error:
            report.failed(str(name), error)
    return found


def _table(report: Report, found: dict[str, Outcome], ratio: dict[str, str]) -> None:
    report.table(
        [
            "",
            "rows",
            "log loss by row",
            "by chunk",
            "calibration error",
            "held-out log loss",
            "rows/s",
            "the first is faster by",
            "MB before",
            "MB at most",
        ],
        [
            [
                contender,
                o.rows,
                *("" if np.isnan(v) else f"{v:.4f}" for v in o[1:5]),
                spread(o.rates),
                ratio.get(contender, ""),
                f"{o.before:,.0f}",
                f"{o.peak:,.0f}",
            ]
            for contender, o in found.items()
        ],
    )
