"""CSV and similar formats, read in blocks of whole rows.

pyarrow parses a whole block at once. If that fails, the bad row is found by bisection, so that errors name
the exact row, at no cost if there is none. A quoted field may contain line ends. Blank lines are ignored.
"""

import csv
import io
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv as pacsv

from kalvi.readers.column_types import TEXT, check_names
from kalvi.readers.errors import FAILURES, BadData, counted, first_failure, name_row, shorten
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.notation import FALSE, SPELLINGS, TRUE
from kalvi.readers.quotes import Lexer, has_leading_zeros
from kalvi.readers.reader import Reader, Tables, first_rows
from kalvi.readers.text_blocks import Blocks, check_text, in_arrows_memory

MOST_COLUMNS = 100_000
"""A header with more names is refused."""
LONGEST_HEADER = 2**20


class Delimited(Reader):
    """Rows of delimited fields under a header; the delimiter is found in the header unless it is given."""

    def __init__(self, delimiter: str | None = None):
        self._delimiter = delimiter

    def infer(self, inputs: Sequence[Input], options: ReadOptions) -> ColumnLayout:
        names = [n for n in _Body(inputs[0], self._delimiter).names if n not in options.drop]
        layout = ColumnLayout.of_text(names, options.drop, inputs[0].name)
        every = (
            table
            for source in inputs
            for _, table in self.parsed(source, layout, skip=0, last=False)
        )
        sample = first_rows(every, options.rows, layout.schema)
        if not sample.num_rows:
            raise BadData(f"{inputs[0].name}: has a header but no rows.")
        text = {name: sample.column(name) for name in names}
        return infer_layout(layout.schema, text, options, inputs[0].name)

    def parsed(self, source: Input, layout: ColumnLayout, *, skip: int, last: bool) -> Tables:
        return _Body(source, self._delimiter, last=last).tables(layout)

    def n_rows(self, source: Input) -> int | None:
        return None


class _Options(NamedTuple):
    """How pyarrow reads a block: the names in the header, and the types of the columns to read."""

    names: list[str]
    read: dict[str, pa.DataType]
    delimiter: str
    whole: set[str]  # columns of whole numbers so far, where labels with leading zeros may follow

    def parse(self, block: bytes | pa.Buffer) -> pa.Table:
        """The table of a block without a header; raises an exception if a row does not fit."""
        return pacsv.read_csv(
            in_arrows_memory(block),
            pacsv.ReadOptions(column_names=self.names, block_size=len(block) + 1),
            pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            pacsv.ConvertOptions(
                check_utf8=False,  # `check_text` has done it
                column_types=self.read,
                include_columns=list(self.read),
                null_values=sorted(SPELLINGS),
                strings_can_be_null=False,  # a level may have such a name
                true_values=TRUE,
                false_values=FALSE,
            ),
        )


class _Body:
    """The rows under the header of one file."""

    def __init__(self, source: Input, delimiter: str | None, *, last: bool = False):
        self._source = source
        ending = b"\n" if b"\n" in source.head or b"\r" not in source.head else b"\r"
        line = source.head.lstrip(b"\r\n").split(ending, 1)[0]
        self._lexer = Lexer(delimiter or _delimiter(line), ending)
        self._blocks = Blocks(source, self._lexer.last_end, last=last)
        self._rest = iter(self._blocks)
        first = next(self._rest, b"").lstrip(b"\r\n")
        end = self._lexer.first_end(first[:LONGEST_HEADER])
        self._first, self.names = first[end:], self._header(first[:end])

    def _header(self, line: bytes) -> list[str]:
        where = f"{self._source.name}, header"
        check_text(line, lambda _: where)
        if not self._lexer.is_closed(line):
            raise BadData(f"{where}: a quote is opened and never closed.")
        if not line.strip():
            raise BadData(f"{self._source.name}: is empty.")
        if (
            len(line) == LONGEST_HEADER
            or line.count(self._lexer.delimiter.encode()) >= MOST_COLUMNS
        ):
            raise BadData(
                f"{where}: is longer than {MOST_COLUMNS:,} names or 1 MiB; is it a header?"
            )
        return check_names(self._fields(line), where)

    def _fields(self, row: bytes) -> list[str]:
        """The fields of one row as text."""
        text = io.StringIO(row.decode("utf-8", "replace").rstrip("\r\n"), newline="")
        csv.field_size_limit(max(len(row) + 1, csv.field_size_limit()))
        return next(csv.reader(text, delimiter=self._lexer.delimiter), [])

    def tables(self, layout: ColumnLayout) -> Tables:
        """Tables with the types of the layout, or text."""
        layout.check(self.names, self._source.name)
        whole = {name for name, column in layout.columns.items() if column.whole}
        options = _Options(self.names, layout.parse_types(), self._lexer.delimiter, whole)
        for block in chain([self._first] if self._first else [], self._rest):
            table = self._table(block, options)
            yield self._blocks.rows, table
            self._blocks.rows += table.num_rows

    def _table(self, block: bytes, options: _Options) -> pa.Table:
        def where(at: int) -> str:
            whole = self._lexer.ends(block[:at])
            return name_row(self._source.name, self._blocks.rows + max(len(whole), 1))

        check_text(block, where)
        if not self._blocks.whole and not self._lexer.is_closed(block):
            raise BadData(f"{where(len(block))}: a quote is opened and never closed.")
        if options.whole and has_leading_zeros(block, options.delimiter):
            options = options._replace(read=options.read | dict.fromkeys(options.whole, TEXT))
        for way in (options, options._replace(read=dict.fromkeys(options.read, TEXT))):
            with suppress(*FAILURES):  # the layout converts the text, and refuses bad entries
                return way.parse(block)
        raise self._refusal(block, way)

    def _refusal(self, block: bytes, options: _Options) -> BadData:
        """The error about the first row of a block that cannot be parsed."""
        ends = self._lexer.ends(block)
        bad = first_failure(len(ends), lambda n: options.parse(block[: ends[n - 1]]))
        fields = self._fields(block[ends[bad - 1] if bad else 0 : ends[bad]].lstrip(b"\r\n"))
        where = name_row(self._source.name, self._blocks.rows + bad + 1)
        if len(fields) != len(self.names):
            many, needed = counted(len(fields), "field"), len(self.names)
            return BadData(f"{where}: has {many} where the header has {needed:,}.")
        return BadData(f"{where}: cannot be read ({shorten(options.delimiter.join(fields))}).")


def _delimiter(header: bytes) -> str:
    """The delimiter: a comma if the header has one, otherwise a tab, a semicolon or a bar."""
    return next((mark for mark in ",\t;|" if mark.encode() in header), ",")
