"""The interface of readers, each of which reads the files of one format, a table at a time."""

import abc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kalvi.readers.errors import name_row
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.text_blocks import line_blocks

Tables = Iterator[tuple[int, pa.Table]]
"""Tables, each with the number of rows before it."""
SAMPLE_BYTES = 2**26
"""The approximate size limit of a sample in bytes, however many rows were asked for."""


class Reader(abc.ABC):
    """Reads the files of one format."""

    @abc.abstractmethod
    def infer(self, inputs: Sequence[Any], options: ReadOptions) -> ColumnLayout:
        """Infer the columns of files that are read one after the other from their first rows."""

    @abc.abstractmethod
    def parsed(self, source: Any, layout: ColumnLayout, *, skip: int, last: bool) -> Tables:
        """Tables with the types of the file.

        A table that ends within the first `skip` rows may be left out. `last` says that a pipe is read for
        the last time.
        """

    @abc.abstractmethod
    def n_rows(self, source: Any) -> int | None:
        """The number of rows, if the file says it."""

    def tables(
        self, source: Any, layout: ColumnLayout, *, skip: int = 0, last: bool = False
    ) -> Tables:
        """Tables with the types of the layout."""
        for start, table in self.parsed(source, layout, skip=skip, last=last):
            if table.num_rows:
                where = lambda i, s=start: name_row(source.name, s + i + 1)  # noqa: E731
                yield start, layout.convert(table, where)
        source.check_unchanged()


class LineReader(Reader):
    """Reads text with a row on each line."""

    @abc.abstractmethod
    def parse(self, block: bytes, layout: ColumnLayout, name: str, start: int) -> pa.Table:
        """The table of a block of lines, which comes after `start` rows of the file `name`."""

    def parsed(self, source: Input, layout: ColumnLayout, *, skip: int, last: bool) -> Tables:
        start = 0
        for block in line_blocks(source, last=last):
            table = self.parse(block, layout, source.name, start)
            yield start, table
            start += table.num_rows

    def n_rows(self, source: Input) -> int | None:
        return None


def first_rows(tables: Iterable[pa.Table], rows: int, schema: pa.Schema) -> pa.Table:
    """The first rows of some tables, fewer than asked for if they take too much memory."""
    kept, count, size = [], 0, 0
    for table in tables:
        kept.append(table[: rows - count])
        count, size = count + kept[-1].num_rows, size + kept[-1].nbytes
        if count >= rows or size > SAMPLE_BYTES:
            break
    return pa.concat_tables(kept) if kept else schema.empty_table()
