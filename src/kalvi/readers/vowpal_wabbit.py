"""The text format of Vowpal Wabbit: a label and a weight, then named features in namespaces.

    [label] [weight] ['tag]|namespace[:scale] feature[:value] ... |namespace ...

The columns are y, the label; weight and tag, if the first rows have them; and x, the features, whose names
are `namespace^feature`, or `feature` in a namespace without a name. A feature without a value is 1, one
that stands twice is added up, and the values of a namespace are multiplied by its scale.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from kalvi.readers.column_types import NAMED, NUMBER, TEXT
from kalvi.readers.errors import BadData, name_row, shorten
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.reader import LineReader
from kalvi.readers.text_blocks import line_blocks, lines

SAMPLE_ROWS = 1000
"""The number of first rows that decide whether there are weights and tags."""


class VowpalWabbit(LineReader):
    """Reads lines of labels, weights, tags and named features."""

    def infer(self, inputs: Sequence[Input], options: ReadOptions) -> ColumnLayout:
        first = inputs[0]
        block = next(line_blocks(first, last=False), b"")
        rows = _parse_lines(lines(block)[:SAMPLE_ROWS], first.name, 0)
        there = {"y": NUMBER}
        if any(row.weight is not None for row in rows):
            there["weight"] = NUMBER
        if any(row.tag for row in rows):
            there["tag"] = TEXT
        columns = {
            name: kind for name, kind in {**there, "x": NAMED}.items() if name not in options.drop
        }
        text = {"tag": pa.chunked_array([[row.tag for row in rows]], TEXT)}
        known = {name: entries for name, entries in text.items() if name in columns}
        return infer_layout(pa.schema(list(columns.items())), known, options, first.name)

    def parse(self, block: bytes, layout: ColumnLayout, name: str, start: int) -> pa.Table:
        rows = _parse_lines(lines(block), name, start)
        if "weight" not in {*layout.columns, *layout.drop}:
            _refuse_weights(rows, name, start)
        columns = {
            "y": pa.array([row.label for row in rows], NUMBER),
            "weight": pa.array([1.0 if r.weight is None else r.weight for r in rows], NUMBER),
            "tag": pa.array([row.tag for row in rows], TEXT),
            "x": _named([row.features for row in rows]),
        }
        return pa.table({own: columns[own] for own in layout.columns})


class _Row(NamedTuple):
    """The content of a line."""

    label: float | None
    weight: float | None
    tag: str | None
    features: dict[str, float]


def _parse_lines(every: list[bytes], name: str, start: int) -> list[_Row]:
    rows = []
    for i, line in enumerate(every):
        try:
            rows.append(_parse_line(line.decode()))
        except ValueError as error:
            raise BadData(f"{name_row(name, start + i + 1)}: {error}.") from None
    return rows


def _parse_line(line: str) -> _Row:
    """The row of a line; the error about a malformed line says what is wrong."""
    head, *spaces = line.split("|")
    words = head.split()
    tag = None
    if words and (words[-1].startswith("'") or (spaces and not head[-1:].isspace() and head)):
        tag = words.pop().removeprefix("'")
    if len(words) > 2:
        raise ValueError(f"has {shorten(words[2])} after the label and the weight, before the |")
    numbers = [_number(word, "a label or a weight") for word in words]
    if len(numbers) > 1 and numbers[1] < 0:
        raise ValueError(f"has the weight {shorten(words[1])}, which is below 0")
    features: dict[str, float] = {}
    for space in spaces:
        _add_namespace(space, features)
    label, weight = (*numbers, None, None)[:2]
    return _Row(label, weight, tag, features)


def _add_namespace(space: str, features: dict[str, float]) -> None:
    """Add the features after a |, whose name follows without a space."""
    words, scale, prefix = space.split(), 1.0, ""
    if words and not space[0].isspace():
        name, colon, factor = words.pop(0).partition(":")
        scale = _number(factor, "the scale of a namespace") if colon else 1.0
        prefix = f"{name}^"
    for word in words:
        name, colon, value = word.partition(":")
        if not name:
            raise ValueError(f"has {shorten(word)} where feature or feature:value is needed")
        value = _number(value, "the value of a feature") if colon else 1.0
        total = features.get(prefix + name, 0.0) + scale * value
        if not math.isfinite(total):
            raise ValueError(
                f"has {shorten(word)}, which times the scale of its namespace is too large"
            )
        features[prefix + name] = total


def _number(word: str, what: str) -> float:
    try:
        found = math.nan if "_" in word else float(word)  # 1_0 is a number only in Python
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"has {shorten(word)} where {what}, a number, is needed")
    return found


def _refuse_weights(rows: list[_Row], name: str, start: int) -> None:
    for i, row in enumerate(rows):
        if row.weight not in (None, 1.0):
            raise BadData(
                f"{name_row(name, start + i + 1)}: has a weight, but the first {SAMPLE_ROWS:,} rows have "
                "none; give the first row the weight 1."
            )


def _named(rows: list[dict[str, float]]) -> pa.Array:
    names = pa.array([name for row in rows for name in row], TEXT)
    values = pa.array([value for row in rows for value in row.values()], NUMBER)
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    pairs = pa.StructArray.from_arrays([names, values], fields=list(NAMED.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=NAMED)
