"""JSON lines: each line is an object, whose keys are the columns."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as pajson

from kalvi.readers.column_types import FLAG, NUMBER, SPARSE, TEXT, check_names, vector
from kalvi.readers.errors import FAILURES, BadData, name_row, shorten
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions, wrong_type
from kalvi.readers.reader import SAMPLE_BYTES, LineReader
from kalvi.readers.text_blocks import in_arrows_memory, line_blocks, lines

LIST = pa.list_(pa.float64())
AFTER = re.compile(rb"\}[ \t\r]*n")
"""Matches what may be a null after an object: pyarrow's parser crashes at a row that is null."""
SIMPLE = {NUMBER, FLAG, TEXT}
WORDS = {NUMBER: "a number", FLAG: "true or false", TEXT: "text", LIST: "a list", SPARSE: "pairs"}


class JsonLines(LineReader):
    """Reads one object on each line."""

    def infer(self, inputs: Sequence[Input], options: ReadOptions) -> ColumnLayout:
        columns: dict[str, _InferredColumn] = {}
        count = _add_first_rows(inputs, options, columns)
        first = inputs[0].name
        if not count:
            raise BadData(f"{first}: has no rows.")
        check_names(columns, first)
        declared = pa.schema([(name, column.kind()) for name, column in columns.items()])
        text = {name: column.text() for name, column in columns.items() if column.type == TEXT}
        layout = infer_layout(declared, text, options, first)
        typed = [
            column._replace(parse_as=columns[name].type or NUMBER)
            for name, column in layout.columns.items()
        ]
        return ColumnLayout(typed, options.drop, first)

    def parse(self, block: bytes, layout: ColumnLayout, name: str, start: int) -> pa.Table:
        return _parse_located(block, layout, name, start)


class _InferredColumn:
    """The type of a column, by its entries in the first rows; text if they have several simple types."""

    def __init__(self):
        self.type: pa.DataType | None = None
        self._simple: list[Any] = []
        self._width = 0

    def add(self, value: Any, where: str, name: str) -> None:
        """Take a value into account; refuse it if its type does not suit those before."""
        if value == []:
            return  # it may be a list of numbers or of pairs
        found = _type_of(value)
        if found is None:
            raise BadData(
                f"{where}: column {shorten(name)} holds {shorten(json.dumps(value))}; nested values other "
                f"than lists of numbers cannot be used; leave the column out (--drop {name})."
            )
        if self.type not in (None, found):
            if not {self.type, found} <= SIMPLE:
                raise BadData(
                    f"{where}: column {shorten(name)} is {shorten(json.dumps(value))} after rows in which "
                    f"it is {WORDS[self.type]}; give it one type."
                )
            found = TEXT
        self.type, self._width = found, len(value) if found == LIST else 0
        if found in SIMPLE:
            self._simple.append(value)

    def text(self) -> pa.ChunkedArray:
        """The entries as text."""
        return pa.chunked_array([pa.array(map(_as_text, self._simple), TEXT)])

    def kind(self) -> pa.DataType:
        """The type of the column; null if it had no values."""
        if self.type is None:
            return pa.null()
        return vector(self._width) if self.type == LIST else self.type


def _as_text(value: Any) -> str | None:
    """A simple value as text."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _type_of(value: Any) -> pa.DataType | None:
    """The type of a JSON value; None if columns cannot have it."""
    simple = {bool: FLAG, int: NUMBER, float: NUMBER, str: TEXT}.get(type(value))
    if simple is not None or not isinstance(value, list):
        return simple
    if all(type(entry) in (int, float) for entry in value):
        return LIST
    pairs = all(isinstance(entry, dict) and entry.keys() == {"index", "value"} for entry in value)
    return SPARSE if pairs else None


def _add_first_rows(
    inputs: Sequence[Input], options: ReadOptions, columns: dict[str, _InferredColumn]
) -> int:
    """Add the first rows to the columns, and return the number of these rows."""
    count = size = 0
    for source in inputs:
        row = 0
        for block in line_blocks(source, last=False):
            for line in lines(block):
                row, count, size = row + 1, count + 1, size + len(line)
                where = name_row(source.name, row)
                for name, value in _object(line, where).items():
                    if name not in options.drop:
                        column = columns.setdefault(name, _InferredColumn())
                        if value is not None:
                            column.add(value, where, name)
                if count >= options.rows or size > SAMPLE_BYTES:
                    return count
    return count


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of some pairs; raises KeyError if a key comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise KeyError("twice")
    return found


def _object(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line."""
    try:
        value = json.loads(line, object_pairs_hook=_unique_keys)
    except KeyError:
        raise BadData(f"{where}: names a column twice ({shorten(line)}).") from None
    except FAILURES:
        raise BadData(f"{where}: is not JSON, one object a line ({shorten(line)}).") from None
    if not isinstance(value, dict):
        raise BadData(f"{where}: is not a JSON object, one a line ({shorten(line)}).")
    return value


def _parse(block: bytes, layout: ColumnLayout) -> pa.Table:
    """The table of a block of lines; raises an exception if a line does not fit."""
    every = lines(block)
    if not all(line.lstrip().startswith(b"{") for line in every):
        raise ValueError("not an object")
    for line in every if AFTER.search(block) else ():
        if AFTER.search(line):
            json.loads(line)
    table = pajson.read_json(
        in_arrows_memory(block),
        pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pajson.ParseOptions(
            explicit_schema=pa.schema(layout.parse_types().items()),
            unexpected_field_behavior="ignore" if layout.drop else "error",
        ),
    )
    if table.num_rows != len(every):
        raise ValueError("not one object a line")
    return table


def _parse_located(block: bytes, layout: ColumnLayout, name: str, start: int) -> pa.Table:
    """The table of a block; if pyarrow refuses it, it is read line by line, with simple values as text."""
    try:
        return _parse(block, layout)
    except FAILURES:
        rows = [
            _row(line, layout, name_row(name, start + i + 1)) for i, line in enumerate(lines(block))
        ]
        kinds = {n: TEXT if kind in SIMPLE else kind for n, kind in layout.parse_types().items()}
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds.items()))


def _row(line: bytes, layout: ColumnLayout, where: str) -> dict[str, Any]:
    """The values of a line by column, simple ones as text; a value of the wrong type is refused."""
    row, values = _object(line, where), {}
    for key, value in row.items():
        if key in layout.drop:
            continue
        if key not in layout.columns:
            raise BadData(
                f"{where}: has a column {shorten(key)}, which the first rows do not have."
            )
        kind = layout.columns[key].parse_as
        if value is None or value == []:
            right = True
        elif kind in SIMPLE:
            right = isinstance(value, bool | int | float | str)
        else:
            right = _type_of(value) == kind
        if not right:
            raise wrong_type(where, layout.schema.field(key), json.dumps(value))
        values[key] = _as_text(value) if kind in SIMPLE else value
    return values
