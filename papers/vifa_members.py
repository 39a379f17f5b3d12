"""MultiSWAG with members by factor analysis, on networks: what the thesis was written for and left undone.

Networks of 50 tanh units on UCI tables, as `make bench ARGS=networks` has them: 90 % of the rows at a time,
`NeuralRegressor` with its defaults. SWAG keeps the last 20 deviations of the iterates from their mean, its
covariance half of them and half of the diagonal; "fa" is a factor analysis of all iterates with 20 factors.
The multi-… methods mix five trainings. Judged are the mean log density of the new targets, under a normal
law with the mean and the variance that is predicted, and the root mean square error.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import kalvi
from kalvi import plots
from papers import datasets, parts, pictures
from papers.results import Claim, Result

TABLES, SPLITS, MEMBERS, HIDDEN = ("yacht", "energy", "concrete"), 3, 5, 50
METHODS = {
    "swag": "SWAG",
    "fa": "factor analysis",
    "multiswag": "MultiSWAG",
    "multifa": "MultiSWAG, FA members",
}


class Score(NamedTuple):
    """Of one fit on its new rows."""

    density: float
    rmse: float


def score(table: str, method: str, seed: int, quick: bool) -> Score:
    """One method on one split."""
    stored = datasets.load(table)
    x, y = np.asarray(stored["X"], float), np.asarray(stored["y"], float).ravel()
    order = np.random.default_rng(seed).permutation(len(y))[: 100 if quick else None]
    old, new = np.split(order, [int(0.9 * len(order))])
    settings = {"epochs": 20, "n_members": 2} if quick else {"n_members": MEMBERS}
    model = kalvi.NeuralRegressor((HIDDEN,), method=method, random_state=seed, **settings)
    mean, std = model.fit(x[old], y[old]).predict(x[new], return_std=True)
    away = y[new] - mean
    density = -np.log(2 * np.pi * std**2) / 2 - (away / std) ** 2 / 2
    return Score(float(density.mean()), float(np.sqrt(np.mean(away**2))))


def table_members(quick: bool) -> Result:
    """SWAG, factor analysis and their mixtures."""
    tables, splits = (TABLES[:1], 1) if quick else (TABLES, SPLITS)
    wanted = [(t, m, seed, quick) for t in tables for m in METHODS for seed in range(splits)]
    found = iter(parts.each(score, wanted))
    scores = {
        (t, m): np.array([next(found) for _ in range(splits)]) for t in tables for m in METHODS
    }
    rows = [_row(*key, values) for key, values in scores.items()]
    claims = [
        _better(scores, "fa", "swag", "A factor analysis of the iterates beats SWAG's Gaussian"),
        _better(scores, "multifa", "multiswag", "Members by factor analysis make MultiSWAG better"),
        _better(scores, "multifa", "fa", "Several trainings beat one (factor analysis)"),
    ]
    title = f"MultiSWAG with factor-analysis members: networks on UCI tables, {splits} splits"

    def draw() -> plots.Figure:
        shown = [{k: v if isinstance(v, str) else f"{v:.3f}" for k, v in r.items()} for r in rows]
        size = (10.5, 0.9 + 0.34 * len(rows))
        return plots.compose([[partial(pictures.table, shown)]], title=title, size=size)

    return Result("members", title, rows, claims, draw)


Scores = dict[tuple[str, str], np.ndarray]


def _row(table: str, method: str, values: np.ndarray) -> dict[str, Any]:
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else (0.0, 0.0)
    row: dict[str, Any] = {"table": table, "method": METHODS[method]}
    for i, name in enumerate(("log density", "RMSE")):
        row |= {name: float(values[:, i].mean()), f"± ({name})": float(error[i])}
    return row


def _better(scores: Scores, one: str, other: str, text: str) -> Claim:
    numbers, held = {}, []
    for table in dict.fromkeys(table for table, _ in scores):
        gains = scores[table, one][:, 0] - scores[table, other][:, 0]
        numbers[f"nats a row gained ({table})"] = float(gains.mean())
        held += [bool(gain > 0) for gain in gains]
    return Claim(f"{text} (log density of new rows, each split)", numbers, held, ours=True)
