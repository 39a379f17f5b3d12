"""Tables 1 and 2 of the L-RVGA paper: memory and time of a step in a million dimensions.

Memory is that of the state, counted in the arrays themselves: as in the paper (W, ψ, a posterior's mean
and online EM's statistics), and of everything that our state holds between two rows (for online EM 3p + 4
numbers a dimension: W and ψ averaged and not, and a mean). Times are measured here,
so they say how the algorithms compare and not how fast the authors' computer was; each is the mean over a
few rows after one that compiles. `a block` is the library's default: as many rows as a projection
takes at once, and the time is that of one row. Seconds are of processor time. XLA's compiler for CPUs ends
the process on the step of one row with p = 1 in a million dimensions (jaxlib 0.10): it has no time.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from kalvi import plots
from kalvi.gaussians import LowRankCovariance, LowRankPrecision
from kalvi.likelihoods import Normal
from kalvi.numerics import precision
from kalvi.numerics.projections import EM, Eigen, Projection
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch, Rule
from kalvi.rules.rvga import RVGA
from kalvi.streams import Schedule, run
from papers import pictures
from papers.lrvga_algorithm1 import Algorithm1
from papers.lrvga_data import SEED
from papers.results import Claim, Result, Table

ROWS = 3
"""Rows that are timed one by one."""
ITEM = 8
"""Bytes of a number."""
MEGABYTE = 1e6
EPSILON = 1e-3


def table_1(quick: bool) -> Result:
    """Factor analysis of a covariance: online and recursive EM, p = 100."""
    d, p = (20_000, 20) if quick else (10**6, 100)
    with precision.matching_precision("float64"):
        rows = _rows(d, ROWS)
        prior = partial(_random_start, d, p)
        table = [
            _line("batch EM", d, p, ITEM * d**2, None),
            _measured("online EM", d, p, fa.OnlineEM(centred=False), prior, rows, _online_bytes),
            _measured("recursive EM, Algorithm 1", d, p, Algorithm1(1), prior, rows, _em_bytes),
            _measured("recursive EM, fused", d, p, _recursive(EM(1), 1), prior, rows, _em_bytes),
            _measured("recursive, eigen, a block", d, p, *_eigen_blocks(d, p), _em_bytes),
        ]
    claims = [
        _memory(table, {"online EM": 2 * p + 2, "recursive EM, fused": p + 1}, slack=ITEM * p**2),
        _slower(table),
    ]
    return _result("table1", f"A covariance in {d:,} dimensions, p = {p}", table, claims)


def table_2(quick: bool) -> Result:
    """Linear regression: L-RVGA with three inner loops and with the default blocks."""
    d, ranks = (20_000, (20, 2)) if quick else (10**6, (100, 10, 2))
    table: Table = [_line("full Kalman", d, d, ITEM * d**2, None)]
    with precision.matching_precision("float64"):
        size = Schedule.for_low_rank(ranks[0], d, 1, ITEM).largest
        rows, block = _rows(d, ROWS), _rows(d, size)
        for p in ranks:
            name = f"L-RVGA, p = {p}"
            one, many = RVGA(Normal(1.0), block_size=1), RVGA(Normal(1.0), block_size=size)
            start = partial(_posterior, d, p)
            table += [
                _measured(name, d, p, one, partial(start, EM(3)), rows, _rvga_bytes),
                _measured(
                    f"{name}, a block", d, p, many, partial(start, Eigen()), block, _rvga_bytes
                ),
            ]
    if not quick:
        table.append(_line("L-RVGA, p = 1", d, 1, 3 * ITEM * d, None))
    claims = [
        _memory(table, {f"L-RVGA, p = {p}": p + 2 for p in ranks}, slack=0),
        _cheaper(table, ranks),
        _blocks(table, ranks),
    ]
    return _result("table2", f"Linear regression in {d:,} dimensions", table, claims)


def _rows(d: int, n: int) -> Batch:
    x = jr.normal(jr.key(SEED), (n, d)) / jnp.sqrt(d)
    return Batch(x, jnp.ones(n), jnp.ones(n))


def _random_start(d: int, p: int) -> LowRankCovariance:
    level = jnp.full(d, 1 / d)
    return fa.start(jnp.zeros(d), level, p, key=jr.key(SEED), share=EPSILON)


def _posterior(d: int, p: int, projection: Projection) -> LowRankPrecision:
    start = _random_start(d, p).covariance
    return LowRankPrecision(jnp.zeros(d), d**0.5 * start.factor, d * start.diag, projection)


def _recursive(projection: Projection, block: int) -> Rule:
    return fa.RecursiveFA(projection, centred=False, block_size=block)


def _eigen_blocks(d: int, p: int) -> tuple[Rule, Any, Batch]:
    return (
        _recursive(Eigen(), p),
        partial(fa.start, jnp.zeros(d), jnp.full(d, 1 / d), p),
        _rows(d, p),
    )


def _em_bytes(state: Any) -> int:
    cov = state.posterior.covariance
    return cov.factor.nbytes + cov.diag.nbytes


def _online_bytes(state: fa.OnlineEMState) -> int:
    return _em_bytes(state) + sum(array.nbytes for array in state.statistics)


def _rvga_bytes(state: Any) -> int:
    precision = state.posterior.precision
    return state.posterior.mean.nbytes + precision.factor.nbytes + precision.diag.nbytes


def _measured(name: str, d: int, p: int, rule: Rule, prior, batch: Batch, size) -> dict:
    """A line of the table: a first pass over the rows to compile, a second on the clock."""
    state = run.fit(rule, prior(), [batch])
    jax.block_until_ready(state)
    counted, held = size(state), sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    began = time.process_time()
    jax.block_until_ready(run.resume(rule, state, [batch]))
    seconds = (time.process_time() - began) / len(batch.y)
    return _line(name, d, p, counted, seconds) | {"bytes_held": held}


def _line(name: str, d: int, p: int, size: int, seconds: float | None) -> dict:
    return {"method": name, "d": d, "p": p, "bytes": size, "seconds_per_row": seconds}


def _by_name(table: Table) -> dict[str, dict]:
    return {row["method"]: row for row in table}


def _memory(table: Table, columns: dict[str, int], slack: int) -> Claim:
    found = _by_name(table)
    numbers = {f"{name}, MB": found[name]["bytes"] / MEGABYTE for name in columns}
    numbers |= {f"{table[0]['method']} (computed), GB": table[0]["bytes"] / 1e9}
    held = all(
        0 <= found[name]["bytes"] - ITEM * found[name]["d"] * count <= slack
        for name, count in columns.items()
    )
    counts = ", ".join(f"{count} numbers a dimension for {name}" for name, count in columns.items())
    return Claim(f"The state holds {counts}", numbers, held)


def _slower(table: Table) -> Claim:
    found = _by_name(table)
    numbers = {f"{row['method']}, s": row["seconds_per_row"] for row in table[1:]}
    online, recursive = (
        found[m]["seconds_per_row"] for m in ("online EM", "recursive EM, Algorithm 1")
    )
    return Claim(
        "A step of recursive EM costs more than one of online EM", numbers, recursive > online
    )


def _cheaper(table: Table, ranks: tuple[int, ...]) -> Claim:
    found = _by_name(table)
    numbers = {f"p = {p}, s": found[f"L-RVGA, p = {p}"]["seconds_per_row"] for p in ranks}
    times, least = list(numbers.values()), ranks[0] / ranks[-1] / 2
    text = f"Time falls drastically with p (p = {ranks[-1]} at least {least:g} times faster)"
    return Claim(text, numbers, times[0] > least * times[-1])


def _blocks(table: Table, ranks: tuple[int, ...]) -> Claim:
    found, numbers, gains = _by_name(table), {}, []
    for p in ranks:
        one, many = (found[f"L-RVGA, p = {p}{end}"]["seconds_per_row"] for end in ("", ", a block"))
        numbers |= {f"p = {p}, a row alone, s": one, f"p = {p}, in blocks, s": many}
        gains.append(many < one)
    return Claim("Blocks make a row cheaper", numbers, all(gains), ours=True)


def _result(name: str, title: str, table: Table, claims: list[Claim]) -> Result:
    words = [
        {
            "method": row["method"],
            "memory": _size(row["bytes"]),
            "held by ours": _size(row["bytes_held"]) if "bytes_held" in row else "-",
            "seconds a row": "-"
            if row["seconds_per_row"] is None
            else f"{row['seconds_per_row']:.2g}",
        }
        for row in table
    ]
    heading = f"{name.replace('table', 'Table ')}. {title}"

    def draw() -> plots.Figure:
        panel = partial(pictures.table, words)
        return plots.compose([[panel]], title=heading, size=(9, 1.4 + 0.32 * len(words)))

    return Result(name, title, table, claims, draw)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / MEGABYTE:,.1f} MB"
