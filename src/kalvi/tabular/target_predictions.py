"""Predictions of a target: their intervals, their table, their scores, and examples."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kalvi.columns.targets import Classes, Target, label
from kalvi.evaluation import intervals, metrics
from kalvi.evaluation.intervals import Spread
from kalvi.tabular.record import EXAMPLES, LEVELS
from kalvi.tabular.rows import Rows

LEVEL = 0.95
"""The level of the intervals in examples."""


class Prediction(NamedTuple):
    """Predictions for some rows, with intervals that are computed on demand."""

    mean: np.ndarray  # of y, or the probability of each class
    spread: Callable[[float], Spread] | None
    """Computes standard deviations and central intervals of a level; None if there are none."""
    inside: Callable[[np.ndarray], np.ndarray] | None = None
    """For numbers, says whether the intervals contain y, with a column for each of `record.LEVELS`."""


def normal_prediction(target: Target, mean: np.ndarray, std: np.ndarray) -> Prediction:
    """Predictions of numbers by normal laws, given in the units in which the target is learned."""
    restored = target.in_original_units(mean)
    zero, one = target.in_original_units(np.array([0.0, 1.0]))
    scale = float(one - zero)
    return Prediction(
        restored,
        lambda level: intervals.normal(restored, scale * std, level),
        lambda y: intervals.normal_holds(y, mean, std, LEVELS),
    )


def prediction_table(made: Prediction, target: Target, level: float) -> pa.Table:
    """The columns that `kalvi predict` writes for predictions of the target."""
    mean, spread = made.mean, made.spread and made.spread(level)
    if not isinstance(target, Classes):
        assert spread is not None  # numbers have intervals
        ends = {"sd": spread.std, "lower": spread.lower, "upper": spread.upper}
        return pa.table({"mean": mean} | ends)
    likeliest = np.array(target.labels, object)[np.argmax(mean, axis=1)]
    columns: dict[str, Any] = {"predicted": pa.array(likeliest.tolist(), pa.string())}
    columns |= {f"p_{name}": mean[:, k] for k, name in enumerate(target.labels)}
    if spread is not None:
        for part, values in zip(("sd", "lower", "upper"), _for_each_class(spread), strict=True):
            columns |= {f"{part}_{name}": values[:, k] for k, name in enumerate(target.labels)}
    return pa.table(columns)


def score_predictions(
    mean: np.ndarray, table: pa.Table, target: Target, notation: str
) -> tuple[int, float]:
    """The number of rows that have a target, and the sum of the losses of their predictions."""
    if target.name not in table.column_names or not pa.types.is_string(table[target.name].type):
        return 0, 0.0
    y, there = target.read_for_scoring(table[target.name], notation)
    n = int(there.sum())
    if not n:
        return 0, 0.0
    if isinstance(target, Classes):
        return n, n * metrics.log_loss(mean[there], y[there])
    return n, float(np.sum((mean[there] - y[there]) ** 2))


def make_examples(
    predict: Callable[[Any], Prediction],
    rows: Rows,
    which: np.ndarray,
    target: Target,
    columns: Sequence[str],
) -> tuple[dict[str, Any], ...]:
    """A few of the rows `which`, each with its first columns, its target and its prediction."""
    which = which[np.linspace(0, len(which) - 1, min(EXAMPLES, len(which))).astype(int)]
    made = predict(rows.x[which])
    spread = made.spread and made.spread(LEVEL)
    shown = rows.table.take(which).select(list(columns)[:EXAMPLES])
    observed = rows.table[target.name].take(which).to_pylist()
    return tuple(
        {
            "row": {name: _as_text(value) for name, value in row.items()},
            "observed": label(seen),
            **_example(made.mean, spread, i, target),
        }
        for i, (row, seen) in enumerate(zip(shown.to_pylist(), observed, strict=True))
    )


def _example(mean: np.ndarray, spread: Spread | None, i: int, target: Target) -> dict[str, Any]:
    """Prediction i and its interval; for classes, that of the second of two or the likeliest of several."""
    found: dict[str, Any] = {}
    which: Any = i
    if isinstance(target, Classes):
        k = 1 if mean.shape[1] == 2 else int(np.argmax(mean[i]))
        which, found = (i, k), {"class": target.labels[k]}
    found["predicted"] = float(mean[which])
    if spread is None:
        return found
    end = i if spread.lower.ndim == 1 else which
    return found | {"lower": float(spread.lower[end]), "upper": float(spread.upper[end])}


def _for_each_class(spread: Spread) -> Spread:
    """The spread with a column for each class; for two classes, it is given for the second only."""
    if spread.std.ndim == 2:
        return spread
    std, lower, upper = spread
    return Spread(
        np.column_stack([std, std]),
        np.column_stack([1 - upper, lower]),
        np.column_stack([1 - lower, upper]),
    )


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:60]
