"""Streams whose world changes, or does not: default settings, every row predicted before it is learned.

kalvi has its defaults: prior scale and drift are learned on the way; beside it a fixed scale and no
drift. Its log loss by row is −log p(yₜ | y₁ … yₜ₋₁), its calibration that of chunks of 200 rows, each
predicted before it is learned. river and scikit-learn's SGD learn each row before the next one is
predicted; of both also the best of several settings chosen in hindsight. bayesianbandits learns 200
rows at a time, with empirical Bayes and a memory of 2,000 rows. Columns of real data are standardised
as a whole, for all alike.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from bayesianbandits import EmpiricalBayesGLM, StabilizedForgetting
from river import optim
from river.linear_model import LogisticRegression as RiverLogistic
from sklearn.linear_model import SGDClassifier

from benchmarks import memory
from benchmarks.report import Report
from benchmarks.timing import cpu_seconds
from kalvi import LogisticRegression
from kalvi.evaluation import metrics
from papers import datasets

CHUNK = 200
"""kalvi's calibration, and bayesianbandits, are of chunks of so many rows."""
MEMORY = 0.9995
"""What bayesianbandits keeps of a row."""
RATES = (0.01, 0.001, 0.003, 0.03, 0.1)
"""river's default rate first."""
PENALTIES = (1e-4, 1e-5, 1e-3, 1e-2)
"""scikit-learn's default penalty first."""
BIN = 20
"""Milliseconds of a bin of spikes."""


class Rows(NamedTuple):
    """Rows in their order, a column of ones among them."""

    x: Any
    y: np.ndarray


class Found(NamedTuple):
    """What a contender made of a stream."""

    loss: float
    calibration: float
    seconds: float
    said: str = ""


def weather(quick: bool) -> Rows:
    stored = datasets.load("weather_noaa")
    return Rows(_with_ones(_standardised(stored["X"])), (stored["y"] > 0).astype(int))


def covtype(quick: bool) -> Rows:
    stored = datasets.load("covtype")
    n = 20_000 if quick else 200_000
    x = stored["X"][:n].copy()
    x[:, :10] = _standardised(x[:, :10])
    return Rows(_with_ones(x), (stored["y"][:n] == 2).astype(int))


def spikes(quick: bool) -> Rows:
    """Whether the busiest cell fires within 20 ms, all trials of a bin before the next; by sound."""
    stored = datasets.load("auditory_spikes")
    cells, sound = stored["S_E1"], stored["sound_E1"]
    busiest = 1 + int(np.argmax(np.bincount(cells.ravel())[1:]))
    fires = (cells == busiest).reshape(len(cells), -1, BIN).any(axis=2)
    each = _with_ones(np.eye(int(sound.max()) + 1)[sound])
    bins = 5 if quick else fires.shape[1]
    return Rows(np.tile(each, (bins, 1)), fires[:, :bins].T.ravel().astype(int))


def made_up(kind: str) -> Callable[[bool], Rows]:
    """A logistic stream of ten columns and a constant, or of ten levels and four columns."""

    def make(quick: bool) -> Rows:
        rng, n, d = np.random.default_rng(0), 20_000 if quick else 100_000, 11
        x = _with_ones(rng.normal(size=(n, d - 1)))
        theta = np.tile(0.7 * rng.normal(size=d), (n, 1))
        if kind == "slow":
            for t in range(1, n):
                step = 0.7 * np.sqrt(1 - 0.9998**2) * rng.normal(size=d)
                theta[t] = 0.9998 * theta[t - 1] + step
        if kind == "jumps":
            theta = 0.7 * rng.normal(size=(6, d))[np.arange(n) * 6 // n]
        if kind == "level":
            level = rng.integers(0, 10, n)
            away = (np.arange(n) > 0.3 * n) & (np.arange(n) < 0.7 * n)
            level[away & (level == 3)] = 4
            x = np.hstack([np.eye(10)[level], x[:, :4]])
            theta = np.tile(rng.normal(size=14), (n, 1))
        odds = np.sum(x * theta, axis=1)
        return Rows(x, (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int))

    return make


STREAMS: dict[str, Callable[[bool], Rows]] = {
    "weather": weather,
    "covtype, in its order": covtype,
    "spikes of one cell over time": spikes,
    "made up: stationary": made_up("stationary"),
    "made up: slow drift": made_up("slow"),
    "made up: jumps": made_up("jumps"),
    "made up: a level that disappears and returns": made_up("level"),
}


def kalvi(rows: Rows, settings: dict[str, Any]) -> Found:
    model = LogisticRegression(fit_intercept=False, **settings)
    forecast = np.full(len(rows.y), np.mean(rows.y[:CHUNK]))

    def learn() -> None:
        for part in _parts(len(rows.y)):
            if part.start:
                forecast[part] = model.predict_proba(rows.x[part])[:, 1]
            model.partial_fit(rows.x[part], rows.y[part], classes=[0, 1])

    seconds = cpu_seconds(learn)
    said = f"scale {model.prior_scale_:.3g}, drift {model.drift_ or 1:g}"
    loss = -model.log_evidence_ / len(rows.y)
    error = metrics.calibration_error(forecast[CHUNK:], rows.y[CHUNK:])
    return Found(loss, error, seconds, said)


def river(rows: Rows, rate: float) -> Found:
    model = RiverLogistic(optimizer=optim.SGD(rate))
    forecast = np.zeros(len(rows.y))

    def learn() -> None:
        for t, (row, label) in enumerate(zip(_dicts(rows.x), rows.y.tolist(), strict=True)):
            forecast[t] = model.predict_proba_one(row)[True]
            model.learn_one(row, bool(label))

    return _scored(forecast, rows, cpu_seconds(learn))


def sgd(rows: Rows, penalty: float) -> Found:
    model = SGDClassifier(loss="log_loss", alpha=penalty, fit_intercept=False, random_state=0)
    forecast = np.full(len(rows.y), 0.5)

    def learn() -> None:
        for t in range(len(rows.y)):
            row = rows.x[t : t + 1]
            if t:
                forecast[t] = model.predict_proba(row)[0, 1]
            model.partial_fit(row, rows.y[t : t + 1], [0, 1])

    return _scored(forecast, rows, cpu_seconds(learn))


def bandits(rows: Rows, keep: float) -> Found:
    model = EmpiricalBayesGLM(forgetting=StabilizedForgetting(keep), random_state=0)
    forecast = np.full(len(rows.y), 0.5)

    def learn() -> None:
        for part in _parts(len(rows.y)):
            if part.start:
                forecast[part] = model.predict(rows.x[part])
            model.partial_fit(rows.x[part], rows.y[part])

    return _scored(forecast, rows, cpu_seconds(learn))


def changing(report: Report, quick: bool) -> None:
    """Progressive losses of streams that change, with default settings and the best in hindsight."""
    for name in STREAMS:
        found = {
            "kalvi": _run(report, name, quick, kalvi, {}),
            "kalvi, no drift, scale 1": _run(report, name, quick, kalvi, {"prior_scale": 1.0}),
            "bayesianbandits": _run(report, name, quick, bandits, MEMORY),
        }
        found |= _with_best(report, name, quick, "river", river, RATES)
        found |= _with_best(report, name, quick, "scikit-learn SGD", sgd, PENALTIES)
        found = {contender: outcome for contender, outcome in found.items() if outcome}
        if "kalvi" in found:
            for peer, outcome in found.items():
                if not peer.startswith("kalvi"):
                    report.closer(peer, found["kalvi"].loss, outcome.loss, name, "log loss by row")
        report.heading(name)
        report.table(
            ["", "log loss by row", "calibration error", "CPU s", "settings"],
            [
                [contender, f"{o.loss:.5f}", f"{o.calibration:.4f}", f"{o.seconds:.1f}", o.said]
                for contender, o in found.items()
            ],
        )


def one(name: str, quick: bool, contender: Callable[..., Found], setting: Any) -> Found:
    """A contender on a stream."""
    return contender(STREAMS[name](quick), setting)


def _run(report: Report, name: str, quick: bool, contender: Any, setting: Any) -> Found | None:
    try:
        return memory.apart(one, name, quick, contender, setting)
    except Exception as error:
        report.failed(f"{contender.__name__} on {name}", error)
        return None


def _with_best(
    report: Report, name: str, quick: bool, peer: str, contender: Any, settings: tuple
) -> dict[str, Found | None]:
    """A contender with its default, the first setting, and with the best in hindsight."""
    found = {setting: _run(report, name, quick, contender, setting) for setting in settings}
    best = min((s for s in settings if found[s]), key=lambda s: found[s].loss, default=None)
    return {
        f"{peer}, default": found[settings[0]],
        f"{peer}, best of {len(settings)}, {best}": found.get(best),
    }


def _scored(forecast: np.ndarray, rows: Rows, seconds: float) -> Found:
    loss = metrics.log_loss(forecast, rows.y)
    return Found(loss, metrics.calibration_error(forecast, rows.y), seconds)


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]


def _dicts(x: np.ndarray) -> Iterator[dict[int, float]]:
    """Rows as river takes them, without zeros."""
    for row in x:
        at = np.flatnonzero(row)
        yield dict(zip(at.tolist(), row[at].tolist(), strict=True))


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.hstack([x, np.ones((len(x), 1))])


def _standardised(x: np.ndarray) -> np.ndarray:
    std = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(std > 0, std, 1)
