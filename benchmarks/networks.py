"""Posteriors on networks with one hidden layer of 50 tanh units, fitted to UCI tables, 90/10 splits.

The test log-likelihood is that of a normal prediction with its mean and variance, in the units of y.
Times are CPU seconds of a fit on one thread, without kalvi's first fit, which compiles, and without a
first short fit of the peers. kalvi's methods have the estimator's defaults. laplace-torch, ivon-opt and
posteriors train the same network with the same batches and as many epochs as the table says, each as in
its documentation (`benchmarks/torch_peers.py`) and in its own process. The deviations of posteriors
start at e⁻³; from the default of 1 it would need thousands of steps more. All methods run on one split
before the next one; ratios are over the splits.
"""

import time
from typing import NamedTuple

import numpy as np

import kalvi
from benchmarks import memory
from benchmarks.report import Report
from kalvi.evaluation import metrics
from papers import datasets

HIDDEN = 50
EPOCHS = {"yacht": 500, "energy": 300, "concrete": 300}
QUICK_EPOCHS = {"yacht": 150}
SPLITS = 3
METHODS = ("vifa", "swag", "lrvga")
PEERS = ("laplace-torch", "ivon-opt", "posteriors")
OURS = "kalvi, vifa"
HEADER = ["method", "log-likelihood", "RMSE", "95 % coverage", "CPU s", "kalvi, vifa, is faster by"]


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


def networks(report: Report, quick: bool) -> None:
    """A table of the methods on each data set."""
    workers = {name: memory.Worker() for name in PEERS}
    for name, epochs in (QUICK_EPOCHS if quick else EPOCHS).items():
        scores = _scores(report, name, epochs, workers)
        where = f"{name}, {SPLITS} splits, {epochs} epochs"
        report.heading(where)
        report.table(HEADER, [_row(report, method, scores, where) for method in scores])
    for worker in workers.values():
        worker.close()


def _scores(report: Report, name: str, epochs: int, workers) -> dict[str, list]:
    """All methods on a split before the next split: a slow moment of the machine hits everybody."""
    contenders = {f"kalvi, {m}": lambda s, m=m: _ours(s, m) for m in METHODS}
    contenders |= {p: lambda s, p=p: _theirs(s, p, epochs, workers[p]) for p in PEERS}
    scores: dict[str, list[Score]] = {method: [] for method in contenders}
    for seed in range(SPLITS):
        split = _split(name, seed)
        for method in list(scores):
            try:
                scores[method].append(contenders[method](split))
            except Exception as error:
                report.failed(method, error)
                del scores[method]
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


def _theirs(split: Split, peer: str, epochs: int, worker: memory.Worker) -> Score:
    centre, scale = split.x.mean(axis=0), split.x.std(axis=0)
    scale = np.where(scale > 1e-10 * np.abs(centre), scale, 1.0)
    y_centre, y_scale = split.y.mean(), split.y.std()
    rows, new = (split.x - centre) / scale, (split.new_x - centre) / scale
    labels = (split.y - y_centre) / y_scale
    given = (peer, rows, labels, new, HIDDEN, epochs, split.seed)
    mean, var, cpu, wall = worker.call(fit_peer, *given)
    return _score(split, mean * y_scale + y_centre, np.sqrt(var) * y_scale, cpu, wall)


def fit_peer(*given):
    """In the peer's process: PyTorch is imported there only."""
    from benchmarks import torch_peers

    return torch_peers.fit(*given)


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


def _row(report: Report, method: str, scores: dict[str, list[Score]], where: str) -> list[str]:
    each, ours = np.array(scores[method]), np.array(scores[OURS])
    mean, error = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
    ratio = ""
    if not method.startswith("kalvi"):
        ratio = report.faster(method, each[1:, 3] / ours[1:, 3], where)
        gap = each[:, 0] - ours[:, 0]
        if gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(len(gap)):
            report.losses.append(
                f"{where}: the log-likelihood of {method} is higher by {gap.mean():.3f} nats."
            )
    return [
        method,
        f"{mean[0]:.3f} ± {error[0]:.3f}",
        f"{mean[1]:.4g} ± {error[1]:.2g}",
        f"{100 * mean[2]:.1f} %",
        f"{each[1:, 3].mean():.1f}",
        ratio,
    ]
