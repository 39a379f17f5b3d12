"""Predictions of the rows of a source, written as they are made."""

import json
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kalvi.columns.targets import Classes
from kalvi.evaluation import metrics
from kalvi.evaluation.intervals import Spread
from kalvi.readers.source import Source
from kalvi.tabular.learn import open_for
from kalvi.tabular.model import TableModel

PIECE = 4096
LISTED = 5
"""So many new levels of a column are named."""


class Outcome(NamedTuple):
    """How many rows were predicted, what was new in them, and how good the predictions are."""

    rows: int
    ignored: tuple[str, ...]  # columns that the model does not know
    unseen: dict[str, dict[str, int]]  # levels that it has not seen, and how many rows have them
    labelled: int  # rows that could be judged
    score: float | None  # mean over these
    measure: str  # what the score is: "log_loss", "mean_squared_error" or "mean_log_density"
    absent: tuple[str, ...] = ()  # columns of the model that the data lack, imputed in every row

    def told(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "rows": self.rows,
            "ignored_columns": list(self.ignored),
            "imputed_columns": list(self.absent),
            "unseen_levels": self.unseen,
            "labelled": self.labelled,
            self.measure: self.score,
        }

    def lines(self) -> list[str]:
        """For a person."""
        said = [f"predicted {self.rows:,} row{'s' * (self.rows != 1)}"]
        if self.score is not None:
            name = self.measure.replace("_", " ")
            judged = (
                "" if name == "mean log density" else f" on {self.labelled:,} rows with a target"
            )
            said.append(f"{name} {self.score:.6f}{judged}")
        if self.ignored:
            said.append(f"columns the model does not know were ignored: {', '.join(self.ignored)}")
        return said + self.surprises()

    def surprises(self) -> list[str]:
        """What the model had to do without, or has never seen: predictions may be worse for it."""
        said = [
            f"the data have no column '{name}': it is imputed in all rows" for name in self.absent
        ]
        for column, levels in self.unseen.items():
            most = sorted(levels, key=lambda level: -levels[level])
            named = ", ".join(most[:LISTED]) + (" ..." if len(most) > LISTED else "")
            lost = " (labels that lost their leading zeros must be read as text)"
            said.append(
                f"'{column}' has levels the model has not seen, in {sum(levels.values()):,} rows: {named}"
                + lost * any(level.isdecimal() for level in most)
            )
        return said


class Piece(NamedTuple):
    """Predictions of some rows as a table, and the outcome up to them."""

    table: pa.Table
    outcome: Outcome


class Made(NamedTuple):
    """Predictions of some rows, levels that are new, how many rows were judged and their total score."""

    table: pa.Table
    unseen: dict[str, dict[str, int]]
    labelled: int
    total: float
    measure: str


@singledispatch
def made(model: Any, table: pa.Table, place: Any, level: float) -> Made:
    """What a model says of some rows."""
    raise TypeError(f"{type(model).__name__} predicts no rows")


@made.register(TableModel)
def _made(model: TableModel, table: pa.Table, place: Any, level: float) -> Made:
    x, unseen = model.inputs(table, place)
    found = model.prediction(x, level)
    measure = "log_loss" if isinstance(model.target, Classes) else "mean_squared_error"
    return Made(_table(model, found), unseen, *_scored(model, table, found.mean), measure)


@singledispatch
def opened(
    model: Any,
    data: tuple[str, ...] | pa.Table,
    format: str | None,
    types: dict[str, str] | None = None,
    keep: tuple[str, ...] = (),
) -> Source | None:
    """The rows to predict; None of a model that predicts what it was fitted to.

    The target, and columns that are only carried over, are read as text: nothing in them can end the run,
    and they are written as they came.
    """
    if not data:
        raise ValueError("give the rows to predict: a file, several, or - for standard input.")
    carried = {name: "category" for name in keep if name not in model.encoder.columns()}
    target = {model.target.name: "category"} if isinstance(model, TableModel) else {}
    return open_for(model, data, format, {**(types or {}), **carried, **target})


@singledispatch
def predictions(
    model: Any,
    source: Source,
    *,
    keep: tuple[str, ...] = (),
    level: float = 0.95,
    tell: Callable[..., None] = lambda *_: None,
) -> Iterator[Piece]:
    """Piece by piece."""
    for name in keep:
        if name not in source.schema.names:
            raise ValueError(f"--keep: the data have no column '{name}'.")
    known = {*model.columns(), *keep}
    _check_kept(source, keep)
    ignored = tuple(name for name in source.schema.names if name not in known)
    absent = tuple(name for name in model.encoder.columns() if name not in source.schema.names)
    outcome, total = Outcome(0, ignored, {}, 0, None, "", absent), 0.0
    for piece in source.pieces(PIECE):
        found = made(model, piece.table, piece.place, level)
        total += found.total
        count = outcome.labelled + found.labelled
        outcome = outcome._replace(
            rows=outcome.rows + piece.table.num_rows,
            unseen=added(outcome.unseen, found.unseen),
            labelled=count,
            score=total / count if count else None,
            measure=found.measure,
        )
        tell(outcome.rows, source.fraction())
        yield Piece(_beside(piece.table.select(list(keep)), found.table), outcome)


def write(pieces: Iterator[Piece], file: Any, suffix: str) -> Outcome:
    """Write the tables as CSV, Parquet or JSON lines; what was predicted in all."""
    writer: Any = None
    outcome = None
    for table, told in pieces:
        outcome = told
        if suffix == ".jsonl":
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in table.to_pylist())
            file.write("".join(f"{line}\n" for line in lines).encode())
            continue
        if writer is None:
            kind = pq.ParquetWriter if suffix == ".parquet" else pa_csv.CSVWriter
            writer = kind(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    assert outcome is not None  # a source has rows
    return outcome


def _check_kept(source: Source, keep: tuple[str, ...]) -> None:
    for name in keep:
        if pa.types.is_nested(source.schema.field(name).type):
            raise ValueError(f"--keep: column '{name}' holds lists, which cannot be carried over.")


def _beside(kept: pa.Table, found: pa.Table) -> pa.Table:
    """The predictions beside the columns that are kept."""
    if both := set(kept.column_names) & set(found.column_names):
        raise ValueError(
            f"--keep: the predictions have a column '{both.pop()}' of their own; rename it."
        )
    columns = dict(zip(kept.column_names, kept.columns, strict=True))
    return pa.table(columns | dict(zip(found.column_names, found.columns, strict=True)))


def _table(model: TableModel, found: Any) -> pa.Table:
    """The columns of the predictions."""
    mean, spread = found
    if not isinstance(model.target, Classes):
        ends = {"sd": spread.std, "lower": spread.lower, "upper": spread.upper}
        return pa.table({"mean": mean} | ends)
    labels = model.target.labels
    likeliest = np.array(labels, object)[np.argmax(mean, axis=1)]
    columns: dict[str, Any] = {"predicted": pa.array(likeliest.tolist(), pa.string())}
    columns |= {f"p_{label}": mean[:, k] for k, label in enumerate(labels)}
    if spread is not None:
        for name, part in zip(("sd", "lower", "upper"), of_each_class(spread), strict=True):
            columns |= {f"{name}_{label}": part[:, k] for k, label in enumerate(labels)}
    return pa.table(columns)


def of_each_class(spread: Spread) -> Spread:
    """A column for each class; of two classes, the first mirrors the second, which is all that is given."""
    if spread.std.ndim == 2:
        return spread
    std, lower, upper = spread
    return Spread(
        np.column_stack([std, std]),
        np.column_stack([1 - upper, lower]),
        np.column_stack([1 - lower, upper]),
    )


def _scored(model: TableModel, table: pa.Table, mean: np.ndarray) -> tuple[int, float]:
    """How many rows have a target that the model can judge, and the sum of their losses."""
    name = model.target.name
    if name not in table.column_names or not pa.types.is_string(table[name].type):
        return 0, 0.0
    y, there = model.target.judged(table[name], model.notation.get(name, "number"))
    if not there.any():
        return 0, 0.0
    n = int(there.sum())
    if isinstance(model.target, Classes):
        return n, n * metrics.log_loss(mean[there], y[there])
    return n, float(np.sum((mean[there] - y[there]) ** 2))


def added(a: dict[str, dict[str, int]], b: dict[str, dict[str, int]]) -> dict[str, Any]:
    """How many rows have each new level of a column, in two parts of the data together."""
    found = {name: dict(levels) for name, levels in a.items()}
    for name, levels in b.items():
        mine = found.setdefault(name, {})
        for level, n in levels.items():
            mine[level] = mine.get(level, 0) + n
    return found
