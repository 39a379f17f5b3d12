"""Which files a model has learned, so that no row counts twice by mistake.

A file is recognised by its size and a digest of its content, whatever its name; a file that has grown, by
its name and its first bytes. Rows from standard input are not recognised.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kalvi.readers.source import Source
from kalvi.tabular.table_model import RowModel


def check_not_learned(model: RowModel, source: Source, name: str | Path) -> None:
    """Refuse a source that has a file which the model has learned already."""
    found = source.fingerprint()
    for old in model.record.files:
        if same := [_name(file) for file in found if same_content(old, file)]:
            raise ValueError(
                f"{same[0]} was learned by {name} already, and its rows would count twice; "
                "leave it out, or say --again if you mean it."
            )
        if grown := source.grown_from(old):
            raise ValueError(
                f"{grown} begins as a file that {name} has learned and has grown since: its first "
                "rows would count twice. Put the new rows into another file, or say --again."
            )


def check_apart(models: Sequence[RowModel], names: Sequence[str]) -> None:
    """Refuse models if two of them have learned the same file."""
    for i, (model, name) in enumerate(zip(models, names, strict=True)):
        for other, other_name in zip(models[:i], names[:i], strict=True):
            if model.run and model.run == other.run:
                raise ValueError(
                    f"{other_name} and {name} are the same model, and its rows would count twice; "
                    "leave one out, or say --again if you mean it."
                )
            shared = [
                _name(file)
                for file in model.record.files
                if any(same_content(old, file) for old in other.record.files)
            ]
            if shared:
                raise ValueError(
                    f"{other_name} and {name} have both learned {shared[0]}, and its rows would count "
                    "twice; leave one out, or say --again if you mean it."
                )


def same_content(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two files have the same content, by their fingerprints; older models have no digests."""
    mark = "digest" if "digest" in a and "digest" in b else "head"
    return mark in a and mark in b and (a["bytes"], a[mark]) == (b["bytes"], b[mark])


def _name(file: dict[str, Any]) -> str:
    return Path(file["path"]).name
