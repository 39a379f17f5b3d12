"""The columns of a source: how the user wants them read, their types, and conversion of their entries."""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.column_types import (
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    cast,
    decoded,
    describe_type,
    is_text,
)
from kalvi.readers.errors import FAILURES, BadData, first_failure, list_names, shorten
from kalvi.readers.files import RowLocator
from kalvi.readers.notation import Notation, parse

QUOTED = 5
"""The most invalid entries of a column that are quoted."""


def refuse_invalid(name: str) -> str:
    """The default of `ReadOptions.on_invalid`: every invalid entry is refused."""
    return "refuse"


class ReadOptions(NamedTuple):
    """How the user wants columns to be read.

    `types` has a word of `notation` for some columns, `drop` the columns to leave out, and `rows` the size
    of the sample. `on_invalid(name)` says what becomes of an entry that does not fit the type of its
    column: "refuse" it, count it as "missing" or, for a column that is not used, "keep" the column as text
    if the first rows have such an entry.
    """

    types: Mapping[str, str]
    drop: frozenset[str]
    rows: int
    strict: bool = True  # whether all columns of `types` must be there
    on_invalid: Callable[[str], str] = refuse_invalid
    advice: str = "or read the column otherwise (--as NAME=category, --drop NAME)"


class ColumnReason(NamedTuple):
    """Why a column was given its type, and notes for the user."""

    why: str
    notes: tuple[str, ...] = ()


class Column(NamedTuple):
    """How a column is read: a parser of text reads it as `parse_as`, then its entries are converted."""

    field: pa.Field
    parse_as: pa.DataType = TEXT
    notation: Notation | None = None  # of entries that are text; None for lists
    reason: ColumnReason = ColumnReason("")
    lenient: bool = False  # whether invalid entries count as missing
    advice: str = ""  # what a user can do about an invalid entry
    whole: bool = False  # whether its first entries were whole numbers without leading zeros

    @classmethod
    def written(cls, name: str, notation: Notation, reason: ColumnReason) -> "Column":
        """A column with the type of its notation; the metadata of the field mark free text."""
        free = {"kind": "text"} if notation.kind == "text" else None
        field = pa.field(name, notation.type, metadata=free)
        return cls(field, notation=notation, reason=reason)


class InvalidEntries:
    """The number of invalid entries of a column, and a few of them."""

    def __init__(self):
        self.count, self.examples, self.more = 0, [], False

    def add(self, entries: pa.ChunkedArray) -> None:
        """Count further entries."""
        new = [entry for entry in entries.unique().to_pylist() if entry not in self.examples]
        room = QUOTED - len(self.examples)
        self.more = self.more or len(new) > room
        self.examples += new[:room]
        self.count += len(entries)


class ColumnLayout:
    """The columns of a source by name, and the conversion of a file's tables to their types."""

    def __init__(self, columns: Iterable[Column], drop: frozenset[str], first: str):
        self.columns = {column.field.name: column for column in columns}
        self.schema = pa.schema([column.field for column in self.columns.values()])
        self.drop = drop
        self._first = first  # the name of the file that the layout was inferred from
        self._invalid: dict[str, InvalidEntries] = {}

    @classmethod
    def of_text(cls, names: list[str], drop: frozenset[str], first: str) -> "ColumnLayout":
        """A layout that reads all columns as text."""
        return cls((Column(pa.field(name, TEXT)) for name in names), drop, first)

    def parse_types(self) -> dict[str, pa.DataType]:
        """The type as which a parser of text reads each column."""
        return {name: column.parse_as for name, column in self.columns.items()}

    def check(self, names: list[str], where: str) -> None:
        """Refuse a file that does not have the same columns; their order does not matter."""
        here, known = set(names), {*self.columns, *self.drop}
        if absent := [name for name in self.columns if name not in here]:
            raise BadData(f"{where}: has no column {list_names(absent)}, which {self._first} has.")
        if extra := [name for name in names if name not in known]:
            raise BadData(
                f"{where}: has a column {list_names(extra)}, which {self._first} does not have."
            )

    def convert(self, table: pa.Table, locate: RowLocator) -> pa.Table:
        """Convert a table to the columns and types of the schema; `locate(i)` names its i-th row."""
        arrays = []
        for name, column in self.columns.items():
            entries = decoded(table.column(name))
            if is_text(entries.type) and column.notation is not None:
                arrays.append(self._parse(column, column.notation, entries, locate))
            else:
                arrays.append(_cast(column.field, entries, locate))
        return pa.table(arrays, schema=self.schema)

    def _parse(
        self, column: Column, notation: Notation, text: pa.ChunkedArray, locate: RowLocator
    ) -> pa.ChunkedArray:
        """The values of a column of text; an invalid entry is refused, or counted and missing."""
        name = column.field.name
        if column.whole:
            _check_zeros(name, text, locate)
        values, invalid = parse(text, notation)
        if not pc.any(invalid).as_py():
            return values
        if column.lenient:
            self._invalid.setdefault(name, InvalidEntries()).add(text.filter(invalid))
            return values
        row = pc.index(invalid, True).as_py()
        kind, detail = describe_type(notation.type), notation.word.partition(":")[2]
        raise BadData(
            f"{locate(row)}: column {shorten(name)} is read as {kind}{f' ({detail})' if detail else ''}, "
            f"but the entry is {shorten(text[row].as_py())}; correct it"
            f"{', ' + column.advice if column.advice else ''}."
        )

    def forget_invalid(self) -> None:
        """Start counting invalid entries again."""
        self._invalid.clear()

    def notes(self) -> list[str]:
        """Notes for the user on the invalid entries that counted as missing."""
        return [
            f"column {shorten(name)}: entries that are not "
            f"{describe_type(self.columns[name].field.type)} count as missing, "
            f"{seen.count:,} of those read: {', '.join(map(shorten, seen.examples))}"
            + (" ..." if seen.more else "")
            for name, seen in self._invalid.items()
        ]


def _check_zeros(name: str, column: pa.ChunkedArray, locate: RowLocator) -> None:
    """Refuse a label with leading zeros in a column that looked like whole numbers."""
    zeros = pc.match_substring_regex(column, r"^\s*0\d+\s*$")
    if pc.any(zeros).as_py():
        row = pc.index(zeros, True).as_py()
        raise BadData(
            f"{locate(row)}: column {shorten(name)} is read as a number, but "
            f"{shorten(column[row].as_py())} begins with a zero as labels do; say --as {name}=category "
            f"or --as {name}=number."
        )


def _cast(field: pa.Field, column: pa.ChunkedArray, locate: RowLocator) -> pa.ChunkedArray:
    """Convert a column that is not text."""
    try:
        return cast(column, field.type)
    except FAILURES as error:
        row = first_failure(len(column), lambda n: cast(column[:n], field.type))
        raise wrong_type(locate(row), field, _quotable(column[row])) from error


def wrong_type(where: str, field: pa.Field, value: object) -> BadData:
    """The error about a value that does not fit the type of its column."""
    simple = field.type in (NUMBER, FLAG, TIME)
    remedy = f" (--as {field.name}=category reads the column as text)" if simple else ""
    return BadData(
        f"{where}: column {shorten(field.name)} is read as {describe_type(field.type)}, "
        f"but the entry is {shorten(value)}{remedy}."
    )


def _quotable(entry: pa.Scalar) -> object:
    """An entry as a value that can be quoted in a message."""
    try:
        return entry.as_py()
    except FAILURES:
        return f"{entry.type} out of range"
