"""Seconds of work, taken in turns so that a slow moment of the machine hits everybody."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks import CORES

CLOCK = time.process_time if CORES == 1 else time.perf_counter
"""With one core and one thread, CPU time is the time of an idle machine; with more, time passes for all."""


@dataclass(frozen=True)
class Contender:
    """run(x, y) takes all rows; it is given whole multiples of `multiple` rows, at least one."""

    name: str
    run: Callable
    multiple: int = 1


@dataclass(frozen=True)
class Rates:
    """Rows a second in every round."""

    rows: int
    per_second: np.ndarray


def cpu_seconds(run: Callable, *args) -> float:
    """The time of run(*args) by CLOCK."""
    start = CLOCK()
    run(*args)
    return CLOCK() - start


def race(contenders: list[Contender], x, y, rounds: int, seconds: float) -> dict[str, Rates]:
    """The rates of all contenders on the first rows of x, y; each round takes about `seconds` for each."""
    rows = {c.name: _fitting(c, x, y, seconds) for c in contenders}
    times = {c.name: [] for c in contenders}
    for _ in range(rounds):
        for c in contenders:
            n = rows[c.name]
            times[c.name].append(cpu_seconds(c.run, x[:n], y[:n]))
    return {name: Rates(rows[name], rows[name] / np.array(t)) for name, t in times.items()}


def _fitting(contender: Contender, x, y, seconds: float) -> int:
    """How many rows take about `seconds`, found by growing runs, each compiled before it is timed."""
    n, most = contender.multiple, len(y) // contender.multiple * contender.multiple
    while True:
        contender.run(x[:n], y[:n])
        taken = cpu_seconds(contender.run, x[:n], y[:n])
        if n == most or taken > seconds / 2:
            return n
        growth = int(np.clip(seconds / max(taken, 1e-9), 2, 8))
        n = min(n * growth, most)
