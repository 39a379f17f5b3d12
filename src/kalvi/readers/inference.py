"""Inference of the type and notation of a column, from its first rows and from what the user says.

The rules are the same for all formats. In a column of text, markers of missing values are ignored. Of the
other entries, at least 90 % must be numbers in one notation for a column of numbers, all must be true or
false for flags, and 90 % must be dates of one form for times. Otherwise the column is free text if most
entries differ and have several words, or else a category. Whole numbers with leading zeros are labels, and
their column is a category. If entries can be read in two ways that give different values, nothing is
guessed: the column is refused, and the error says which options settle it.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

import re
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.column_types import FLAG, NUMBER, TEXT, TIME, describe_type
from kalvi.readers.errors import FAILURES, BadData, list_names, shorten
from kalvi.readers.layout import Column, ColumnLayout, ColumnReason, ReadOptions
from kalvi.readers.notation import (
    CURRENCIES,
    MISSING,
    PERCENT,
    SPELLINGS,
    Notation,
    is_marker,
    parse,
    trimmed,
)
from kalvi.readers.times import FORMS, NAMED, NAMES

SHARE = 0.9
"""The share of the entries that must be numbers, or times, in a column of them."""
RARE_ZEROS = 0.01
"""If the share of whole numbers with leading zeros is smaller than this, the column is ambiguous."""
TEXT_WORDS, TEXT_DISTINCT, TEXT_ROWS = 5, 0.5, 20
"""Free text has at least so many words on average and such a share of distinct entries, in so many rows."""
PLAIN, FLAGS, CATEGORY = Notation("number"), Notation("flag"), Notation("category")
MARKS = ((",", "."), (".", ","), (" ", ","), (" ", "."), ("'", "."))
"""Pairs of thousands and decimal marks that are tried, besides plain numbers."""
SEPARATED = r"\d[,.'\s\x{a0}\x{202f}]\d"
SYMBOLS = "|".join(re.escape(symbol) for symbol in (*CURRENCIES, PERCENT))
ISO = ("", "%z")
NUMERIC_DATE = r"^\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}"
NAMED_MONTH = rf"(?i)\b({'|'.join(name[:3] for name in NAMES)})"
DECLARED = {NUMBER: "number", FLAG: "flag", TIME: "time", TEXT: "category"}
COMPATIBLE = {"number": ("number", "flag"), "time": ("time",)}
"""The declared types that a user may call by a word; words that are not listed suit every type."""


class AmbiguousColumn(ValueError):
    """A column that can be read in several ways; `words` are the types from which the user may choose."""

    def __init__(self, what: str, *words: str):
        super().__init__(what)
        self.words = words


class Inferred(NamedTuple):
    """The notation of a column of text, why it was chosen, and the share of the entries that have it."""

    notation: Notation
    why: str
    share: float = 1.0


PLAIN_NUMBERS = Inferred(PLAIN, "numbers")


def infer_layout(
    declared: pa.Schema, text: Mapping[str, pa.ChunkedArray], options: ReadOptions, first: str
) -> ColumnLayout:
    """The layout of columns with declared types, or with types inferred from first entries in `text`."""
    for name, word in options.types.items():
        Notation.of(word)  # refuses an unknown word
        if name not in declared.names and options.strict:
            raise BadData(
                f"{first}: has no column {shorten(name)} to read as a {word}; it has "
                f"{list_names(declared.names)}."
            )
    columns = (
        _text_column(field.name, text[field.name], options, first)
        if field.name in text
        else _declared_column(field, options.types.get(field.name), first)
        for field in declared
    )
    return ColumnLayout(columns, options.drop, first)


def _declared_column(field: pa.Field, word: str | None, first: str) -> Column:
    """A column with a declared type; its notation is for other files, where it may be text."""
    void = pa.types.is_null(field.type)
    own = "number" if void else DECLARED.get(field.type)
    reason = ColumnReason(f"declared {field.type}{', asked for' if word else ''}")
    if word is None:
        written = own and Column.written(field.name, Notation(own), reason)
        return written or Column(field, reason=reason)
    asked = Notation.of(word)
    allowed = COMPATIBLE.get(asked.kind, tuple(DECLARED.values()))
    if not void and own not in allowed:
        raise BadData(
            f"{first}: column {shorten(field.name)} is {describe_type(field.type)}, not a {asked.kind}."
        )
    return Column.written(field.name, asked, reason)


def _text_column(name: str, entries: pa.ChunkedArray, options: ReadOptions, first: str) -> Column:
    """A column of text, by its first entries."""
    notation, why, share = inferred = _infer_or_refuse(name, entries, options, first)
    lenient = options.on_invalid(name) == "missing"
    if lenient and share < SHARE:
        advice = f"or leave the column out: only {share:.0%} of its first entries fit"
    else:
        advice = options.advice.replace("NAME", name)
    lenient = lenient and share >= SHARE
    whole = notation == PLAIN and name not in options.types
    reason = ColumnReason(why, _notes(entries, inferred, lenient=lenient))
    return Column.written(name, notation, reason)._replace(
        parse_as=notation.parsed_as if share == 1 else TEXT,
        lenient=lenient,
        advice=advice,
        whole=whole and not _matches(entries, r"[-+.eE]\d|\d[.eE]"),
    )


def _infer_or_refuse(
    name: str, column: pa.ChunkedArray, options: ReadOptions, first: str
) -> Inferred:
    """Infer the notation of a column of text; refuse an ambiguous one, unless the column is not used."""
    used = options.on_invalid(name) != "keep"
    try:
        return infer(column, options.types.get(name), share=SHARE if used else 1.0)
    except AmbiguousColumn as doubt:
        if not used:
            return Inferred(CATEGORY, "written in several ways")
        remedies = [f"--as '{name}={word}'" for word in doubt.words]
        if name not in options.types:
            remedies += [f"--as {name}=category", f"--drop {name}"]
        say = f"; say {', '.join(remedies[:-1])} or {remedies[-1]}" if remedies else ""
        raise BadData(f"{first}: column {shorten(name)} {doubt}{say}.") from None


def infer(column: pa.ChunkedArray, word: str | None = None, *, share: float = SHARE) -> Inferred:
    """Infer the notation of a column of text; `share` of its entries must have one type, or it is text."""
    if word is None and (plain := _quick_plain_numbers(column)):
        return plain
    text = trimmed(column).drop_null()
    rest = text.filter(pc.invert(is_marker(text)))
    if word is not None:
        return _as_asked(rest, Notation.of(word))
    if not len(rest):
        levels = text.filter(pc.invert(pc.is_in(text, value_set=pa.array(MISSING)))).unique()
        return Inferred(PLAIN, "empty") if len(levels) < 2 else Inferred(CATEGORY, "text")
    if zeros := _leading_zeros(rest):
        return Inferred(CATEGORY, zeros)
    for kind in ("number", "flag", "time"):
        best = _best_notation(rest, kind, 1.0 if kind == "flag" else share)
        if best is not None:
            return best
    return _text_or_category(rest)


def _quick_plain_numbers(column: pa.ChunkedArray) -> Inferred | None:
    """A shortcut for columns that pyarrow parses as plain numbers; None for other columns."""
    known = pc.is_in(column, value_set=pa.array(sorted(SPELLINGS)))
    text = pc.if_else(known, pa.scalar(None, TEXT), column)
    zero = text.filter(pc.starts_with(text, "0"))
    if text.null_count == len(text) or _matches(zero, r"^0\d"):
        return None
    try:
        text.cast(NUMBER)
    except FAILURES:
        return None
    return PLAIN_NUMBERS


def _as_asked(rest: pa.ChunkedArray, notation: Notation) -> Inferred:
    """A column of the type that the user chose, in the notation that the user chose or that fits best."""
    if notation.type == TEXT or not len(rest):
        return Inferred(notation, "asked for")
    if notation == Notation(notation.kind):
        best = _best_notation(rest, notation.kind, 0.0)
        notation = notation if best is None else best.notation
    n = _count(rest, notation)
    return Inferred(notation, f"asked for,{_written(notation)}".rstrip(","), n / len(rest))


def _leading_zeros(rest: pa.ChunkedArray) -> str:
    """Why whole numbers are labels: some have leading zeros. If very few have, the column is ambiguous."""
    zeros = pc.match_substring_regex(rest, r"^0\d+$")
    n, whole = pc.sum(zeros).as_py() or 0, _matches(rest, r"^\d+$")
    if not n or whole < _count(rest, PLAIN):
        return ""
    first = shorten(rest[pc.index(zeros, True).as_py()].as_py())
    if n >= RARE_ZEROS * len(rest):
        return f"leading zeros, as in {first}"
    if whole >= SHARE * len(rest):
        raise AmbiguousColumn(
            f"has whole numbers, but {first} begins with a zero as labels do", "number"
        )
    return ""


def _best_notation(rest: pa.ChunkedArray, kind: str, share: float) -> Inferred | None:
    """The notation that fits most entries, if it fits enough; ambiguous if two fit equally well."""
    tried = _parse_by_notation(rest, kind)
    counts = [len(values) - values.null_count for values in tried.values()]
    most, enough = max(counts, default=0), share * len(rest)
    if not most:
        return None
    best = list(tried)[counts.index(most)]
    if most < enough:
        _check_one_notation(rest, kind, tried, best, enough)
        return None
    _check_clear(rest, tried, best)
    what = "numbers" if kind == "number" else "true or false" if kind == "flag" else "times"
    part = "" if most == len(rest) else f"{100 * most / len(rest):.4g} % "
    return Inferred(best, f"{part}{what}{_written(best)}", most / len(rest))


def _parse_by_notation(rest: pa.ChunkedArray, kind: str) -> dict[Notation, pa.ChunkedArray]:
    """The entries parsed in each notation that might fit some of them; plain numbers come first."""
    if kind == "flag":
        found = [FLAGS]
    elif kind == "number":
        found = [PLAIN]
        found += [Notation("number", *pair) for pair in MARKS] if _matches(rest, SEPARATED) else []
        if _matches(rest, SYMBOLS):
            signs = [
                s for s in (*CURRENCIES, PERCENT) if pc.any(pc.match_substring(rest, s)).as_py()
            ]
            found += [n._replace(symbol=sign) for sign in signs for n in found]
    else:
        forms = [*ISO] if _matches(rest, r"^\d{4}-\d\d-\d\d") else []
        forms += FORMS if _matches(rest, NUMERIC_DATE) else ()
        forms += NAMED if _matches(rest, NAMED_MONTH) else ()
        found = [Notation("time", form=form) for form in forms]
    return {notation: parse(rest, notation).values for notation in found}


def _check_one_notation(
    rest: pa.ChunkedArray, kind: str, tried: dict, best: Notation, enough: float
) -> None:
    """Refuse a column as ambiguous if enough entries have the type, but in several notations."""
    read = reduce(pc.or_, [pc.is_valid(values) for values in tried.values()])
    if (pc.sum(read).as_py() or 0) >= enough > 0:
        other = pc.and_(read, pc.is_null(tried[best]))
        one, two = (
            shorten(rest.filter(mask)[0].as_py()) for mask in (tried[best].is_valid(), other)
        )
        raise AmbiguousColumn(
            f"has {kind}s written in several ways, such as {one} and {two}; write them in one"
        )


def _check_clear(rest: pa.ChunkedArray, tried: dict, best: Notation) -> None:
    """Refuse a column as ambiguous if another notation fits as well as the best but gives other values."""
    if best.kind != "time" and not best.thousands:
        return
    own = tried[best]
    for other, values in tried.items():
        if other == PLAIN._replace(symbol=other.symbol):
            continue
        differ = pc.fill_null(pc.not_equal(own, values), False)
        better = pc.and_(pc.is_valid(values), pc.is_null(own))
        as_good = values.null_count == own.null_count or pc.any(better).as_py()
        if as_good and pc.any(differ).as_py():
            entry = rest[pc.index(differ, True).as_py()].as_py()
            what = f"has entries such as {shorten(entry)} that can be read in two ways"
            raise AmbiguousColumn(what, best.word, other.word)


def _text_or_category(rest: pa.ChunkedArray) -> Inferred:
    """Free text if most entries differ and have several words, otherwise a category."""
    different = len(rest.unique()) / len(rest)
    words = pc.mean(pc.add(pc.count_substring_regex(rest, r"\s+"), 1)).as_py()
    if len(rest) >= TEXT_ROWS and different >= TEXT_DISTINCT and words >= TEXT_WORDS:
        return Inferred(Notation("text"), f"{words:.0f} words an entry, most of them different")
    share = _count(rest, PLAIN) / len(rest)
    numbers = f", {100 * share:.2g} % numbers" if share else ""
    return Inferred(CATEGORY, f"text such as {shorten(rest[0].as_py())}{numbers}")


def _notes(column: pa.ChunkedArray, inferred: Inferred, *, lenient: bool) -> tuple[str, ...]:
    """Notes for the user on the markers of missing values in a column, and on its invalid entries."""
    if inferred == PLAIN_NUMBERS and not _matches(column, r"^\D+$"):
        return ()
    text = trimmed(column)
    marked = pc.fill_null(pc.and_(is_marker(text), pc.not_equal(text, "")), False)
    markers = Counter(text.filter(marked).to_pylist()).most_common()
    if inferred.notation.type == TEXT:
        levels = [shorten(marker) for marker, _ in markers if marker not in MISSING]
        noun = "a level" if inferred.notation.kind == "category" else "a word"
        return (f"{', '.join(levels)} as {noun}, not missing",) if levels else ()
    notes = [f"{_entries(n)} {shorten(marker)} missing" for marker, n in markers]
    if inferred.share < 1:
        invalid = column.filter(parse(column, inferred.notation).invalid).to_pylist()
        few = ", ".join(shorten(entry) for entry, _ in Counter(invalid).most_common(3))
        become = "counted as missing" if lenient else "refused"
        notes.append(f"{_entries(len(invalid))} such as {few} {become}")
    return tuple(notes)


def _entries(n: int) -> str:
    return "1 entry" if n == 1 else f"{n:,} entries"


def _written(notation: Notation) -> str:
    """The notation as a phrase; empty if it is plain."""
    if notation.form == "%z":
        return " with zones"
    detail = notation.word.partition(":")[2]
    return f" written as {detail}" if detail else ""


def _count(rest: pa.ChunkedArray, notation: Notation) -> int:
    values = parse(rest, notation).values
    return len(values) - values.null_count


def _matches(rest: pa.ChunkedArray, pattern: str) -> int:
    """The number of entries that match a regular expression."""
    return pc.sum(pc.match_substring_regex(rest, pattern)).as_py() or 0
