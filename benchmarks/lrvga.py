"""L-RVGA with a million parameters: seconds an observation against Algorithm 1, and memory."""

import gc
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import CORES, memory, peers
from benchmarks.timing import CLOCK, cpu_seconds, gemm_peak
from kalvi.algorithms.base import Batch
from kalvi.algorithms.rvga import RVGA, Streaming
from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.precision import matching
from kalvi.projections import EM, Eigen

DIM, QUICK_DIM = 10**6, 50_000
BLOCKS, QUICK_BLOCKS = (1, 64, 128, 256), (1, 64)
ROUNDS = 3
SMALL_START = 1e-3
"""The share of the prior precision, 1, that the first factor takes."""
LIKELIHOODS = {"linear": Normal, "logistic": Bernoulli}
GOALS = {  # rank: (with the same algorithm row by row, in blocks of 64 rows or more)
    100: (5, 50),
    10: (None, 20),
}
GOAL_MEMORY = 1.5


class Case(NamedTuple):
    dim: int
    rank: int
    dtype: str
    model: str  # a key of LIKELIHOODS


def rows(case: Case, n: int):
    """n rows of norm one and their labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, case.dim), case.dtype)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.standard_normal(n, case.dtype)
    return x, y if case.model == "linear" else (y > 0).astype(case.dtype)


def start(case: Case):
    """Mean, factor and diag with W Wᵀ + Ψ near I: EM needs a factor to begin with."""
    factor = np.random.default_rng(1).standard_normal((case.dim, case.rank), case.dtype)
    factor *= np.sqrt(SMALL_START * case.dim / case.rank) / np.linalg.norm(factor, axis=0)
    diag = np.full(case.dim, 1 - SMALL_START, case.dtype)
    return np.zeros(case.dim, case.dtype), factor.astype(case.dtype), diag


def begin(case: Case, projection) -> Streaming:
    """The state of the rule, in memory of its own."""
    prior = LowRankPrecision(*start(case), projection)
    state = RVGA(LIKELIHOODS[case.model]()).init(prior)
    return jax.block_until_ready(jax.tree.map(jnp.array, state))


def compiled(case: Case, block: int, state: Streaming):
    """The update of a state by a block of rows, which it overwrites, as the library compiles it."""
    rule = RVGA(LIKELIHOODS[case.model](), block_size=block)
    shapes = ((block, case.dim), (block,), (block,))
    batch = Batch(*(jax.ShapeDtypeStruct(shape, np.dtype(case.dtype)) for shape in shapes))
    update = jax.jit(lambda state, batch: rule.update(state, batch), donate_argnums=0)
    return update.lower(state, batch).compile()


def time_ours(case: Case, block: int, projection, x, y) -> float:
    """Median seconds an observation, after one block to warm up."""
    with matching(case.dtype):
        state = begin(case, projection)
        update, taken = compiled(case, block, state), []
        data = (x[:block], y[:block], np.ones(block, case.dtype))
        batch = jax.block_until_ready(Batch(*map(jnp.asarray, data)))
        for _ in range(1 + ROUNDS):
            began = CLOCK()
            state = jax.block_until_ready(update(state, batch))
            taken.append(CLOCK() - began)
    return float(np.median(taken[1:])) / block


def time_paper(case: Case, x, y) -> float:
    """Median seconds an observation of Algorithm 1 in NumPy, after one to warm up."""
    state, taken = start(case), []
    for t in range(1 + ROUNDS):
        began = CLOCK()
        state = peers.numpy_lrvga(state, x[t : t + 1], y[t : t + 1], case.model == "logistic")
        taken.append(CLOCK() - began)
    return float(np.median(taken[1:]))


def flops(case: Case, block: int) -> float:
    """Of a block: the Gram matrix of [W, Xᵀ], that of the residuals, and the projection."""
    p, b, q = case.rank, block, case.rank + block
    return 2.0 * case.dim * (p * p + p * b + b * b + p * b + b * b + q * p + q * b)


def bandwidth(n: int = 2**25) -> float:
    """GB/s, read and written, of scaling a long vector."""
    a, b = np.ones(n), np.ones(n)
    return 16e-9 * n / min(cpu_seconds(np.multiply, a, 3.0, b) for _ in range(5))


def numpy_gemm_peak(dtype, n: int = 2048) -> float:
    """GFLOP/s of NumPy's matrix products of size n."""
    a = np.random.default_rng(0).standard_normal((n, n), dtype)
    return 2e-9 * n**3 / min(cpu_seconds(np.matmul, a, a) for _ in range(3))


class Room(NamedTuple):
    """MB: what an update was given, what it needed beyond that, and what the compiler says of it."""

    factor: float
    state: float
    block: float
    beyond: float
    compiler: float
    numbers: int


def measure_memory(case: Case, block: int) -> Room:
    """Run in a process of its own: one update of a state that it may overwrite."""
    with matching(case.dtype):
        state = begin(case, Eigen())
        x, y = rows(case, block)
        batch = Batch(*map(jnp.array, (x, y, np.ones(block, case.dtype))))
        del x, y
        update = compiled(case, block, state)
        posterior = state.posterior
        numbers = sum(leaf.size for leaf in jax.tree.leaves(posterior))
        sizes = [posterior.precision.factor.nbytes, numbers * posterior.mean.itemsize]
        del posterior
        gc.collect()
        memory.forget_peak()
        before = memory.resident()
        jax.block_until_ready(update(state, batch))
        beyond = memory.peak() - before
    factor, whole = (1e-6 * size for size in sizes)
    temporary = 1e-6 * update.memory_analysis().temp_size_in_bytes
    return Room(factor, whole, 1e-6 * batch.x.nbytes, beyond, temporary, numbers)


def lrvga(report, quick):
    """Speed and memory at d = 10⁶."""
    dim, blocks = (QUICK_DIM, QUICK_BLOCKS) if quick else (DIM, BLOCKS)
    report.heading(f"L-RVGA with d = {dim:,} parameters, {CORES} core(s): seconds an observation")
    peaks = {dtype: gemm_peak(dtype) for dtype in ("float64", "float32")}
    speed = bandwidth()
    for dtype, peak in peaks.items():
        report.line(
            f"Matrix products in {dtype}: {peak:.0f} GFLOP/s in JAX, {numpy_gemm_peak(dtype):.0f} in NumPy."
        )
    report.line(f"Memory: {speed:.1f} GB/s.")
    verdicts = []
    for rank in GOALS:
        for dtype, peak in peaks.items():
            for model in LIKELIHOODS:
                case = Case(dim, rank, dtype, model)
                verdicts += _race(report, case, blocks, peak, speed)
    for verdict in verdicts:
        report.line(verdict)
    _memory_table(report, dim, blocks)


def _race(report, case: Case, blocks: tuple[int, ...], peak: float, speed: float) -> list[str]:
    x, y = rows(case, max(blocks))
    paper = time_paper(case, x, y)
    lines = [["NumPy, Algorithm 1, one loop", 1, f"{paper:.4g}", "1", "", ""]]
    contenders = [("kalvi, EM(1)", EM(1), 1), *(("kalvi, default", Eigen(), b) for b in blocks)]
    ratios = {}
    for name, projection, block in contenders:
        gc.collect()
        ours = time_ours(case, block, projection, x, y)
        ratios[name, block] = paper / ours
        rate = 1e-9 * flops(case, block) / (block * ours)
        moved = 1e-9 * (4 * case.rank + 3 * block) * case.dim * x.itemsize / (block * ours)
        lines.append(
            [
                name,
                block,
                f"{ours:.4g}",
                f"{paper / ours:.1f}",
                f"{rate:.0f} ({rate / peak:.0%})",
                f"{moved:.1f} ({moved / speed:.0%})",
            ]
        )
    report.table(
        [
            f"rank {case.rank}, {case.dtype}, {case.model}",
            "block",
            "s/observation",
            "times NumPy",
            "GFLOP/s (of peak)",
            "GB/s (of peak)",
        ],
        lines,
    )
    same, blocked = GOALS[case.rank]
    best = max(blocks[1:], key=lambda b: ratios["kalvi, default", b])
    found = [("in blocks", ratios["kalvi, default", best], blocked, f"blocks of {best}")]
    if same:
        found.insert(0, ("same algorithm", ratios["kalvi, EM(1)", 1], same, "row by row"))
    return [
        f"**{'pass' if ratio >= goal else 'FAIL'}**: rank {case.rank}, {case.dtype}, {case.model},"
        f" {what} ({how}): {ratio:.1f} times NumPy; the goal is {goal}."
        for what, ratio, goal, how in found
    ]


def _memory_table(report, dim: int, blocks: tuple[int, ...]):
    report.line(
        "Memory of one block's update (MB), each in a process of its own: beyond the block of rows, the"
        " state and what the update needed more at its highest; and what the compiler sets aside."
    )
    lines, verdicts = [], []
    for rank in GOALS:
        for dtype in ("float64", "float32"):
            for block in (64, 256)[: len(blocks) - 1]:
                case = Case(dim, rank, dtype, "logistic")
                room = memory.apart(measure_memory, case, block)
                total = (room.state + room.beyond) / room.factor
                lines.append(
                    [
                        f"rank {rank}, {dtype}",
                        block,
                        f"{room.factor:,.0f}",
                        f"{room.state:,.0f}",
                        f"{room.block:,.0f}",
                        f"{room.beyond:,.0f}",
                        f"{total:.2f}",
                        f"{room.compiler:,.0f} ({room.compiler / room.factor:.2f})",
                    ]
                )
                good = total <= GOAL_MEMORY and room.numbers == dim * (rank + 2)
                verdicts.append(
                    f"**{'pass' if good else 'FAIL'}**: rank {rank}, {dtype}, blocks of {block}:"
                    f" {total:.2f} times W beyond the rows (the goal is {GOAL_MEMORY}),"
                    f" {room.numbers:,} numbers in the state, d (p + 2) = {dim * (rank + 2):,}."
                )
    header = ["W", "state", "block of rows", "more at its highest", "state + more, of W"]
    report.table(["", "block", *header, "compiler (of W)"], lines)
    for verdict in verdicts:
        report.line(verdict)
