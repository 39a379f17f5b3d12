"""How long one prediction of one row takes: `python docs/examples/latency.py`."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import kalvi


def quantiles(ask: Callable[[], object], calls: int = 2000) -> str:
    """The median and the 99th percentile of the time of a call, in milliseconds."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        ask()
        times.append(1000 * (time.perf_counter() - began))
    return "p50 {:.2f} ms, p99 {:.2f} ms".format(*np.quantile(times, [0.5, 0.99]))


def main() -> None:
    """Models of twenty columns, out of files."""
    rng, folder = np.random.default_rng(0), Path(tempfile.mkdtemp())
    x = rng.normal(size=(2000, 20))
    y = x @ rng.normal(size=20) > 0
    for rank in (None, 5):
        kalvi.save(folder / "model.kalvi", kalvi.LogisticRegression(rank=rank).partial_fit(x, y))
        predict = kalvi.load(folder / "model.kalvi").predict_proba
        predict(x[:1])
        print(f"LogisticRegression(rank={rank}):", quantiles(partial(predict, x[:1])))


if __name__ == "__main__":
    main()
