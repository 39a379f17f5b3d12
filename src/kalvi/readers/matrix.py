"""Reading a matrix of zeros, ones and missing entries from a file; an entry takes one byte.

In the wide layout, a line is a row of the matrix: the first field may be the name of the row (text, a date,
or numbers that differ from each other and are not all 0 and 1), the others are its entries. In the long
layout, a line is one entry: its row, its column and its value. The rows and columns of a long list are
sorted by name if the names are numbers or dates; otherwise they stay in their order of appearance.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int8

from kalvi.readers.column_types import FLAG, NUMBER, SPARSE, TEXT, TIME
from kalvi.readers.errors import BadData, counted, shorten
from kalvi.readers.files import Data
from kalvi.readers.source import Piece, Source, open_data

MISSING = -1
"""The value of entries that were not observed."""
MOST = 2**33
"""The most entries of a matrix."""
ROWS = 2**13


class Matrix(NamedTuple):
    """Entries 0, 1 or −1 (missing); the names are text, numbers or dates, or None if the file has none."""

    entries: Int8[np.ndarray, "r c"]
    row_names: np.ndarray | None
    col_names: np.ndarray | None


def read_matrix(
    data: Data, *, layout: str = "wide", unstored: str | None = None, format: str | None = None
) -> Matrix:
    """Read the binary matrix in a file of any format.

    `layout` is "wide" or "long". `unstored` says what the entries are that a long list or a sparse matrix
    leaves out: "zero" or "missing". By default they are zero if the file has only ones, and missing in a
    list that also has zeros.
    """
    if layout not in ("wide", "long") or unstored not in (None, "zero", "missing"):
        raise ValueError(
            "layout is 'wide' or 'long', unstored 'zero', 'missing' or None; "
            f"got {layout!r} and {unstored!r}."
        )
    source = open_data(data, format=format, on_invalid=lambda name: "keep")
    try:
        if layout == "long":
            return _long(source, unstored)
        kinds = {field.type for field in source.schema}
        return _sparse(source, unstored) if SPARSE in kinds else _wide(source)
    finally:
        source.close()


def _wide(source: Source) -> Matrix:
    """A matrix with one row on each line."""
    first = source.schema.names[0] if _names_rows(source) else None
    columns = [name for name in source.schema.names if name != first]
    if not columns:
        raise BadData(f"{source.name}: has names of rows but no entries.")
    names, blocks = [], []
    for piece in source.pieces(ROWS):
        blocks.append(np.concatenate([_entries(piece, column) for column in columns], axis=1))
        if first is not None:
            names.append(_names(piece, first))
    widths = [blocks[0].shape[1]] if len(columns) == 1 else []
    unnamed = widths and widths[0] > 1  # one column of vectors
    return Matrix(
        np.concatenate(blocks),
        None if first is None else np.concatenate(names),
        None if unnamed else np.array(columns),
    )


def _names_rows(source: Source) -> bool:
    """Whether the first column names the rows."""
    kind, values = source.schema.types[0], source.sample.column(0)
    if kind != NUMBER or len(source.schema) == 1:
        return kind in (TEXT, TIME)
    numbers = values.drop_null().unique()
    other = set(numbers[:3].to_pylist()) - {0.0, 1.0}
    return bool(other) and len(numbers) == len(values)


def _names(piece: Piece, column: str) -> np.ndarray:
    """The names in a column; a missing name is refused."""
    values = piece.table.column(column)
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise BadData(f"{piece.locate(row)}: has no name in column {shorten(column)}.")
    names = values.to_numpy()
    return names.astype(str) if values.type == TEXT else names


def _entries(piece: Piece, column: str) -> np.ndarray:
    """The entries in a column, as a matrix with one column, or with those of a vector."""
    values = piece.table.column(column).combine_chunks()
    if pa.types.is_fixed_size_list(values.type):
        if values.null_count:
            row = values.is_null().index(True).as_py()
            raise BadData(f"{piece.locate(row)}: has no entries.")
        flat = pc.list_flatten(values).to_numpy().reshape(len(values), -1)  # pyright: ignore
        return _binary(flat, np.isnan(flat), piece, column)
    if values.type not in (NUMBER, FLAG):
        row = values.is_valid().index(True).as_py()
        raise _refusal(piece.locate(row), column, values[row].as_py())
    missing = values.is_null().to_numpy(zero_copy_only=False)[:, None]
    numbers = values.cast(NUMBER).fill_null(0).to_numpy()[:, None]
    return _binary(numbers, missing, piece, column)


def _binary(numbers: np.ndarray, missing: np.ndarray, piece: Piece, column: str) -> np.ndarray:
    """The entries as 0, 1 or −1; a number other than 0 and 1 is refused."""
    bad = (numbers != 0) & (numbers != 1) & ~missing
    if bad.any():
        row, i = np.argwhere(bad)[0]
        raise _refusal(piece.locate(int(row)), column, f"{numbers[row, i]:g}")
    return np.where(missing, MISSING, numbers == 1).astype(np.int8)


def _refusal(where: str, column: str, value: object) -> BadData:
    what = f"column {shorten(column)} is {shorten(value)}"
    return BadData(f"{where}: {what}; an entry of the matrix is 0, 1 or missing.")


def _sparse(source: Source, unstored: str | None) -> Matrix:
    """A matrix with one sparse row on each line; other columns of the file are ignored."""
    field = next(field for field in source.schema if field.type == SPARSE)
    name, places, width, start = field.name, [], int((field.metadata or {}).get(b"width", 0)), 0
    for piece in source.pieces(ROWS):
        rows = piece.table.column(name).combine_chunks().fill_null([])
        lengths = pc.list_value_length(rows).to_numpy()  # pyright: ignore
        flat = rows.flatten()
        index, value = (flat.field(i).to_numpy() for i in (0, 1))
        row = np.repeat(np.arange(len(rows)), lengths)
        bad = np.flatnonzero((value != 0) & (value != 1))
        if len(bad):
            raise _refusal(piece.locate(int(row[bad[0]])), name, f"{value[bad[0]]:g}")
        places.append((row + start, index, value))
        width, start = max(width, int(index.max(initial=-1)) + 1), start + len(rows)
    row, col, value = (np.concatenate([part[i] for part in places]) for i in range(3))
    if unstored is None and (value == 0).any():
        raise BadData(
            f"{source.name}: stores zeros as well as ones; say whether what it does not store is zero "
            "or missing (--unstored)."
        )
    return Matrix(_filled(source, (start, width), row, col, value, unstored or "zero"), None, None)


def _filled(
    source: Source,
    shape: tuple[int, int],
    row: np.ndarray,
    col: np.ndarray,
    value: np.ndarray,
    unstored: str,
) -> np.ndarray:
    if shape[0] * shape[1] > MOST:
        raise BadData(
            f"{source.name}: has {shape[0]:,} × {shape[1]:,} entries; at most {MOST:,} fit."
        )
    entries = np.full(shape, MISSING if unstored == "missing" else 0, np.int8)
    entries[row, col] = value
    return entries


def _long(source: Source, unstored: str | None) -> Matrix:
    """A matrix with one entry on each line: row, column and value."""
    if len(source.schema) != 3:
        have = counted(len(source.schema), "column")
        raise BadData(f"{source.name}: a long list has a row, a column and a value; got {have}.")
    first, second, third = source.schema.names
    rows, cols, values, pieces = [], [], [], []
    for piece in source.pieces(2**16):
        pieces.append(
            piece._replace(table=source.schema.empty_table())
        )  # for errors about later rows
        rows.append(_encoded_names(piece, first))
        cols.append(_encoded_names(piece, second))
        values.append(_entries(piece, third)[:, 0])
    (row, row_names), (col, col_names) = _ordered_names(rows), _ordered_names(cols)
    value, shape = np.concatenate(values), (len(row_names), len(col_names))
    order = np.argsort(row * shape[1] + col, kind="stable")
    twice = (np.diff(row[order]) == 0) & (np.diff(col[order]) == 0)
    if twice.any():
        at = int(order[1:][twice].min())
        where = next(
            piece.locate(at - piece.start) for piece in reversed(pieces) if piece.start <= at
        )
        raise BadData(f"{where}: gives an entry that was given before.")
    how = unstored or ("missing" if (value == 0).any() else "zero")
    return Matrix(_filled(source, shape, row, col, value, how), row_names, col_names)


def _encoded_names(piece: Piece, column: str) -> pa.Array:
    """The names in a column, dictionary-encoded."""
    names = _names(piece, column)
    return pa.array(names + 0.0 if names.dtype.kind == "f" else names).dictionary_encode()  # no −0


def _ordered_names(parts: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """The position of each name among the distinct ones, and these: texts in order of appearance, numbers
    and dates sorted."""
    whole = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    codes = whole.indices.to_numpy(zero_copy_only=False).astype(int)
    names = whole.dictionary.to_numpy(zero_copy_only=False)
    if whole.type.value_type == TEXT:
        return codes, names.astype(str)
    order = np.argsort(names, kind="stable")
    return np.argsort(order)[codes], names[order]
