"""What the parts of the page are built of: a card under its heading, folded tables, values of settings."""

import json
from typing import Any

from kalvi.tabular.report import words
from kalvi.tabular.report.markup import Child, Html, element, name, table

Summary = dict[str, Any]
LEVEL = words.percent(0.95)


def card(title: str, *children: Child, whole: bool = False) -> Html:
    """A section under its heading; `whole` takes the width of the page."""
    anchor = title.lower().replace(" ", "-")
    return element(
        "section",
        element("h2", title, id=anchor),
        *children,
        aria_labelledby=anchor,
        class_="whole" if whole else "half",
    )


def long_table(noun: str, heads: list[Child], rows: list[list[Child]], most: int) -> list[Child]:
    """A table whose rows beyond `most` are folded away."""
    first = table(words.count(len(rows), noun), heads, rows[:most])
    rest = rows[most:]
    said = words.count(len(rest), f"more {noun}")
    return [first, folded(said, table(said, heads, rest)) if rest else None]


def folded(title: str, inside: Html) -> Html:
    """Something that opens where its title is pressed."""
    return element("details", element("summary", title), inside)


def note(*children: Child) -> Html:
    """A paragraph in small print."""
    return element("p", *children, class_="note")


def value_of(value: object) -> Child:
    """A value of a setting as people write it."""
    if value is None:
        return words.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return words.number(value, 6)
    return name(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
