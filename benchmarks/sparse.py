"""Sparse rows: rows a second and memory of a low-rank stream, against the same update in NumPy and SciPy.

Made-up documents of 70 hashed words with the frequencies of a language, logistic, rank 10, float32, two
cores. NumPy's update takes the best of several block sizes. Memory is the peak of the process beyond
its memory before, in units of the state.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from benchmarks import memory
from benchmarks.report import Report, number, spread
from benchmarks.sparse_numpy import State, by_block
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.numerics.precision import matching_precision
from kalvi.rules.rvga import RVGA
from kalvi.streams import Schedule, array_batches, run

RANK, WORDS, ROUNDS, ROWS = 10, 70, 5, 8192
DIMS = (2**16, 2**18, 2**20, 2**22)
PEER_BLOCKS = (128, 256, 512)


class Found(NamedTuple):
    """Rows a second in every round, and the highest memory in sizes of the state."""

    rates: np.ndarray
    memory: float


def documents(d: int, n: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows of norm 1 with words of Zipf's frequencies in hashed places, and labels."""
    rng = np.random.default_rng(seed)
    vocabulary = 1 / np.arange(1.0, 10**6) ** 0.9
    words = rng.choice(len(vocabulary), (n, WORDS), p=vocabulary / vocabulary.sum())
    places = (words * np.uint64(2654435761) % np.uint64(2**32)).astype(np.int64) % d
    starts = np.arange(0, n * WORDS + 1, WORDS)
    values = np.full(n * WORDS, WORDS**-0.5, np.float32)
    x = sp.csr_array((values, places.ravel(), starts), (n, d))
    x.sum_duplicates()
    theta = 5 * rng.normal(size=d)
    return x, (rng.random(n) < 1 / (1 + np.exp(-(x @ theta)))).astype(np.float32)


def ours(d: int, block: int | None = None) -> Found:
    """kalvi's stream, in a process of its own."""
    chosen = block or Schedule.for_low_rank(RANK, d, 1, 4, sparse=True).largest
    rule = RVGA(Bernoulli(), block_size=chosen)
    zeros = np.zeros(d, np.float32), np.zeros((d, RANK), np.float32), np.ones(d, np.float32)
    with matching_precision(np.float32):
        prior = LowRankPrecision(*(jax.numpy.asarray(a) for a in zeros))
        state = run.copied(run.begin(rule, prior))
        del prior

        def learn(x: Any, y: np.ndarray) -> None:
            nonlocal state
            batches = array_batches(x, y, block_size=chosen, stacked=True, dtype=np.float32)
            for batch in batches:
                state = run.advance(rule, state, batch)
            jax.block_until_ready(state)

        return _timed(learn, d)


def theirs(d: int, block: int) -> Found:
    """NumPy's update, in a process of its own."""
    state = State.begin(d, RANK)

    def learn(x: Any, y: np.ndarray) -> None:
        nonlocal state
        for start in range(0, x.shape[0], block):
            state = by_block(state, x[start : start + block], y[start : start + block])

    return _timed(learn, d)


def _timed(learn: Callable, d: int) -> Found:
    rounds = [documents(d, ROWS, seed) for seed in range(ROUNDS + 1)]
    learn(*rounds[0])
    memory.forget_peak()
    before, rates = memory.resident(), []
    for x, y in rounds[1:]:
        began = time.perf_counter()
        learn(x, y)
        rates.append(ROWS / (time.perf_counter() - began))
    size = 4e-6 * d * (RANK + 2)
    return Found(np.array(rates), (memory.peak() - before) / size)


def sparse(report: Report, quick: bool) -> None:
    """A line for each number of columns."""
    lines = []
    for d in DIMS[:1] if quick else DIMS:
        mine = memory.apart(ours, d)
        blocks = PEER_BLOCKS[1:2] if quick else PEER_BLOCKS
        others = [memory.apart(theirs, d, block) for block in blocks]
        best = max(others, key=lambda found: np.median(found.rates))
        ratio = np.median(mine.rates) / np.median(best.rates)
        rates = (f"{spread(found.rates)} rows/s" for found in (mine, best))
        lines.append([f"2^{d.bit_length() - 1}", *rates, number(ratio), number(mine.memory)])
    report.table(["columns", "kalvi", "NumPy", "times", "memory beyond the state"], lines)
