"""Notations: how the entries of a column of text are written, and which values they stand for.

A notation has a word, by which users choose it and models store it: `number`, `category`, `text` or `time`,
with or without an example of a number (`number:$1,234.5`, `number:1.234,5`, `number:86%`) or a form of
dates (`time:%d/%m/%Y`). A text has the same value in files of all formats.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.column_types import FLAG, NUMBER, TEXT, TIME, YEARS, ZONED
from kalvi.readers.errors import FAILURES
from kalvi.readers.times import check_form, iso_text

WORDS = ("number", "category", "time", "text")
"""The words for types of columns, without details of the notation."""
MISSING = ("", "NA", "NaN", "nan", "-nan", "NAN", "null", "NULL", "Null")
MISSING += ("N/A", "n/a", "None", "#N/A")
"""Entries that mean a missing value in every column."""
MARKERS = ("", "?", "-", "--", ".", "na", "nan", "-nan", "nat", "n/a", "n.a.", "#n/a", "null")
MARKERS += ("none", "unknown", "missing")
"""Entries that mean a missing value among numbers, flags and times; case is ignored."""
SPELLINGS = frozenset(
    spelt for marker in MARKERS for spelt in (marker, marker.upper(), marker.capitalize())
) | set(MISSING)
"""The usual spellings of the markers, for a parser that does not ignore case."""
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
CURRENCIES = tuple("$€£¥₹₩₽₺₪₫₴₦₱฿")
CURRENCIES += ("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "AUD", "CAD", "SEK", "NOK", "DKK")
PERCENT = "%"
SPACES = " \u00a0\u202f"
TYPES = {"number": NUMBER, "flag": FLAG, "time": TIME, "category": TEXT, "text": TEXT}


class Notation(NamedTuple):
    """The type of a column, and how its entries are written."""

    kind: str  # "number", "flag", "time", "category" or "text"
    thousands: str = ""  # a comma, a point, a space or an apostrophe between groups of three digits
    decimal: str = "."
    symbol: str = ""  # a currency, which entries may omit, or a percent sign, which they may not
    form: str = ""  # of times, for strptime; by default ISO 8601, "%z" if that has time zones

    @property
    def word(self) -> str:
        """The word for the notation."""
        if self.form:
            return f"time:{self.form}"
        return f"number:{self.example}" if self.example != "1234.5" else self.kind

    @property
    def example(self) -> str:
        """An example of a number in this notation."""
        if self == Notation("number", symbol=PERCENT):
            return "86%"
        digits = f"1{self.thousands}234{self.decimal}5"
        return digits + self.symbol if self.symbol == PERCENT else self.symbol + digits

    @property
    def type(self) -> pa.DataType:
        """The type of the column after reading."""
        return TYPES[self.kind]

    @property
    def parsed_as(self) -> pa.DataType:
        """The type as which pyarrow can read the entries; text if it does not know the notation."""
        if self.kind == "time":
            return {"": TIME, "%z": ZONED}.get(self.form, TEXT)
        return TEXT if self.thousands or self.symbol or self.decimal != "." else self.type

    @classmethod
    def of(cls, word: str) -> "Notation":
        """The notation for a word; raises ValueError if there is none."""
        kind, colon, detail = word.partition(":")
        if kind in WORDS and not colon:
            return cls(kind)
        if kind == "time" and detail:
            check_form(detail)
            return cls(kind, form=detail)
        if kind == "number" and detail:
            return _by_example(detail.strip())
        raise ValueError(
            f"a column is called one of {', '.join(WORDS)}, or a word with an example of its notation "
            f"such as number:1.234,5 or time:%d/%m/%Y; got {word!r}."
        )


def _by_example(example: str) -> Notation:
    """The notation of a number such as $1,234.50, 3,14 or 86%."""
    symbol = next((s for s in (*CURRENCIES, PERCENT) if s in example), "")
    digits = example.replace(symbol, "", 1).strip().lstrip("+-")
    marks = [mark for mark in re.sub(r"\d", "", digits) if mark]
    thousands, decimal = "", "."
    if len(marks) == 1 and marks[0] in ",.":
        decimal = marks[0]
        thousands = "." if decimal == "," else ""
    elif marks:
        thousands = marks[0]
        decimal = marks[-1] if marks[-1] != thousands else ".,"[thousands == "."]
    found = Notation("number", thousands.translate({ord(s): " " for s in SPACES}), decimal, symbol)
    whole = bool(digits) and re.fullmatch(numbers_pattern(found._replace(symbol="")), digits)
    doubtful = len(marks) == 1 and re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits)
    if not whole or doubtful:
        raise ValueError(
            f"number:{example} does not say how numbers are written; use an example with both marks, such "
            "as number:1,234.5 or number:1.234,5."
        )
    return found


def numbers_pattern(notation: Notation) -> str:
    """A regular expression for numbers in a notation."""
    point = re.escape(notation.decimal)
    digits = rf"(?:\d+(?:{point}\d*)?|{point}\d+)"
    if notation.thousands:
        mark = f"[{SPACES}]" if notation.thousands == " " else re.escape(notation.thousands)
        digits = rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{3}})+(?:{point}\d*)?|{digits})"
    power = r"(?:[eE][+-]?\d+)?" if notation.decimal == "." and not notation.thousands else ""
    gap, sign = f"[{SPACES}]?", re.escape(notation.symbol)
    if notation.symbol == PERCENT:
        return rf"[+-]?{digits}{power}{gap}{sign}"
    if notation.symbol:
        before = rf"[+-]?(?:{sign})?{gap}[+-]?{digits}{power}"
        return rf"(?:{before}|[+-]?{digits}{power}{gap}{sign})"
    return rf"(?:[+-]?{digits}{power}|[+-]?(?i:inf|infinity))"


def trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The entries as text, without surrounding spaces."""
    return pc.utf8_trim_whitespace(column.cast(TEXT))


def is_marker(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """A mask of the entries that mean a missing value among numbers, flags and times."""
    return pc.is_in(pc.utf8_lower(text), value_set=pa.array(MARKERS))


class Parsed(NamedTuple):
    """The values of a column, and a mask of its invalid entries, which are neither values nor markers."""

    values: pa.ChunkedArray
    invalid: pa.ChunkedArray


def parse(column: pa.ChunkedArray, notation: Notation) -> Parsed:
    """The values of a column of text; entries that are markers or invalid are missing."""
    if notation.type == TEXT:
        column = column.cast(TEXT)
        missing = pc.is_in(column, value_set=pa.array(MISSING))
        values = _null_where(missing, column) if pc.any(missing).as_py() else column
        return Parsed(values, pa.chunked_array([pa.repeat(False, len(column))]))
    text = trimmed(column)
    text = _null_where(is_marker(text), text)
    values = PARSERS[notation.kind](text, notation)
    return Parsed(values, pc.and_(pc.is_valid(text), pc.is_null(values)))


def _null_where(mask: pa.ChunkedArray, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(mask, pa.scalar(None, column.type), column)


def _matching(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """The entries that match a whole pattern; others become missing."""
    return _null_where(pc.invert(pc.match_substring_regex(text, rf"^{pattern}$")), text)


def _numbers(text: pa.ChunkedArray, notation: Notation) -> pa.ChunkedArray:
    text = _matching(text, numbers_pattern(notation))
    for part in (notation.symbol, notation.thousands, *SPACES):
        if part:
            text = pc.replace_substring(text, part, "")
    if notation.decimal != ".":
        text = pc.replace_substring(text, notation.decimal, ".")
    return text.cast(NUMBER)


def _flags(text: pa.ChunkedArray, notation: Notation) -> pa.ChunkedArray:
    true = pc.is_in(text, value_set=pa.array(TRUE))
    known = pc.is_in(text, value_set=pa.array(TRUE + FALSE))
    return _null_where(pc.invert(known), true)


def _times(text: pa.ChunkedArray, notation: Notation) -> pa.ChunkedArray:
    values = _cast_what_can(iso_text(text, notation.form), ZONED if notation.form == "%z" else TIME)
    values = values.cast(TIME)
    return _null_where(pc.less(values.cast(pa.int64()), YEARS[0]), values)


PARSERS: dict[str, Callable[..., Any]] = {"number": _numbers, "flag": _flags, "time": _times}


def _cast_what_can(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert entries to a type; those without a value (the 31st of April) become missing."""
    try:
        return text.cast(kind)
    except FAILURES:
        half = len(text) // 2
        if not half:
            return pa.chunked_array([pa.nulls(len(text), kind)])
        parts = _cast_what_can(text[:half], kind), _cast_what_can(text[half:], kind)
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
