"""Elements of HTML and SVG, escaped by construction: text is text unless it was made here."""

import re
from collections.abc import Sequence
from html import escape

from kalvi.tabular.report import words

VOID = frozenset({"meta"})
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that neither HTML nor XML may hold, or that no file in UTF-8 can."""
LONGEST_TEXT = 240


class Html(str):
    """Text that is markup already, because `element` or `join` made it."""

    __slots__ = ()


Child = str | int | None


def text(value: object) -> Html:
    """The value as escaped text; what cannot be shown is �."""
    return value if isinstance(value, Html) else Html(escape(UNPRINTABLE.sub("�", str(value))))


def join(*children: Child) -> Html:
    """The children one after another; None is nothing."""
    return Html("".join(text(child) for child in children if child is not None))


def element(tag: str, *children: Child, **attributes: object) -> Html:
    """An element; `class_` is class, `aria_label` is aria-label, an attribute None is left out."""
    parts = [tag]
    for key, value in attributes.items():
        if value is not None:
            name = key.rstrip("_").replace("_", "-")
            parts.append(f'{name}="{text(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if tag in VOID else f"{opening}{join(*children)}</{tag}>")


def name(value: object, longest: int = LONGEST_TEXT) -> Html:
    """A name out of the data: its direction of writing stays its own, its length is bounded."""
    return element("bdi", words.cut(value, longest))


def table(
    caption: str,
    heads: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    class_: str | None = None,
) -> Html:
    """A table in a box that scrolls by itself; the first cell of a row is its head."""
    head = element("tr", *(element("th", cell, scope="col") for cell in heads))
    body = [
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_=class_,
    )
    # A box that scrolls must be reachable by keyboard, and then needs a role and a name.
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def definitions(pairs: Sequence[tuple[Child, Child]], class_: str) -> Html:
    """A list of terms and what they are."""
    return element(
        "dl",
        *(element("div", element("dt", term), element("dd", what)) for term, what in pairs),
        class_=class_,
    )
