"""Rows of d features, with labels from true coefficients; every Bayesian method has the prior N(0, 4 I).

`kalvi.LogisticRegression` and scikit-learn's SGD take chunks of 8192 rows through `partial_fit` (kalvi
also chunks of 1024, where calls take a larger share of its time), and river takes single rows.
bayesianbandits' R-VGA (`BayesianGLM`) gets rows one by one, as in its documentation, and by 32. NumPyro
runs `AutoLowRankMultivariateNormal` with its default rank, √d, for 2000 steps of Adam(0.01) on
subsamples of 256 rows; its loop is compiled once, outside the clock. The paper's own algorithm in NumPy
with SciPy's root finder, and the extended Kalman filter as a jitted scan, are what one would write
oneself. Rows a second are measured over as many rows as fit into a round. Log loss and calibration
error are those of new rows, after one pass over the same rows for all (NumPyro: 2000 steps). SGD and
river have no posterior.

The rates are those of a running stream: kalvi's programs are compiled, like the filter's, and learn
from the first row on. `latency` has the waiting time of a new process, which begins with NumPy.
"""

import jax
import numpy as np

from benchmarks import memory, peers
from benchmarks.report import Report, spread
from benchmarks.timing import Contender, cpu_seconds, race
from kalvi import LogisticRegression
from kalvi.evaluation import metrics
from kalvi.streams import engines

DIMS, QUICK_DIMS = (10, 100, 500), (100,)
ROWS, QUICK_ROWS, NEW = 16_384, 2048, 8192
ROUNDS, QUICK_ROUNDS, SECONDS, QUICK_SECONDS = 5, 3, 0.3, 0.05
CHUNK, QUICK_CHUNK = 8192, 2048
SLOW = ("paper, NumPy + SciPy", "bayesianbandits, by row")
"""Beyond this many features not judged on all rows: minutes of the same posterior as ours."""
SLOW_DIM = 100
OURS = "kalvi"


def problem(d, n, seed=0):
    """Rows whose true log-odds have a standard deviation of about 2."""
    rng = np.random.default_rng(seed)
    theta = np.random.default_rng(1).normal(size=d)
    x = rng.normal(size=(n, d)) * (2 / np.sqrt(d))
    y = rng.random(n) < 1 / (1 + np.exp(-x @ theta))
    return x, y.astype(float)


def kalvi(dtype, size=CHUNK):
    """The estimator, fed chunks of `size` rows."""

    def run(x, y):
        scale = peers.VARIANCE**0.5
        model = LogisticRegression(prior_scale=scale, fit_intercept=False, dtype=dtype)
        for start in range(0, len(y), size):
            part = slice(start, start + size)
            model.partial_fit(x[part], y[part], classes=[0.0, 1.0])
        jax.block_until_ready(model.posterior_)
        return lambda new: model.predict_proba(new)[:, 1]

    return run


def contenders(quick: bool) -> list[Contender]:
    """All, ours first."""
    size = QUICK_CHUNK if quick else CHUNK
    return [
        Contender(OURS, kalvi("float64", size), size),
        Contender("kalvi, float32", kalvi("float32", size), size),
        Contender("kalvi, chunks of 1024", kalvi("float64", 1024), 1024),
        Contender("paper, NumPy + SciPy", peers.numpy_rvga),
        Contender("EKF, jitted scan", peers.jax_ekf, 1024),
        Contender("bayesianbandits, by row", peers.bandits(1)),
        Contender("bayesianbandits, by 32", peers.bandits(32), 32),
        Contender("NumPyro, AutoLowRank", peers.numpyro_low_rank, QUICK_ROWS if quick else ROWS),
        Contender("river", peers.river),
        Contender("scikit-learn SGD", peers.sgd, size),
    ]


def logistic(report: Report, quick: bool) -> None:
    """A table for each number of features."""
    n = QUICK_ROWS if quick else ROWS
    engines.FIRST_ROWS = 0
    for d in QUICK_DIMS if quick else DIMS:
        (x, y), (new_x, new_y) = problem(d, n), problem(d, NEW, seed=2)
        with jax.enable_x64(True):
            running, quality = [], {}
            for contender in contenders(quick):
                try:
                    quality[contender.name] = _judged(contender, x, y, new_x, new_y, d)
                    running.append(contender)
                except Exception as error:
                    report.failed(contender.name, error)
            lengths = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
            rates = race(running, x, y, *lengths)
        _table(report, d, n, rates, quality)
    _cold(report)


def _judged(contender, x, y, new_x, new_y, d) -> tuple[float, float]:
    if contender.name in SLOW and d > SLOW_DIM:
        contender.run(x[:32], y[:32])
        return np.nan, np.nan
    p = contender.run(x, y)(new_x)
    return metrics.log_loss(p, new_y), metrics.calibration_error(p, new_y)


def _table(report: Report, d: int, n: int, rates, quality) -> None:
    where = f"d = {d}"
    report.heading(f"{where}, {n:,} rows")
    rows = []
    for name, rate in rates.items():
        loss, calibration = quality[name]
        ratio = ""
        if not name.startswith(OURS):
            ratio = report.faster(name, rates[OURS].per_second / rate.per_second, where)
            report.closer(name, quality[OURS][0], loss, where)
        cells = ("" if np.isnan(v) else f"{v:.4f}" for v in (loss, calibration))
        rows.append([name, spread(rate.per_second), ratio, *cells])
    header = ["rows/s", "kalvi is faster by", "log loss", "calibration error"]
    report.table([where, *header], rows)


def _cold(report: Report) -> None:
    """What a user waits for before anything is compiled."""
    report.heading("The first 1024 rows of 10 features in a fresh process, nothing compiled before")
    seconds = {}
    for name in (OURS, "NumPyro, AutoLowRank", "bayesianbandits, by 32", "scikit-learn SGD"):
        try:
            seconds[name] = memory.apart(first, name)
        except Exception as error:
            report.failed(name, error)
    report.table(["", "CPU seconds"], [[name, f"{s:.2f}"] for name, s in seconds.items()])
    for name, theirs in seconds.items():
        if theirs < seconds[OURS]:
            report.losses.append(
                f"First fit: {name} takes {theirs:.2g} s, kalvi {seconds[OURS]:.2g} s."
            )


def first(name: str) -> float:
    """CPU seconds of a contender's first fit in this process."""
    jax.config.update("jax_enable_compilation_cache", False)
    run = next(c.run for c in contenders(True) if c.name == name)
    x, y = problem(10, 1024)
    with jax.enable_x64(True):
        return cpu_seconds(run, x, y)
