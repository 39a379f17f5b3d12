"""Data that the templates take: rows of intervals, tables with folded rows, values of settings."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from kalvi.tabular.report import formatting
from kalvi.tabular.report.rendering import Child, named

Summary = dict[str, Any]
LEVEL = formatting.percent(0.95)


class IntervalRow(NamedTuple):
    """One line of a figure of intervals."""

    name: Markup
    value: str
    figure: Markup
    range: str = ""
    per: str = ""


class LongTable(NamedTuple):
    """A table, and the rows of it that are folded away."""

    caption: str
    heads: Sequence[Child]
    rows: Sequence[Sequence[Child]]
    more_caption: str
    more: Sequence[Sequence[Child]]


def long_table(
    noun: str, heads: Sequence[Child], rows: Sequence[Sequence[Child]], most: int
) -> LongTable:
    """A table whose rows beyond `most` are folded away."""
    more = rows[most:]
    said = formatting.count(len(more), f"more {noun}")
    return LongTable(formatting.count(len(rows), noun), heads, rows[:most], said, more)


def known(pairs: Sequence[tuple[Child, Child]]) -> list[tuple[Child, Child]]:
    """The terms whose definitions are not absent."""
    return [(term, what) for term, what in pairs if what != formatting.ABSENT]


def value_of(value: object) -> Child:
    """A value of a setting as people write it."""
    if value is None:
        return formatting.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return formatting.number(value, 6)
    return named(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
