"""The cost of collecting the parameters of a training loop for SWA, SWAG or factor analysis, rank 20.

Milliseconds of one call of `collect`, over three blocks of sixteen calls; memory of a fresh process.
"""

import jax
import numpy as np

import kalvi
from benchmarks.memory import apart, forget_peak, peak, resident
from benchmarks.timing import cpu_seconds

METHODS = {"swa": 1, "swag": 22, "fa": 38}
"""Numbers kept for each parameter at rank 20: the state and, for factor analysis, the rows that wait."""
RANK, CALLS = 20, 48


def collectors(report, quick):
    """One call of `collect`, averaged over three blocks of sixteen."""
    report.heading(f"Collecting float32 parameters, rank {RANK}")
    rows = []
    for d in (10**5,) if quick else (10**5, 10**6):
        for method, kept in METHODS.items():
            mean, median, grown, most = apart(measure, d, method)
            numbers = kept * d * 4e-6
            memory = [f"{mb:.0f}" for mb in (numbers, grown, most)]
            rows += [[f"{d:.0e}", method, f"{1e3 * median:.2f}", f"{1e3 * mean:.2f}", *memory]]
    header = ["parameters", "method", "median ms", "mean ms", "state MB", "resident MB", "peak MB"]
    report.table(header, rows)


def measure(d: int, method: str) -> tuple[float, float, float, float]:
    """Mean and median seconds of a call, and the MB it left resident and took at most."""
    rng = np.random.default_rng(0)
    side = int(d**0.5)
    tree = {"weight": np.zeros((side, side), np.float32), "bias": np.zeros(d - side**2, np.float32)}
    tree = jax.tree.map(lambda a: a + rng.normal(size=a.shape).astype(np.float32), tree)
    small = kalvi.networks.Collector(method, rank=RANK).collect(np.zeros(RANK, np.float32))
    jax.block_until_ready(small._state)
    before = resident()
    collector = kalvi.networks.Collector(method, rank=RANK)

    def call():
        collector.collect(tree)
        jax.block_until_ready(collector._state)

    for _ in range(16):
        call()
    forget_peak()
    times = [cpu_seconds(call) for _ in range(CALLS)]
    return float(np.mean(times)), float(np.median(times)), resident() - before, peak() - before
