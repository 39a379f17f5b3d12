"""The columns of a source: what the user asked for, what they are, and their entries as values."""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping
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
    fits,
    is_text,
    type_in_words,
)
from kalvi.readers.errors import FAILURES, BadData, first_failure, listed, shorten
from kalvi.readers.notation import Notation, parse

NAMED = 5
"""So many entries that could not be read are quoted."""
Where = Callable[[int], str]


def refuse_strays(name: str) -> str:
    """The default of `ReadOptions.strays`: every stray entry is refused."""
    return "refuse"


class ReadOptions(NamedTuple):
    """How the user wants columns to be read.

    `types` has the words of `notation` by column, `drop` the columns to leave out, `rows` the size of the
    sample. `strays` says of a column what becomes of a stray entry, one that is not of the column's type:
    "refuse" it, count it as "missing", or "keep" the whole column as text if the first rows have such an
    entry, because the column is not used.
    """

    types: Mapping[str, str]
    drop: frozenset[str]
    rows: int
    strict: bool = True  # whether all columns of `types` must be there
    strays: Callable[[str], str] = refuse_strays
    advice: str = (
        "or read the column otherwise (--as NAME=category, --drop NAME)"  # where one is refused
    )


class ColumnReason(NamedTuple):
    """Why a column was taken to be of its type, and notes for people."""

    why: str
    notes: tuple[str, ...] = ()


class StrayEntries:
    """How many stray entries a column had, and a few of them."""

    def __init__(self):
        self.count, self.examples, self.more = 0, [], False

    def add(self, found: pa.ChunkedArray) -> None:
        """Count further entries."""
        new = [entry for entry in found.unique().to_pylist() if entry not in self.examples]
        room = NAMED - len(self.examples)
        self.more = self.more or len(new) > room
        self.examples += new[:room]
        self.count += len(found)


class ColumnLayout(NamedTuple):
    """The columns of a source: their types (`schema`), and how to get there from the text of files.

    A column is first parsed as `read` says, then converted by its notation. `first` is the name of the file
    that the layout was inferred from; `strays` collects the stray entries that counted as missing.
    """

    schema: pa.Schema
    read: dict[str, pa.DataType]
    drop: frozenset[str]
    first: str
    notations: dict[str, Notation]
    about: dict[str, ColumnReason]
    lenient: set[str]  # columns whose stray entries count as missing
    advice: dict[str, str]  # what a user can do about stray entries of other columns
    whole: set[str]  # columns of whole numbers without a leading zero, as far as was seen
    strays: dict[str, StrayEntries]

    @classmethod
    def of_text(cls, names: list[str], drop: frozenset[str], first: str) -> "ColumnLayout":
        """A layout that reads all columns as text."""
        schema, read = pa.schema([(name, TEXT) for name in names]), dict.fromkeys(names, TEXT)
        return cls(schema, read, drop, first, {}, {}, set(), {}, set(), {})

    def check(self, names: list[str], where: str) -> None:
        """Refuse a file that has not the same columns, in any order."""
        wanted, here = set(self.schema.names), set(names)
        if absent := [name for name in self.schema.names if name not in here]:
            raise BadData(f"{where}: has no column {listed(absent)}, which {self.first} has.")
        if extra := [name for name in names if name not in wanted and name not in self.drop]:
            raise BadData(f"{where}: has a column {listed(extra)}, which {self.first} has not.")

    def convert(self, table: pa.Table, where: Where) -> pa.Table:
        """The table with the columns and types of the schema; `where(i)` names its i-th row."""
        columns = []
        for field in self.schema:
            column = decoded(table.column(field.name))
            if is_text(column.type) and field.name in self.notations:
                columns.append(self._parsed(field.name, column, where))
            else:
                columns.append(_cast(field, column, where))
        return pa.table(columns, schema=self.schema)

    def _parsed(self, name: str, column: pa.ChunkedArray, where: Where) -> pa.ChunkedArray:
        """The values of a column of text; a stray entry is refused, or noted and missing."""
        notation = self.notations[name]
        if name in self.whole:
            _check_zeros(name, column, where)
        values, strays = parse(column, notation)
        if not pc.any(strays).as_py():
            return values
        if name not in self.lenient:
            row = pc.index(strays, True).as_py()
            raise wrong_notation(
                where(row), name, notation, column[row].as_py(), self.advice.get(name)
            )
        self.strays.setdefault(name, StrayEntries()).add(column.filter(strays))
        return values

    def notes(self) -> list[str]:
        """For people: the stray entries that counted as missing."""
        return [
            f"column {shorten(name)}: entries that are not {type_in_words(self.notations[name].type)} "
            f"count as missing, {seen.count:,} of those read: "
            + ", ".join(map(shorten, seen.examples))
            + (" ..." if seen.more else "")
            for name, seen in self.strays.items()
        ]


def _check_zeros(name: str, column: pa.ChunkedArray, where: Where) -> None:
    """Refuse a label in a column that looked like whole numbers."""
    zeros = pc.match_substring_regex(column, r"^\s*0\d+\s*$")
    if pc.any(zeros).as_py():
        row = pc.index(zeros, True).as_py()
        raise BadData(
            f"{where(row)}: column {shorten(name)} is read as a number, but {shorten(column[row].as_py())} "
            f"begins with a zero as labels do; say --as {name}=category or --as {name}=number."
        )


def wrong_notation(
    where: str, name: str, notation: Notation, value: object, advice: str | None
) -> BadData:
    """The error about an entry that is not written in the notation of its column."""
    kind = type_in_words(notation.type)
    as_what = f"{kind} ({notation.word.partition(':')[2]})" if ":" in notation.word else kind
    return BadData(
        f"{where}: column {shorten(name)} is read as {as_what}, but {shorten(value)} stands here; mend the "
        f"entry{', ' + advice if advice else ''}."
    )


def _cast(field: pa.Field, column: pa.ChunkedArray, where: Where) -> pa.ChunkedArray:
    """A column that is not text, in the type of the layout."""
    try:
        return cast(column, field.type)
    except FAILURES as error:
        row = first_failure(len(column), lambda n: fits(column[:n], field.type))
        raise wrong_type(where(row), field, _quotable(column[row])) from error


def wrong_type(where: str, field: pa.Field, value: object) -> BadData:
    """The error about a value that is not of its column's type."""
    simple = field.type in (NUMBER, FLAG, TIME)
    remedy = f" (--as {field.name}=category reads the column as text)" if simple else ""
    return BadData(
        f"{where}: column {shorten(field.name)} is read as {type_in_words(field.type)}, "
        f"but {shorten(value)} stands here{remedy}."
    )


def _quotable(entry: pa.Scalar) -> object:
    """An entry as it can be quoted in a message."""
    try:
        return entry.as_py()
    except FAILURES:
        return f"{entry.type} out of range"
