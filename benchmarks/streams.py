"""One pass over real streams, every chunk predicted before it is learned."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from river.linear_model import LogisticRegression as RiverLogistic
from sklearn.linear_model import SGDClassifier

from benchmarks import memory
from benchmarks.timing import cpu_seconds
from kalvi import LogisticRegression, datasets, metrics

LATE = 15
"""A flight is late after so many minutes."""
HASH, SIGN = 2654435761, 2246822519
"""Odd multipliers (Knuth's, and one of xxHash) of the column and of its sign, modulo 2³²."""
ALPHAS = (1e-4, 1e-2, 1e-3, 1e-5)
"""scikit-learn's default penalty first; the best of all is chosen in hindsight."""
RIVER_ROWS = 100_000
NEWSGROUP = "sci.space"
EARN = "Reuters, topic earn, in time order"
SPACE = f"20 newsgroups, {NEWSGROUP} against the rest, shuffled"
LONG_ROWS = 4000
"""With a million columns, so many rows: all of them would take half an hour."""
FORGETTING = 0.99999
"""A memory of a hundred thousand flights, about six days."""


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
    per_second: float  # CPU seconds of learning, after the first chunk
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
        len(later) / sum(seconds[1:]),
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
        rows / seconds,
        before,
        memory.peak(),
    )


def streams(report, quick):
    """Progressive losses, speed and memory of one pass over flights and texts."""
    report.heading("One pass over real streams, every chunk predicted before it is learned")
    report.line(
        "Log loss by row: −log p(yₜ | y₁ … yₜ₋₁), a mean over all rows; by chunk: every chunk but the"
        " first, predicted by what was learned before it; the calibration error is of the same predictions."
        " Rows/s of learning alone, after the first chunk. Each run in a process of its own: memory before"
        " learning (libraries and data) and at its highest."
    )
    flights_table(report, 100_000 if quick else 3_000_000)
    small, few = (14, 2000) if quick else (18, None)
    text_table(report, EARN, reuters, (small, few))
    text_table(report, SPACE, newsgroups, (small, few))
    if not quick:
        text_table(report, EARN, reuters, (20, LONG_ROWS))


def flights_table(report, rows):
    """The full covariance of 491 coefficients."""
    forgetful = {"forgetting": FORGETTING}
    contenders = {
        "kalvi, full covariance, float64": (bayesian, {}),
        "kalvi, full covariance, float32": (bayesian, {"dtype": "float32"}),
        f"kalvi, float64, forgetting {FORGETTING:g}": (bayesian, forgetful),
    }
    name = f"{rows:,} flights in time order, more than {LATE} minutes late"
    found = _race(report, name, flights, (rows,), contenders)
    early = _run(flights, (RIVER_ROWS,), dict([*contenders.items()][::2]))
    early["river, by row"] = memory.apart(measure_river, RIVER_ROWS)
    _table(report, f"the first {RIVER_ROWS:,} of them", early)
    speeds = found["kalvi, full covariance, float64"], early["river, by row"]
    seconds = [rows / outcome.per_second for outcome in speeds]
    report.line(
        f"prior_scale=1. All {rows:,} take kalvi in float64 {seconds[0]:.0f} s; river, at the speed of the"
        f" first {RIVER_ROWS:,}, would take {seconds[1]:.0f} s. river's calibration error is of predictions"
        " made row by row."
    )


def text_table(report, name, data, sizes, scale=10.0):
    """Low-rank precisions of hashed words, in float32; rank 0 is a variance for every word."""
    settings = {"prior_scale": scale, "dtype": "float32"}
    contenders = {
        f"kalvi, rank {rank}, " + ("growing blocks" if size == "auto" else f"blocks of {size}"): (
            bayesian,
            {"rank": rank, "block_size": size, **settings},
        )
        for rank, size in ((0, 16), (10, "auto"), (10, 16), (20, 16))
    }
    _race(report, f"{name}, 2^{sizes[0]} columns", data, sizes, contenders)
    report.line(
        f"kalvi in float32 with prior_scale={scale:g}; log(1 + count), rows of norm 1."
        + (f" Only the first {sizes[1]} rows." if sizes[1] else "")
    )


def _race(report, name, data, sizes, contenders) -> dict[str, Outcome]:
    """kalvi as given, SGD with the default penalty and with the best in hindsight."""
    found = _run(data, sizes, contenders)
    rivals = _run(data, sizes, {alpha: (sgd, {"alpha": alpha}) for alpha in ALPHAS})
    best = min(rivals, key=lambda alpha: rivals[alpha].by_chunk)
    found["scikit-learn SGD, default penalty"] = rivals[ALPHAS[0]]
    found[f"scikit-learn SGD, best penalty in hindsight, {best:g}"] = rivals[best]
    _table(report, name, found)
    return found


def _run(data, sizes, contenders) -> dict[Any, Outcome]:
    """Every contender in a process of its own; long runs say how they ended at once."""
    found = {}
    for name, (model, settings) in contenders.items():
        found[name] = memory.apart(measure, data, sizes, model, settings)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def _table(report, name, found: dict[str, Outcome]):
    report.table(
        [
            name,
            "rows",
            "log loss by row",
            "by chunk",
            "calibration error",
            "held-out log loss",
            "rows/s",
            "MB before",
            "MB at most",
        ],
        [
            [
                contender,
                o.rows,
                *("" if np.isnan(v) else f"{v:.4f}" for v in o[1:5]),
                f"{o.per_second:,.0f}",
                f"{o.before:,.0f}",
                f"{o.peak:,.0f}",
            ]
            for contender, o in found.items()
        ],
    )
