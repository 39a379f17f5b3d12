"""Sources of rows: files that are read one after the other, in pieces of one size."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from kalvi.readers.columnar import TableInput, TableReader
from kalvi.readers.errors import BadData, name_row
from kalvi.readers.files import Data, expand
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions, refuse_invalid
from kalvi.readers.reader import Reader, first_rows
from kalvi.readers.recognition import reader_for


class Piece(NamedTuple):
    """Rows of a source: a table, the number of rows before it, and the file and row of each part."""

    table: pa.Table
    start: int
    parts: tuple[tuple[int, str, int], ...]

    def locate(self, i: int) -> str:
        """The name of the i-th row in messages, such as "flights.csv, row 123"."""
        offset, name, row = next(part for part in reversed(self.parts) if part[0] <= i)
        return name_row(name, row + i - offset + 1)


class Source:
    """The rows of one or more files with one schema."""

    def __init__(self, inputs: list[Any], reader: Reader, layout: ColumnLayout, sample_rows: int):
        self._inputs, self._reader, self._layout = inputs, reader, layout
        self._done, self._current = 0, inputs[0]
        self.name = inputs[0].name
        self.files = tuple(source.path for source in inputs)
        self.schema = layout.schema
        self.about = {name: column.reason for name, column in layout.columns.items()}
        self.n_rows = self._count()
        self.sample = self._sample(sample_rows)

    def pieces(self, size: int, *, skip: int = 0) -> Iterator[Piece]:
        """Pieces of exactly `size` rows, after the first `skip` rows; the last piece may be smaller."""
        if size < 1 or skip < 0:
            raise ValueError(
                f"a piece has 1 or more rows after 0 or more; got {size} after {skip}."
            )
        self._layout.forget_invalid()
        held, count, start = [], 0, skip
        for name, row, table in self._tables(skip, last=True):
            while count + table.num_rows >= size:
                take = size - count
                yield _piece([*held, (name, row, table[:take])], start)
                held, count, start, row, table = [], 0, start + size, row + take, table[take:]
            if table.num_rows:
                held.append((name, row, table))
                count += table.num_rows
        if held:
            yield _piece(held, start)

    def words(self, names: Collection[str]) -> dict[str, str]:
        """The notations of columns that are not written plainly, as `types` for reading other files."""
        columns = [self._layout.columns[name] for name in names if name in self._layout.columns]
        found = {c.field.name: c.notation.word for c in columns if c.notation is not None}
        return {name: word for name, word in found.items() if ":" in word}

    def notes(self) -> list[str]:
        """Notes for the user on the invalid entries that counted as missing."""
        return self._layout.notes()

    def fraction(self) -> float | None:
        """The share of the bytes that were read; None if the total is not known."""
        sizes = [source.size for source in self._inputs]
        position = self._current.position()
        if position is None or None in sizes:
            return None
        return min(1.0, (sum(sizes[: self._done]) + position) / max(sum(sizes), 1))  # type: ignore[arg-type]

    def fingerprint(self) -> list[dict[str, Any]]:
        """The properties that identify these files: the path, the size and digests of each."""
        return [source.fingerprint() for source in self._inputs]

    def grown_from(self, old: dict[str, Any]) -> str | None:
        """The name of the file that has grown since it had the fingerprint `old`, if there is one."""
        return next((s.name for s in self._inputs if s.has_grown_from(old)), None)

    def close(self) -> None:
        """Close the files."""
        for source in self._inputs:
            source.close_for_good()

    def _count(self) -> int | None:
        counts = [self._reader.n_rows(source) for source in self._inputs]
        return None if None in counts else sum(count for count in counts if count is not None)

    def _sample(self, rows: int) -> pa.Table:
        tables = (table for _, _, table in self._tables(0, last=False))
        sample = first_rows(tables, rows, self.schema)
        if not sample.num_rows:
            raise BadData(f"{self._inputs[0].name}: has no rows.")
        self._done = 0
        return sample

    def _tables(self, skip: int, *, last: bool) -> Iterator[tuple[str, int, pa.Table]]:
        """The tables of all files after `skip` rows, each with the file's name and the rows before it."""
        for i, source in enumerate(self._inputs):
            self._done, self._current = i, source
            size = self._reader.n_rows(source) if skip else None
            if size is not None and size <= skip:
                skip -= size
                continue
            end = 0
            for start, table in self._reader.tables(source, self._layout, skip=skip, last=last):
                end = start + table.num_rows
                if end > skip:
                    cut = max(skip - start, 0)
                    yield source.name, start + cut, table[cut:]
            skip = max(skip - end, 0)
            source.close()
        if skip:
            raise BadData(
                f"{self._inputs[-1].name}: ends {skip} rows before the row to continue from."
            )
        self._done = len(self._inputs)


def _piece(held: list[tuple[str, int, pa.Table]], start: int) -> Piece:
    parts, offset = [], 0
    for name, row, table in held:
        parts.append((offset, name, row))
        offset += table.num_rows
    return Piece(pa.concat_tables([table for _, _, table in held]), start, tuple(parts))


def open_data(
    data: Data | pa.Table,
    *,
    format: str | None = None,
    types: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    sample_rows: int = 10_000,
    strict: bool = True,
    on_invalid: Callable[[str], str] = refuse_invalid,
    advice: str | None = None,
) -> Source:
    """Open a file, a directory, a pattern, several of these, "-" for standard input, or a table.

    `format` is one of `formats.FORMATS`; by default a file is recognised by its first bytes and its name.
    The types of columns are inferred from the first `sample_rows` rows unless `types` has a word for them
    (`readers.notation`); with `strict`, the columns named there must exist. The columns in `drop` are not
    read. `on_invalid(name)` says what becomes of entries that do not fit the type of a column: "refuse",
    "missing", or "keep" the column as text. `advice` is what a user can do about those that are refused.
    """
    if sample_rows < 1:
        raise ValueError(f"a sample has at least one row; got sample_rows={sample_rows}.")
    inputs: list[Any] = []
    try:
        if isinstance(data, pa.Table):
            inputs, reader = [TableInput(data)], TableReader()
        else:
            inputs.extend(Input(path) for path in expand(data))
            reader = reader_for(inputs, format)
        options = ReadOptions(types or {}, frozenset(drop), sample_rows, strict, on_invalid)
        layout = reader.infer(
            inputs, options if advice is None else options._replace(advice=advice)
        )
        if not layout.schema.names:
            raise BadData(f"{inputs[0].name}: has no columns.")
        return Source(inputs, reader, layout, sample_rows)
    except BaseException:
        for source in inputs:
            source.close_for_good()
        raise
