"""JSON lines: an object a line, its keys the columns."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as pajson

from kalvi.readers.base import SAMPLE_BYTES, Ask, Format, Layout, arrows_own, line_blocks, lines
from kalvi.readers.delimited import guess
from kalvi.readers.errors import FAILURES, BadData, first_failure, place, shorten
from kalvi.readers.inputs import Input
from kalvi.readers.kinds import (
    FLAG,
    NUMBER,
    SPARSE,
    TEXT,
    TIME,
    ZONED,
    check_names,
    conform,
    kind_of,
    misfit,
    override,
    vector,
)

LIST = pa.list_(pa.float64())
AFTER = re.compile(rb"\}[ \t\r]*n")
"""Perhaps a null after an object: pyarrow's parser does not survive a row that is null."""
WORDS = {NUMBER: "a number", FLAG: "true or false", TEXT: "text", LIST: "a list", SPARSE: "pairs"}


class JsonLines(Format):
    """One object a line."""

    def infer(self, inputs: Sequence[Input], ask: Ask) -> Layout:
        columns: dict[str, _Column] = {}
        count = _look(inputs, ask, columns)
        first = inputs[0].name
        if not count:
            raise BadData(f"{first}: has no rows.")
        check_names(columns, first)
        read = {name: column.read() for name, column in columns.items()}
        kinds = [(name, column.kind()) for name, column in columns.items()]
        schema = override(pa.schema(kinds), ask, first)
        return Layout(schema, read, ask.drop, first)

    def tables(
        self, source: Input, layout: Layout, *, skip: int = 0, last: bool = False
    ) -> Iterator[tuple[int, pa.Table]]:
        start = 0
        for block in line_blocks(source, last=last):
            table = _parse_located(block, layout, source.name, start)
            yield (
                start,
                conform(table, layout.schema, lambda i, s=start: place(source.name, s + i + 1)),
            )
            start += table.num_rows


class _Column:
    """What the entries of a column were in the first rows."""

    def __init__(self):
        self._type: pa.DataType | None = None
        self._text: list[str] = []
        self._width = 0

    def add(self, value: Any, where: str, name: str) -> None:
        """Take a value into account; refused where it is unlike those before it."""
        if value == []:
            return  # a list of numbers, or of pairs
        found = _type_of(value)
        if found is None:
            raise BadData(
                f"{where}: column {shorten(name)} holds {shorten(json.dumps(value))}; nested values other "
                f"than lists of numbers have no use here; leave the column out (--drop {name})."
            )
        if self._type not in (None, found):
            raise BadData(
                f"{where}: column {shorten(name)} is {shorten(json.dumps(value))} after rows in which it "
                f"is {WORDS[self._type]}; give it one type."
            )
        self._type, self._width = found, len(value) if found == LIST else 0
        if found == TEXT:
            self._text.append(value)

    def read(self) -> pa.DataType:
        """The type that the parser is told."""
        if self._type == TEXT:
            return guess(pa.chunked_array([self._text]), (TIME, ZONED))
        return self._type or NUMBER

    def kind(self) -> pa.DataType:
        """The kind of the column."""
        read = self.read()
        return vector(self._width) if read == LIST else TIME if read == ZONED else read


def _type_of(value: Any) -> pa.DataType | None:
    """The type of one JSON value; None where it has none."""
    simple = {bool: FLAG, int: NUMBER, float: NUMBER, str: TEXT}.get(type(value))
    if simple is not None or not isinstance(value, list):
        return simple
    if all(type(entry) in (int, float) for entry in value):
        return LIST
    pairs = all(isinstance(entry, dict) and entry.keys() == {"index", "value"} for entry in value)
    return SPARSE if pairs else None


def _look(inputs: Sequence[Input], ask: Ask, columns: dict[str, _Column]) -> int:
    """Learn the columns from the first rows; their number."""
    count = size = 0
    for source in inputs:
        row = 0
        for block in line_blocks(source, last=False):
            for line in lines(block):
                row, count, size = row + 1, count + 1, size + len(line)
                where = place(source.name, row)
                for name, value in _object(line, where).items():
                    if name not in ask.drop:
                        column = columns.setdefault(name, _Column())
                        if value is not None:
                            column.add(value, where, name)
                if count >= ask.rows or size > SAMPLE_BYTES:
                    return count
    return count


def _object(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line."""
    try:
        value = json.loads(line)
    except FAILURES:
        raise BadData(f"{where}: is not JSON, one object a line ({shorten(line)}).") from None
    if not isinstance(value, dict):
        raise BadData(f"{where}: is not a JSON object, one a line ({shorten(line)}).")
    return value


def _parse(block: bytes, layout: Layout) -> pa.Table:
    """The table of a block of lines; an exception where one does not fit."""
    every = lines(block)
    if not all(line.lstrip().startswith(b"{") for line in every):
        raise ValueError("not an object")
    for line in every if AFTER.search(block) else ():
        if AFTER.search(line):
            json.loads(line)
    table = pajson.read_json(
        arrows_own(block),
        pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pajson.ParseOptions(
            explicit_schema=pa.schema(layout.read.items()),
            unexpected_field_behavior="ignore" if layout.drop else "error",
        ),
    )
    if table.num_rows != len(every):
        raise ValueError("not one object a line")
    return table


def _parse_located(block: bytes, layout: Layout, name: str, start: int) -> pa.Table:
    try:
        return _parse(block, layout)
    except FAILURES as error:
        every = lines(block)
        bad = first_failure(len(every), lambda n: _fits(b"\n".join(every[:n]), layout))
        raise _refusal(every[bad], layout, place(name, start + bad + 1)) from error


def _fits(block: bytes, layout: Layout) -> bool:
    try:
        _parse(block, layout)
    except FAILURES:
        return False
    return True


def _refusal(line: bytes, layout: Layout, where: str) -> BadData:
    """What is wrong with a line that the parser refuses."""
    try:
        row = _object(line, where)
    except BadData as error:
        return error
    for key, value in row.items():
        if key in layout.drop or value is None:
            continue
        if key not in layout.read:
            return BadData(f"{where}: has a column {shorten(key)}, which the first rows have not.")
        field = pa.field(key, layout.read[key])
        if not _fits(json.dumps({key: value}).encode(), layout):
            kind = kind_of(field.type) or field.type
            return misfit(where, field.with_type(kind), json.dumps(value))
    return BadData(f"{where}: cannot be read as JSON ({shorten(line)}).")
