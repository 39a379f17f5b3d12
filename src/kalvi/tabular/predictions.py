"""Predictions as tables: how they are put together and written, and what was unknown in the rows."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kalvi.readers.errors import counted
from kalvi.readers.source import Source

PIECE = 4096
"""The number of rows that are predicted at once."""
LISTED = 5
"""The most new levels of a column that are named."""

Tell = Callable[[int, float | None], None]
"""Called with the number of rows predicted so far, and the share of the bytes read."""
UnseenLevels = dict[str, dict[str, int]]
"""For each column, the levels that the model has not seen and the number of rows with each."""


def _tell_nobody(rows: int, fraction: float | None) -> None:
    """A `Tell` that does nothing."""


class PredictOptions(NamedTuple):
    """How rows are read and predicted."""

    format: str | None = None  # of files that are not recognised
    types: dict[str, str] = {}  # noqa: RUF012 (never changed); notations other than the model's
    keep: tuple[str, ...] = ()  # columns to write before the predictions
    level: float = 0.95  # of intervals
    tell: Tell = _tell_nobody


DEFAULTS = PredictOptions()


class PredictionOutcome(NamedTuple):
    """The number of rows predicted, what was unknown in them, and how good the predictions are."""

    rows: int
    ignored: tuple[str, ...]  # columns that the model does not know
    unseen: UnseenLevels
    labelled: int  # rows that could be scored
    score: float | None  # the mean over these
    measure: str  # the name of the score: "log_loss", "mean_squared_error" or "mean_log_density"
    absent: tuple[str, ...] = ()  # columns that the data lack, imputed in every row

    def as_json(self) -> dict[str, Any]:
        """The outcome as plain JSON."""
        return {
            "rows": self.rows,
            "ignored_columns": list(self.ignored),
            "imputed_columns": list(self.absent),
            "unseen_levels": self.unseen,
            "labelled": self.labelled,
            self.measure: self.score,
        }

    def as_lines(self) -> list[str]:
        """The outcome as lines of text."""
        said = [f"predicted {counted(self.rows, 'row')}"]
        if self.score is not None:
            name = self.measure.replace("_", " ")
            scored = (
                "" if name == "mean log density" else f" on {self.labelled:,} rows with a target"
            )
            said.append(f"{name} {self.score:.6f}{scored}")
        if self.ignored:
            said.append(f"columns the model does not know were ignored: {', '.join(self.ignored)}")
        return said + self.surprises()

    def surprises(self) -> list[str]:
        """Lines about absent columns and unseen levels, which may make predictions worse."""
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


class PredictedPiece(NamedTuple):
    """Predictions of some rows as a table, and the outcome of all rows so far."""

    table: pa.Table
    outcome: PredictionOutcome


class RowPredictions(NamedTuple):
    """Predictions of some rows, levels that are new, the number of rows scored and their total score."""

    table: pa.Table
    unseen: UnseenLevels
    labelled: int
    total: float
    measure: str


def write_predictions(
    pieces: Iterator[PredictedPiece], file: Any, suffix: str
) -> PredictionOutcome:
    """Write the tables as CSV, Parquet or JSON lines, and return the outcome of all rows."""
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


def check_kept(source: Source, keep: tuple[str, ...]) -> None:
    """Refuse columns to carry over that the data lack, or that cannot be written beside predictions."""
    for name in keep:
        if name not in source.schema.names:
            raise ValueError(f"--keep: the data have no column '{name}'.")
    for name in keep:
        if pa.types.is_nested(source.schema.field(name).type):
            raise ValueError(f"--keep: column '{name}' holds lists, which cannot be carried over.")


def join_columns(kept: pa.Table, found: pa.Table) -> pa.Table:
    """One table with the columns that are carried over, then the predictions."""
    if both := set(kept.column_names) & set(found.column_names):
        raise ValueError(
            f"--keep: the predictions have a column '{both.pop()}' of their own; rename it."
        )
    columns = dict(zip(kept.column_names, kept.columns, strict=True))
    return pa.table(columns | dict(zip(found.column_names, found.columns, strict=True)))


def add_counts(a: UnseenLevels, b: UnseenLevels) -> UnseenLevels:
    """The sums of the counts of new levels in two parts of the data."""
    found = {name: dict(levels) for name, levels in a.items()}
    for name, levels in b.items():
        mine = found.setdefault(name, {})
        for level, n in levels.items():
            mine[level] = mine.get(level, 0) + n
    return found
