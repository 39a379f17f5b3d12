"""Bayesian networks on UCI tables, kalvi and laplace-torch in turns on the same splits.

One hidden layer of 50 tanh units, 90/10 splits, everything standardised by the rows of training. The
test log-likelihood is of a normal prediction, in the units of y; times are of a fit, by one thread.

laplace-torch runs in a process of its own: BENCH_TORCH=/path/to/python names an environment with
`pip install torch laplace-torch` (the extra `bench-torch`); without it the peer is left out.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kalvi
from kalvi import datasets, metrics

HIDDEN = 50
EPOCHS = {
    "yacht": 1000,
    "energy": 1000,
    "housing": 1000,
    "concrete": 1000,
    "naval": 250,
    "protein": 40,
}
"""Of the peer: long on the first four; the last two take it about three times as long as kalvi."""
METHODS = ("vifa", "swag", "multiswag", "lrvga")
PEER = "laplace-torch"
HEADER = ["method", "log-likelihood", "RMSE", "95 % coverage", "CPU s", "wall s", "first CPU s"]
SPLITS, QUICK_SPLITS = 5, 2
QUICK = ("yacht", "energy")


class Split(NamedTuple):
    """Rows to learn from and rows to be judged by."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    new_y: np.ndarray
    seed: int


class Score(NamedTuple):
    """Of one fit."""

    log_likelihood: float
    rmse: float
    coverage: float
    cpu: float
    wall: float


def networks(report, quick):
    """A table of the methods on each data set."""
    report.heading(f"Networks of {HIDDEN} tanh units on UCI tables")
    names = QUICK if quick else tuple(EPOCHS)
    peer = _peer_python()
    if peer is None:
        report.line(
            f"{PEER} is left out: it is not installed here, and BENCH_TORCH names no other Python; "
            "`pip install torch laplace-torch`."
        )
    for name in names:
        splits = QUICK_SPLITS if quick else SPLITS
        scores = _scores(name, splits, peer)
        report.line(f"{name}, {splits} splits, the peer with {EPOCHS[name]} epochs")
        report.table(
            HEADER,
            [_row(method, found) for method, found in scores.items()],
        )


def _scores(name: str, splits: int, peer: str | None) -> dict[str, list[Score]]:
    """All methods on a split before the next split: a slow moment of the machine hits everybody."""
    contenders = {method: lambda s, m=method: _ours(s, m) for method in METHODS}
    if peer is not None:
        contenders[PEER] = lambda s: _theirs(s, EPOCHS[name], peer)
    scores: dict[str, list[Score]] = {method: [] for method in contenders}
    for seed in range(splits):
        split = _split(name, seed)
        for method, run in contenders.items():
            scores[method].append(run(split))
    return scores


def _split(name: str, seed: int) -> Split:
    stored = datasets.load(name)
    x, y = stored["X"], np.asarray(stored["y"], float)
    order = np.random.default_rng(seed).permutation(len(y))
    old, new = np.split(order, [int(0.9 * len(y))])
    return Split(x[old], y[old], x[new], y[new], seed)


def _ours(split: Split, method: str) -> Score:
    model = kalvi.NeuralRegressor((HIDDEN,), method=method, random_state=split.seed)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(split.x, split.y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return _score(split, *model.predict(split.new_x, return_std=True), cpu, wall)


def _theirs(split: Split, epochs: int, python: str) -> Score:
    centre, scale = split.x.mean(axis=0), split.x.std(axis=0)
    scale = np.where(scale > 1e-10 * np.abs(centre), scale, 1.0)
    y_centre, y_scale = split.y.mean(), split.y.std()
    with tempfile.TemporaryDirectory() as folder:
        rows, told = Path(folder) / "rows.npz", Path(folder) / "told.json"
        np.savez(
            rows,
            x=(split.x - centre) / scale,
            y=(split.y - y_centre) / y_scale,
            new=(split.new_x - centre) / scale,
            hidden=HIDDEN,
            epochs=epochs,
            seed=split.seed,
        )
        script = Path(__file__).with_name("laplace_peer.py")
        subprocess.run([python, str(script), str(rows), str(told)], check=True)
        found = json.loads(told.read_text())
    mean = np.array(found["mean"]) * y_scale + y_centre
    std = np.sqrt(found["var"]) * y_scale
    return _score(split, mean, std, found["cpu"], found["wall"])


def _score(split: Split, mean, std, cpu: float, wall: float) -> Score:
    error = split.new_y - mean
    density = -0.5 * (np.log(2 * np.pi * std**2) + (error / std) ** 2)
    return Score(
        float(density.mean()),
        float(np.sqrt(np.mean(error**2))),
        metrics.coverage(mean, std, split.new_y),
        cpu,
        wall,
    )


def _row(method: str, scores: list[Score]) -> list[str]:
    each = np.array(scores)
    mean, error = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(scores))
    later = each[1:].mean(axis=0)  # kalvi's first fit compiles; the peer's is warmed up
    first = "" if method == PEER else f"{scores[0].cpu:.1f}"
    return [
        method,
        f"{mean[0]:.3f} ± {error[0]:.3f}",
        f"{mean[1]:.4g} ± {error[1]:.2g}",
        f"{100 * mean[2]:.1f} %",
        f"{later[3]:.1f}",
        f"{later[4]:.1f}",
        first,
    ]


def _peer_python() -> str | None:
    """A Python that has the peer."""
    python = os.environ.get("BENCH_TORCH", sys.executable)
    probe = [python, "-c", "import laplace, torch"]
    return python if subprocess.run(probe, capture_output=True).returncode == 0 else None
