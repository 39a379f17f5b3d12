"""Rows of a table as numbers, with their targets and weights."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from kalvi.columns.encoder import Encoder
from kalvi.columns.targets import numbers
from kalvi.readers.files import BadData, RowLocator


class Rows(NamedTuple):
    """A piece of the stream as numbers, and the encoder after it."""

    table: pa.Table
    x: Any
    y: np.ndarray
    weight: np.ndarray
    encoder: Encoder
    unseen: dict[str, dict[str, int]]
    time: np.ndarray | None = None

    def part(self, first: int, last: int) -> "Rows":
        """The rows from `first` up to `last`."""
        table = self.table[first:last]
        x, y, weight = (a[first:last] for a in (self.x, self.y, self.weight))
        time = None if self.time is None else self.time[first:last]
        return self._replace(table=table, x=x, y=y, weight=weight, time=time)


def joined(pieces: list[Rows], width: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """x, y and weights of all rows with a weight above 0; `pieces` is emptied to free memory."""
    y = np.concatenate([piece.y for piece in pieces])
    weight = np.concatenate([piece.weight for piece in pieces])
    if any(sp.issparse(piece.x) for piece in pieces):
        x: Any = sp.csr_array(sp.vstack([_csr(p.x, width) for p in pieces], format="csr"))
    else:
        x = np.zeros((len(y), width))
        for piece, end in zip(pieces, np.cumsum([len(p.y) for p in pieces]), strict=True):
            x[end - len(piece.y) : end, : piece.x.shape[1]] = piece.x
    pieces.clear()  # all rows are in memory twice by now
    some = weight > 0
    return (x, y, weight) if some.all() else (x[some], y[some], weight[some])


def dense(x: Any) -> np.ndarray:
    """Rows as a dense array."""
    return x if isinstance(x, np.ndarray) else x.toarray()


def check_columns(table: pa.Table, locate: RowLocator, names: tuple[str, ...]) -> None:
    """Refuse a table that lacks one of these columns."""
    for name in names:
        if name not in table.column_names:
            raise BadData(f"{locate(0)}: there is no column '{name}', which the model needs.")


def weights(table: pa.Table, locate: RowLocator, name: str | None) -> np.ndarray:
    """The weight of each row: its entry in the column `name`, or 1 without one."""
    if name is None:
        return np.ones(table.num_rows)
    if name not in table.column_names or not pa.types.is_floating(table[name].type):
        raise BadData(f"{locate(0)}: the weight '{name}' must be a column of numbers.")
    weight = numbers(table[name])
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise BadData(
            f"{locate(row)}: the weight '{name}' is {weight[row]:g}; weights must be 0 or more."
        )
    return weight


def times(table: pa.Table, locate: RowLocator, name: str | None) -> np.ndarray | None:
    """The time of each row, in days where the column `name` holds dates."""
    if name is None:
        return None
    if name not in table.column_names:
        raise BadData(f"{locate(0)}: there is no column '{name}', which has the times of the rows.")
    column = table[name]
    if not (pa.types.is_floating(column.type) or pa.types.is_timestamp(column.type)):
        raise BadData(f"{locate(0)}: the time '{name}' must be a column of numbers or of dates.")
    found = column.to_numpy()
    missing = ~np.isfinite(found) if pa.types.is_floating(column.type) else np.isnat(found)
    if missing.any():
        row = int(np.argmax(missing))
        raise BadData(f"{locate(row)}: the time '{name}' is missing; every row needs one.")
    return found


def _csr(x: Any, width: int) -> sp.csr_array:
    rows: Any = sp.csr_array(x)
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))
