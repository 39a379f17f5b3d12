"""Conversion of rows to predict, given in Python, to an Arrow table.

A frame is a table of pandas, polars or Arrow, a dict of columns, a list of dicts, or the path of a file. It
is read as `kalvi predict` reads files. An entry that does not fit its column is refused, and the error says
where it is. An absent column is refused too, unless the model imputes missing values; then there is a
warning, as there is for levels that the model has not seen.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kalvi.estimators.input_checks import refuse_lazy
from kalvi.readers.errors import BadData


def data_of(frame: Any) -> tuple[str, ...] | pa.Table:
    """The file that a frame names, or the frame as an Arrow table."""
    if isinstance(frame, str | os.PathLike):
        return (os.fspath(frame),)
    return table_of(frame)


def table_of(frame: Any) -> pa.Table:
    """A frame as an Arrow table."""
    refuse_lazy(frame=frame)
    try:
        table = _converted(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadData(f"the table: has columns that cannot be read ({_short(error)}).") from error
    if table is None:
        raise TypeError(
            "rows to predict are a pandas, polars or Arrow table, a dict of columns, a list of dicts, or "
            f"the path of a file; got {type(frame).__name__}."
        )
    if not table.num_rows:
        raise ValueError("the table has no rows to predict.")
    return table


def _converted(frame: Any) -> pa.Table | None:
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return pa.table({str(name): _column(name, column) for name, column in frame.items()})
    if isinstance(frame, Sequence) and all(isinstance(row, Mapping) for row in frame):
        names = list(dict.fromkeys(str(name) for row in frame for name in row))
        return pa.table({name: [row.get(name) for row in frame] for name in names})
    kind = type(frame).__module__.partition(".")[0]
    if kind == "pandas" and type(frame).__name__ == "DataFrame":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "polars" and type(frame).__name__ == "DataFrame":
        return frame.to_arrow()  # pyright: ignore[reportAttributeAccessIssue]
    return None


def _column(name: Any, column: Any) -> Any:
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise TypeError(
            f"a dict of columns holds a list of values for each; '{name}' is {column!r}. "
            "Give one row as a list of one dict."
        )
    return column


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
