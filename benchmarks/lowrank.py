"""L-RVGA for logistic regression with d parameters, float32: CPU seconds an observation on one core.

Contenders: the paper's Algorithm 1 in NumPy, row by row; the algorithm of kalvi's default in NumPy, in
blocks, with matrix products where possible; LO-FI (its truncation and the extended Kalman filter on
kalvi's core, row by row as published and in the same blocks; `benchmarks/lofi.py`); kalvi row by row
with one EM loop, as in Algorithm 1; and kalvi's default. Memory is the peak of a fresh process during
an update, beyond its memory before, in units of W (d × p numbers). Real rows: dorothea, 88,119 binary
features of 800 molecules, one pass over three quarters of them, evaluated on the others.
"""

import gc
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import lowrank_numpy, memory
from benchmarks.lofi import LoFi
from benchmarks.report import Report, spread
from benchmarks.timing import CLOCK
from kalvi.evaluation import metrics
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.likelihoods.logistic import InverseProbit
from kalvi.numerics.projections import EM, Eigen
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Implicit
from kalvi.streams import array_batches, run
from papers import datasets

DIMS, QUICK_DIMS = (10**3, 10**4, 10**5, 10**6), (10**3, 10**4)
RANK, BLOCK, ROUNDS, QUICK_ROUNDS = 10, 64, 5, 3
DTYPE = np.float32
SMALL_START = 1e-3
"""The share of the prior precision, 1, that the first factor takes."""
PATIENCE = 0.05
"""Seconds: a round repeats an update until it took so long."""


class Method(NamedTuple):
    """Of the library: a projection, a scheme and how many rows at once."""

    projection: object
    scheme: object
    block: int


OURS, BLOCKED, PAPER = "kalvi, default, blocks of 64", "NumPy, blocks of 64", "NumPy, Algorithm 1"
METHODS = {
    OURS: Method(Eigen(), Implicit(), BLOCK),
    "kalvi, EM(1), by row": Method(EM(1), Implicit(), 1),
    "LO-FI on our core, blocks of 64": Method(LoFi(), EKF(), BLOCK),
    "LO-FI on our core, by row": Method(LoFi(), EKF(), 1),
}
NUMPY = {BLOCKED: (lowrank_numpy.by_block, BLOCK), PAPER: (lowrank_numpy.by_row, 1)}


def rows(d: int, n: int):
    """n rows of norm one and their labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d), DTYPE)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, (rng.random(n) < 0.5).astype(DTYPE)


def start(d: int, rank: int = RANK, share: float = SMALL_START):
    """Mean, factor and diag with W Wᵀ + Ψ near I: EM needs a factor to begin with."""
    factor = np.random.default_rng(1).standard_normal((d, rank), DTYPE)
    factor *= np.sqrt(share * d / rank) / np.linalg.norm(factor, axis=0)
    return np.zeros(d, DTYPE), factor.astype(DTYPE), np.full(d, 1 - share, DTYPE)


def updater(method: Method, d: int, rank: int = RANK):
    """The low-rank stream of a method."""
    rule = RVGA(Bernoulli(InverseProbit()), method.scheme, block_size=method.block)
    return advancing(rule, LowRankPrecision(*start(d, rank), method.projection))


def advancing(rule: RVGA, prior):
    """A function that absorbs a block of rows into a state it keeps, as the library compiles it."""
    held = [jax.block_until_ready(jax.tree.map(jnp.array, rule.init(prior)))]
    update = jax.jit(lambda state, batch: rule.update(state, batch), donate_argnums=0)

    def advance(batch: Batch):
        held[0] = jax.block_until_ready(update(held[0], batch))
        return held[0]

    return advance


def lowrank(report: Report, quick: bool) -> None:
    """Speed at every size, then memory, then real rows."""
    for d in QUICK_DIMS if quick else DIMS:
        _race(report, d, QUICK_ROUNDS if quick else ROUNDS)
    _memory(report, 10**5 if quick else 10**6)
    _real(report, 200 if quick else None)


def _race(report: Report, d: int, rounds: int) -> None:
    x, y = rows(d, BLOCK)
    works = {name: (_ours(method, d, x, y), method.block) for name, method in METHODS.items()}
    works |= {name: (_theirs(f, d, x[:b], y[:b]), b) for name, (f, b) in NUMPY.items()}
    seconds = {name: [] for name in works}
    for number in range(1 + rounds):  # the first compiles, and finds a place in memory
        for name, (work, size) in works.items():
            taken = _timed(work) / size
            if number:
                seconds[name].append(taken)
    where, ours = f"d = {d:,}, rank {RANK}", np.array(seconds[OURS])
    table = []
    for name, taken in seconds.items():
        ratios = np.array(taken) / ours
        foreign = name not in METHODS
        ratio = report.faster(name, ratios, where) if foreign else spread(ratios)
        table.append([name, spread(1e6 * np.array(taken)), "" if name == OURS else ratio])
    report.table([where, "µs/observation", "default is faster by"], table)
    if d == DIMS[0]:
        report.line(
            f"kalvi's default and NumPy's blocks after one block: {_apart(d, x, y):.0e} apart."
        )
    del works
    gc.collect()


def _ours(method: Method, d: int, x, y):
    data = (x[: method.block], y[: method.block], np.ones(method.block, DTYPE))
    batch, advance = Batch(*map(jnp.asarray, data)), updater(method, d)
    return lambda: advance(batch)


def _theirs(function, d: int, x, y):
    held = [start(d)]

    def advance():
        held[0] = function(held[0], x, y)

    return advance


def _timed(work) -> float:
    """Seconds of one call, repeated where it is short."""
    began, calls = CLOCK(), 0
    while CLOCK() - began < PATIENCE:
        work()
        calls += 1
    return (CLOCK() - began) / calls


def _apart(d: int, x, y) -> float:
    """The largest difference of means, in units of the largest mean."""
    batch = Batch(*map(jnp.asarray, (x, y, np.ones(len(y), DTYPE))))
    ours = np.asarray(updater(METHODS[OURS], d)(batch).posterior.mean)
    theirs = lowrank_numpy.by_block(start(d), x, y)[0]
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))


def _memory(report: Report, d: int) -> None:
    table = [[name, f"{memory.apart(most, name, d):.2f}"] for name in (OURS, BLOCKED, PAPER)]
    report.table([f"d = {d:,}, rank {RANK}", "most memory beyond state and rows, of W"], table)


def most(name: str, d: int) -> float:
    """Run in a process of its own: one update."""
    x, y = rows(d, BLOCK)
    if name in METHODS:
        work = _ours(METHODS[name], d, x, y)
    else:
        function, size = NUMPY[name]
        work = _theirs(function, d, x[:size], y[:size])
    work()
    gc.collect()
    memory.forget_peak()
    before = memory.resident()
    work()
    return (memory.peak() - before) / (1e-6 * d * RANK * np.dtype(DTYPE).itemsize)


def _real(report: Report, most_rows: int | None) -> None:
    stored = datasets.load("dorothea")
    x, y = stored["X"], np.asarray(stored["y"])
    order = np.random.default_rng(0).permutation(len(y))
    old, new = np.split(order, [3 * len(y) // 4])
    old = old[:most_rows]
    dense, judged = (_with_constant(x[part].todense()) for part in (old, new))
    label = (y[new] > 0).astype(float)
    table, losses = [], {}
    for name, method in METHODS.items():
        began = CLOCK()
        q = _passed(method, dense, (y[old] > 0).astype(DTYPE))
        seconds = CLOCK() - began
        p = run.call(_probabilities, q, jnp.asarray(judged))
        losses[name] = metrics.log_loss(np.asarray(p, float), label)
        table.append([name, f"{losses[name]:.4f}", f"{seconds:.1f}"])
    base = metrics.log_loss(np.full(len(label), np.mean(y[old] > 0)), label)
    report.heading(f"dorothea, {len(old)} rows of {x.shape[1]:,} features, rank {RANK}")
    report.table(["", "log loss", "CPU seconds, compilation included"], table)
    report.line(f"The frequency of the label alone has a log loss of {base:.4f}.")
    for name in METHODS:
        report.closer(name, losses[OURS], losses[name], "dorothea")


def _with_constant(x) -> np.ndarray:
    """Rows of about 900 ones scaled to norm one, and a column whose coefficient is the usual log-odds."""
    return np.append(np.asarray(x, DTYPE) / 30, np.full((len(x), 1), 3, DTYPE), axis=1)


def _passed(method: Method, x, y):
    share = SMALL_START if isinstance(method.projection, EM) else 0.0
    prior = LowRankPrecision(*start(x.shape[1], share=share), method.projection)
    rule = RVGA(Bernoulli(), method.scheme, block_size=method.block)
    batches = array_batches(x, y, block_size=method.block, dtype=DTYPE)
    return jax.block_until_ready(run.fit(rule, prior, batches)).posterior


def _probabilities(q: LowRankPrecision, x):
    mean, var = x @ q.mean, q.marginal_variance(x)
    return jax.vmap(lambda m, v: Bernoulli().predict(m, v)[0])(mean, var)
