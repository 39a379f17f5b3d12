"""Checks of the files that a command writes.

No command writes over a file that it reads, nor over any other without --force. With --force it replaces
only a file of the same kind: no model over data, no page over a model.
"""

import json
import os
from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path

from kalvi.readers import files, formats

TABLES = {".csv": "CSV table", ".parquet": "Parquet table", ".jsonl": "JSON lines table"}
"""The kinds of tables that commands write, by the ending of the name."""
MODEL, CHECKPOINT, PAGE = "kalvi model", "checkpoint of kalvi", "HTML page"
PAGES = (".html", ".htm")
PICTURES = {".png": "PNG picture", ".pdf": "PDF document", ".svg": "SVG picture"}
STARTS = {
    b"PAR1": TABLES[".parquet"],
    b"\x89PNG": PICTURES[".png"],
    b"%PDF": PICTURES[".pdf"],
    b"<svg": PICTURES[".svg"],
    b"<?xml": PICTURES[".svg"],
}
LOOKED_AT = 4096
"""The number of bytes by which a file is recognised."""


def check_model_path(
    out: Path, inputs: Iterable[str | Path], *, force: bool, instead: str = ""
) -> None:
    """Refuse a path where a model, and its checkpoint beside it, cannot or must not be written."""
    if not out.exists() and out.suffix.lower() in (
        *formats.ENDINGS,
        *formats.COMPRESSED_ENDINGS,
        *PAGES,
    ):
        raise ValueError(f"{out} is not a name for a model; end it in .kalvi.")
    checkpoint = Path(f"{out}.checkpoint")
    inputs = list(inputs)
    _check(out, MODEL, inputs, force, "--out", instead)
    _check(checkpoint, CHECKPOINT, inputs, True, "--out")


def check_new_model_path(out: Path, inputs: Iterable[str | Path], force: bool) -> None:
    """Refuse a path where a new model cannot or must not be written."""
    check_model_path(out, inputs, force=force, instead="learn more with kalvi update, ")


def default_out(data: Sequence[str]) -> Path:
    """The default name of a model: that of its data, in the present folder."""
    if len(data) > 1 or data[0] == "-" or has_magic(data[0]):
        raise ValueError("give the model a name with --out.")
    return Path(f"{files.stem_of(data[0])}.kalvi")


def check_table_path(
    out: Path, inputs: Iterable[str | Path], *, force: bool, option: str = "--out"
) -> None:
    """Refuse a path where a table cannot or must not be written."""
    if out.suffix not in TABLES:
        raise ValueError(f"{option} must end in {_any_of(TABLES)}; got {out.name}.")
    _check(out, TABLES[out.suffix], inputs, force, option)


def check_page_path(out: Path, inputs: Iterable[str | Path], *, force: bool) -> None:
    """Refuse a path where a page cannot or must not be written."""
    if out.suffix.lower() not in PAGES:
        raise ValueError(f"--out must end in .html; got {out.name}.")
    _check(out, PAGE, inputs, force, "--out")


def check_picture_path(out: Path, *, force: bool) -> None:
    """Refuse a path where a picture cannot or must not be written."""
    if out.suffix not in PICTURES:
        raise ValueError(f"the picture must end in {_any_of(PICTURES)}; got {out.name}.")
    _check(out, PICTURES[out.suffix], (), force, "--out")


def require(*paths: Path | None) -> None:
    """Refuse files to read that do not exist."""
    for path in paths:
        if path is not None and not path.exists():
            raise ValueError(f"{path}: no such file.")


def _any_of(suffixes: Iterable[str]) -> str:
    *most, last = suffixes
    return f"{', '.join(most)} or {last}"


def _check(
    out: Path,
    kind: str,
    inputs: Iterable[str | Path],
    force: bool,
    option: str,
    instead: str = "",
) -> None:
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.parent} to write to.")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; give the {kind} a file's name with {option}.")
    if not out.exists():
        return
    for path in inputs:
        if path != "-" and os.path.exists(path) and os.path.samefile(path, out):
            raise ValueError(
                f"{out} is read by this command and cannot be written by it; choose another name "
                f"with {option}."
            )
    found = file_kind(out)
    if found not in (kind, "empty file"):
        raise ValueError(
            f"{out} is a {found} and is not replaced by a {kind}; choose another name with {option}."
        )
    if not force:
        raise ValueError(
            f"{out} exists; {instead}choose another name with {option}, or replace it with --force."
        )


def file_kind(path: Path) -> str:
    """The kind of a file, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(LOOKED_AT)
        if head[8:9] == b"{" and (length := int.from_bytes(head[:8], "little")) < 2**26:
            file.seek(8)
            return _of_header(file.read(length))
    if not head:
        return "empty file"
    for start, kind in STARTS.items():
        if head.startswith(start):
            return kind
    if b"\0" in head:
        return "binary file"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:9].lower() == b"<!doctype" or text[:5].lower() == b"<html":
        return PAGE
    return TABLES[".jsonl"] if text.startswith(b"{") else TABLES[".csv"]


def _of_header(raw: bytes) -> str:
    """The kind of a safetensors file, by its metadata."""
    try:
        texts = json.loads(raw)["__metadata__"]
        said = json.loads(texts["kalvi"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "binary file"
    return CHECKPOINT if said.get("kind") == "checkpoint" else MODEL
