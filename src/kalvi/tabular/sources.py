"""Opening of files for a model; columns that are left out are not read, so nothing in them can matter."""

import csv
import json
from collections.abc import Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kalvi.readers.files import BadData
from kalvi.readers.notation import Notation
from kalvi.readers.source import Source, open_data

SAMPLED = 10_000
"""The number of first rows from which types, units and levels are inferred."""
DROP = "drop"
"""The type by which users leave out a column."""


@runtime_checkable
class ColumnChoices(Protocol):
    """The user's choices about the columns of a table."""

    @property
    def drop(self) -> tuple[str, ...]:
        """Names and patterns of the columns that are left out."""
        ...

    @property
    def advice(self) -> str:
        """Advice for the user about entries that do not fit the type of their column."""
        ...

    def on_invalid(self, name: str) -> str:
        """The treatment of such entries of a column: "keep", "missing" or "refuse"."""
        ...


def open_source(
    data: str | Path | Sequence[str | Path],
    choices: ColumnChoices,
    format: str | None,
    types: Mapping[str, str],
) -> Source:
    """Open files without the columns that are dropped by name; the encoder drops those by pattern."""
    names = plain_names(choices.drop)
    if names:
        _check_names(data, format, names)
    return open_data(
        data,
        format=format,
        sample_rows=SAMPLED,
        types=types,
        drop=names,
        on_invalid=choices.on_invalid,
        advice=choices.advice,
    )


def column_words(
    file: Path | None,
    named: Sequence[str],
    category: Sequence[str] = (),
    number: Sequence[str] = (),
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The types that the user gave columns, and the columns to drop; options override the file."""
    found = {} if file is None else _in_file(file)
    options: dict[str, str] = {}
    pairs = [(name, "category") for name in category] + [(name, "number") for name in number]
    for name, word in (*pairs, *map(_pair, named)):
        if options.setdefault(name, word) != word:
            raise ValueError(f"'{name}' cannot be a {options[name]} and a {word}.")
    return split_drops(found | options)


def split_drops(words: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The types of columns that are read, and the names of those whose type is "drop"."""
    for word in words.values():
        if word != DROP:
            Notation.of(word)
    kept = {name: word for name, word in words.items() if word != DROP}
    return kept, tuple(name for name in words if name not in kept)


def _pair(text: str) -> tuple[str, str]:
    name, equals, word = text.rpartition("=")
    if not equals or not name or not word:
        raise ValueError(f"--as takes NAME=TYPE, such as zip=category; got '{text}'.")
    return name, word


def _in_file(file: Path) -> dict[str, str]:
    """Read names and types from a JSON object, or from a CSV file with the columns name and type."""
    how = "it must be a CSV file with the columns name and type, or a JSON object of name: type"
    try:
        text = file.read_text("utf-8-sig")
        if text.lstrip().startswith("{"):
            found = json.loads(text)
        else:
            found = {
                row["name"].strip(): row["type"].strip()
                for row in csv.DictReader(text.splitlines())
            }
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{file}: {how}.") from error
    if not found or not all(
        name and isinstance(word, str) and word for name, word in found.items()
    ):
        raise ValueError(f"{file}: {how}; none may be empty.")
    return found


def plain_names(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns that are plain names."""
    return tuple(p for p in patterns if not has_magic(p))


def _check_names(data: Any, format: str | None, names: Sequence[str]) -> None:
    """Refuse a name that no column has, unless the data come from standard input."""
    if "-" in (data if isinstance(data, list | tuple) else [data]):
        return
    try:
        source = open_data(data, format=format, sample_rows=1)
    except BadData:  # perhaps in a column that is left out; otherwise it is raised again later
        return
    source.close()
    for name in names:
        if name not in source.schema.names:
            raise ValueError(
                f"no column is called '{name}'; there are {', '.join(source.schema.names[:30])}."
            )
