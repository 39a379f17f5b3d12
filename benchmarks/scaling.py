"""How time and memory grow with parameters d, rows N, rank p and block size b; each point in a fresh
process.

Low rank: logistic regression with kalvi's default projection in float32; one of d = 100,000, p = 10 and
b = 64 varies. Full covariance: float64, with the library's default blocks. Seconds are CPU seconds of
one core after compilation, the median of the rounds. Memory is that of the state and of a block of
rows, and the peak of the process beyond its memory before, during the updates. Exponents are slopes of
straight lines in logarithms.
"""

import gc
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import kalvi
from benchmarks import memory
from benchmarks.lowrank import DTYPE, OURS, advancing, rows, updater
from benchmarks.lowrank import METHODS as LOW_RANK
from benchmarks.report import Report, number, spread
from benchmarks.timing import CLOCK
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.numerics.precision import matching_precision
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA

FIGURE = "results/bench/scaling.svg"
ROUNDS, SECONDS = 5, 0.1


class Setting(NamedTuple):
    """Of a low-rank stream; no rows is as many as a round takes."""

    dim: int = 10**5
    rank: int = 10
    block: int = 64
    rows: int = 0


class Point(NamedTuple):
    """Seconds in every round, and MB at most."""

    seconds: np.ndarray
    megabytes: float


CURVES: dict[str, tuple[str, tuple[int, ...]]] = {
    "d, low rank": ("dim", (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)),
    "N, low rank": ("rows", (1024, 4096, 16_384)),
    "p": ("rank", (5, 10, 20, 40, 80)),
    "b": ("block", (1, 4, 16, 64, 256)),
}
FULL = "d, full covariance"
FULL_DIMS = (64, 128, 256, 512, 1024)


def scaling(report: Report, quick: bool) -> None:
    """Tables, exponents, the figure and the constants."""
    found, table = {}, []
    for name, (axis, values) in CURVES.items():
        values = values[:: (len(values) - 1) // 2][:2] if quick else values
        base = Setting(dim=10**4) if axis == "rows" else Setting()
        settings = [base._replace(**{axis: v}) for v in values]
        found[name] = values, [memory.apart(low_rank, setting) for setting in settings]
    dims = FULL_DIMS[:3:2] if quick else FULL_DIMS
    found[FULL] = dims, [memory.apart(full, d) for d in dims]
    for name, (values, points) in found.items():
        table += _lines(name, values, points)
    report.heading("Curves")
    report.table(["varies", "", "time", "memory, MB"], table)
    _draw(found)
    report.line("![Time and memory against d, N, p and the block size](images/scaling.svg)")
    _constants(report, quick)


def low_rank(setting: Setting) -> Point:
    """Seconds a row or, where it is said how many, of all rows; in a process of its own."""
    d, p, b, n = setting
    x, y = rows(d, b)
    batch = Batch(*map(jnp.asarray, (x, y, np.ones(b, DTYPE))))
    point = _timed(updater(LOW_RANK[OURS]._replace(block=b), d, p), batch, n // b)
    return point._replace(seconds=point.seconds * (n // b if n else 1 / b))


def full(d: int) -> Point:
    """Seconds a row with a full covariance."""
    with matching_precision(np.float64):
        rule = RVGA(Bernoulli())
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(rule.block_size, d)) / np.sqrt(d), rng.random(rule.block_size) < 0.5
        batch = Batch(*(jnp.asarray(a, float) for a in (x, y, np.ones(len(y)))))
        point = _timed(advancing(rule, Dense(np.zeros(d), np.eye(d))), batch, 0)
    return point._replace(seconds=point.seconds / rule.block_size)


def _timed(advance, batch: Batch, blocks: int) -> Point:
    """Seconds a block in every round: of so many blocks, or of as many as a round takes."""
    given = jax.tree.leaves((advance(batch), batch))
    size = 1e-6 * sum(leaf.nbytes for leaf in given)
    del given
    gc.collect()
    memory.forget_peak()
    before, seconds = memory.resident(), []
    for _ in range(ROUNDS):
        began, count = CLOCK(), 0
        while count < blocks or (not blocks and CLOCK() - began < SECONDS):
            advance(batch)
            count += 1
        seconds.append((CLOCK() - began) / count)
    return Point(np.array(seconds), size + memory.peak() - before)


def _lines(name: str, values, points: list[Point]) -> list[list[str]]:
    """A line for each point and one with the slopes."""
    unit, factor = ("s in all", 1) if name.startswith("N") else ("µs a row", 1e6)
    lines = [
        [name, f"{v:,}", f"{spread(factor * q.seconds)} {unit}", number(q.megabytes)]
        for v, q in zip(values, points, strict=True)
    ]
    slopes = (f"{s:.2f}" for s in exponents(values, points))
    return [*lines, [name, "**exponent**", *slopes]]


def exponents(values, points: list[Point]) -> tuple[float, float]:
    """Slopes of time and of memory in logarithms."""
    curves = [np.median(q.seconds) for q in points], [max(q.megabytes, 1e-3) for q in points]
    time, room = (np.polyfit(np.log(values), np.log(curve), 1)[0] for curve in curves)
    return float(time), float(room)


def _draw(found) -> None:
    from kalvi import plots
    from kalvi.plots.appearance import FAINT, INK, panel

    @panel
    def curve(axes, x, y, title, ylabel):
        axes.loglog(x, y, "o-", color=INK)
        axes.set(title=title, ylabel=ylabel, xticks=x, xticklabels=[f"{v:,.0f}" for v in x])
        axes.xaxis.set_minor_formatter("")  # labels of a short axis would overlap
        axes.tick_params(axis="x", labelrotation=30)
        axes.grid(color=FAINT, lw=0.6)

    times, rooms = [], []
    for name, (values, points) in found.items():
        slopes = exponents(values, points)
        seconds = [float(np.median(q.seconds)) for q in points]
        label = "seconds" if name.startswith("N") else "seconds a row"
        times.append(partial(curve, values, seconds, f"{name}: {slopes[0]:.2f}", label))
        room = [q.megabytes for q in points]
        rooms.append(partial(curve, values, room, f"{name}: {slopes[1]:.2f}", "MB"))
    title = "Time and memory, and their exponents"
    plots.save(plots.compose([times, rooms], title=title, size=(17, 6.5)), FIGURE)


def _constants(report: Report, quick: bool) -> None:
    """What one would estimate other sizes with, measured at one."""
    d, updates = 10**5 if quick else 10**6, []
    for rank, block in ((10, 64), (10, 256)) if quick else ((10, 64), (10, 256), (100, 256)):
        point = memory.apart(low_rank, Setting(d, rank, block))
        seconds = float(np.median(point.seconds))
        updates.append(
            {
                "dim": d,
                "rank": rank,
                "block_size": block,
                "seconds_per_row": seconds,
                "seconds_per_row_parameter_rank": seconds / (d * rank),
                "bytes_per_parameter": 4 * (rank + 2),
                "peak_bytes_per_parameter": 1e6 * point.megabytes / d,
            }
        )
    pair = memory.apart(merging, d, 10)
    dim = (FULL_DIMS[:3] if quick else FULL_DIMS)[-1]
    each = float(np.median(memory.apart(full, dim).seconds))
    square = {
        "dim": dim,
        "seconds_per_row": each,
        "seconds_per_row_parameter_squared": each / dim**2,
    }
    report.heading("Constants")
    report.line(
        "Of one core, low rank in float32, rows given in memory. Peak bytes include the block of rows."
    )
    header = list(updates[0])
    report.table(
        [_words(name) for name in header], [[_cell(u[h]) for h in header] for u in updates]
    )
    report.table([_words(name) for name in pair], [[_cell(v) for v in pair.values()]])
    report.table([_words(name) for name in square], [[_cell(v) for v in square.values()]])


def merging(d: int, rank: int) -> dict[str, Any]:
    """Two posteriors merged: seconds, and bytes that one of them is when it is sent."""
    rng = np.random.default_rng(0)
    pair = [
        LowRankPrecision(
            rng.normal(size=d).astype(DTYPE),
            rng.normal(size=(d, rank)).astype(DTYPE),
            np.ones(d, DTYPE),
        )
        for _ in range(2)
    ]
    prior = Diagonal(np.zeros(d, DTYPE), np.ones(d, DTYPE))
    jax.block_until_ready(kalvi.merge(pair, prior))
    memory.forget_peak()
    before, seconds = memory.resident(), []
    for _ in range(ROUNDS):
        began = CLOCK()
        jax.block_until_ready(kalvi.merge(pair, prior))
        seconds.append(CLOCK() - began)
    middle = float(np.median(seconds))
    return {
        "dim": d,
        "rank": rank,
        "seconds_per_merge": middle,
        "seconds_per_parameter_rank": middle / (d * rank),
        "bytes_per_parameter": 4 * (rank + 2),
        "peak_bytes_per_parameter": 1e6 * (memory.peak() - before) / d,
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
