"""Predictions of the rows of a source, written as they are made."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kalvi import metrics
from kalvi.columns.targets import Classes
from kalvi.readers import Source
from kalvi.tabular.model import TableModel

PIECE = 4096
LISTED = 5
"""So many new levels of a column are named."""


class Outcome(NamedTuple):
    """How many rows were predicted, what was new in them, and how good the predictions are."""

    rows: int
    ignored: tuple[str, ...]  # columns that the model does not know
    unseen: dict[str, dict[str, int]]  # levels that it has not seen, and how many rows have them
    labelled: int
    score: float | None  # mean log loss, or mean squared error of numbers
    classes: bool

    def told(self) -> dict[str, Any]:
        """For scripts."""
        name = "log_loss" if self.classes else "mean_squared_error"
        return {
            "rows": self.rows,
            "ignored_columns": list(self.ignored),
            "unseen_levels": self.unseen,
            "labelled": self.labelled,
            name: self.score,
        }

    def lines(self) -> list[str]:
        """For a person."""
        said = [f"predicted {self.rows:,} rows"]
        if self.score is not None:
            name = "log loss" if self.classes else "mean squared error"
            said.append(f"{name} {self.score:.6f} on {self.labelled:,} rows with a target")
        if self.ignored:
            said.append(f"columns the model does not know were ignored: {', '.join(self.ignored)}")
        for column, levels in self.unseen.items():
            most = sorted(levels, key=lambda level: -levels[level])
            named = ", ".join(most[:LISTED]) + (" ..." if len(most) > LISTED else "")
            said.append(
                f"'{column}' has levels the model has not seen, in {sum(levels.values()):,} rows: {named}"
            )
        return said


class Piece(NamedTuple):
    """Predictions of some rows as a table, and the outcome up to them."""

    table: pa.Table
    outcome: Outcome


def predictions(
    model: TableModel,
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
    known = {*model.encoder.columns(), model.target.name, model.choices.weight, *keep}
    ignored = tuple(name for name in source.schema.names if name not in known)
    classes = isinstance(model.target, Classes)
    outcome, total = Outcome(0, ignored, {}, 0, None, classes), 0.0
    for piece in source.pieces(PIECE):
        x, unseen = model.inputs(piece.table, piece.place)
        made = model.predict(x, level)
        labelled, added = _scored(model, piece.table, piece.place, made.mean)
        total += added
        count = outcome.labelled + labelled
        outcome = outcome._replace(
            rows=outcome.rows + piece.table.num_rows,
            unseen=_joined(outcome.unseen, unseen),
            labelled=count,
            score=total / count if count else None,
        )
        tell(outcome.rows, source.fraction())
        yield Piece(_table(model, piece.table.select(list(keep)), made), outcome)


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


def _table(model: TableModel, kept: pa.Table, made: Any) -> pa.Table:
    """The columns of the predictions beside those that are kept."""
    columns: dict[str, Any] = {name: kept[name] for name in kept.column_names}
    mean, spread = made
    if not isinstance(model.target, Classes):
        columns["mean"] = mean
        return pa.table(columns | spread._asdict() | {"sd": spread.std}).select(
            [*kept.column_names, "mean", "sd", "lower", "upper"]
        )
    labels, which = np.array(model.target.labels, object), np.argmax(mean, axis=1)
    rows, binary = np.arange(len(mean)), mean.shape[1] == 2
    columns["predicted"] = pa.array(labels[which].tolist(), pa.string())
    columns["probability"] = mean[:, 1] if binary else mean[rows, which]
    if spread is not None:
        for name, part in zip(("sd", "lower", "upper"), spread, strict=True):
            columns[name] = part if part.ndim == 1 else part[rows, which]
    if not binary:
        columns |= {f"p_{text}": mean[:, k] for k, text in enumerate(model.target.labels)}
    return pa.table(columns)


def _scored(model: TableModel, table: pa.Table, place: Any, mean: np.ndarray) -> tuple[int, float]:
    """How many rows have a target, and the sum of their losses."""
    if model.target.name not in table.column_names:
        return 0, 0.0
    y, there = model.target.read(table, place, skip=True)
    if not there.any():
        return 0, 0.0
    n = int(there.sum())
    if isinstance(model.target, Classes):
        return n, n * metrics.log_loss(mean[there], y[there])
    return n, float(np.sum((mean[there] - y[there]) ** 2))


def _joined(a: dict[str, dict[str, int]], b: dict[str, dict[str, int]]) -> dict[str, Any]:
    found = {name: dict(levels) for name, levels in a.items()}
    for name, levels in b.items():
        mine = found.setdefault(name, {})
        for level, n in levels.items():
            mine[level] = mine.get(level, 0) + n
    return found
