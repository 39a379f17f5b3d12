"""The templates of the page, the data that they take, and the elements of SVG.

Only what this module makes is markup; all other text is escaped.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import ChainableUndefined, Environment, FileSystemLoader, Undefined
from markupsafe import Markup, escape

from kalvi.tabular.report import formatting

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that neither HTML nor XML may hold, or that no file in UTF-8 can."""
LONGEST_TEXT = 240
TEMPLATES = Path(__file__).parent / "templates"

Child = str | int | None
Summary = dict[str, Any]
LEVEL = formatting.percent(0.95)


def printable(value: object) -> object:
    """The value as printable text, unless it is markup; empty for None."""
    if value is None or isinstance(value, (Undefined, Markup)):
        return value or ""
    return UNPRINTABLE.sub("�", str(value))


def join(*children: Child) -> Markup:
    """The children joined as markup; those that are not markup are escaped."""
    return Markup("").join(escape(printable(child)) for child in children)


def named(value: object, longest: int = LONGEST_TEXT) -> Markup:
    """A name from the data: its writing direction does not affect the page, and its length is limited."""
    return element("bdi", formatting.cut(value, longest))


def element(tag: str, *children: Child, **attributes: object) -> Markup:
    """An element; `class_` is written class, `aria_label` aria-label; attributes of None are left out."""
    parts = [Markup(tag)]
    for key, value in attributes.items():
        if value is not None:
            name = Markup(key.rstrip("_").replace("_", "-"))
            parts.append(Markup('{}="{}"').format(name, printable(str(value))))
    return Markup("<{}>{}</{}>").format(Markup(" ").join(parts), join(*children), Markup(tag))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    keep_trailing_newline=True,
    finalize=printable,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=ChainableUndefined,  # a summary may lack anything
)


class IntervalRow(NamedTuple):
    """One row of a figure of intervals."""

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


def fold_long_table(
    noun: str, heads: Sequence[Child], rows: Sequence[Sequence[Child]], most: int
) -> LongTable:
    """A table whose rows beyond `most` are folded away."""
    more = rows[most:]
    said = formatting.count(len(more), f"more {noun}")
    return LongTable(formatting.count(len(rows), noun), heads, rows[:most], said, more)


def setting(value: object) -> Child:
    """The value of a setting, for people."""
    if value is None:
        return formatting.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return formatting.number(value, 6)
    return named(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
