"""Recognition of the format of a file by its first bytes, its name or its first line, in this order."""

import re
from collections.abc import Callable, Sequence

from kalvi.readers.columnar import ArrowFile, ArrowStream, Parquet
from kalvi.readers.delimited import Delimited
from kalvi.readers.errors import BadData
from kalvi.readers.formats import ENDINGS, FORMATS
from kalvi.readers.inputs import Input
from kalvi.readers.json_lines import JsonLines
from kalvi.readers.libsvm import Libsvm
from kalvi.readers.npz import Npz
from kalvi.readers.reader import Reader
from kalvi.readers.text_blocks import BOM
from kalvi.readers.vowpal_wabbit import VowpalWabbit

READERS: dict[str, Callable[[], Reader]] = {
    "csv": Delimited,
    "tsv": lambda: Delimited("\t"),
    "jsonl": JsonLines,
    "libsvm": Libsvm,
    "vw": VowpalWabbit,
    "arrow": ArrowStream,
    "feather": ArrowFile,
    "parquet": Parquet,
    "npz": Npz,
}
"""The readers, by the names in `formats.FORMATS`."""
ARROW = ("arrow", "feather")
VOWPAL_LINE = re.compile(rb"(-?[\d.]+(\s+[\d.]+)?\s+)?('\S*)?\|\S*\s+[^|,]*(\|[^,]*)?\r?\Z")
SPARSE_LINE = re.compile(rb"\s*\S+(\s+(qid|\d+):\S+)+\s*(#.*)?\r?\Z")


def reader_for(inputs: Sequence[Input], name: str | None) -> Reader:
    """The reader for files, which must all have one format: `name`, or the one that is recognised."""
    if name is not None and name not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}; got {name!r}.")
    names = [_format_of(source, name) for source in inputs]
    for source, other in zip(inputs, names, strict=True):
        if other != names[0]:
            raise BadData(f"{source.name}: is {other}, but {inputs[0].name} is {names[0]}.")
    return READERS[names[0]]()


def _format_of(source: Input, asked: str | None) -> str:
    """The name of a file's format."""
    begins = {name: format.begins for name, format in FORMATS.items() if format.begins}
    shown = next((name for name, first in begins.items() if source.head.startswith(first)), None)
    if asked in ARROW and shown in ARROW:
        return shown
    named = asked or shown or ENDINGS.get(source.suffix) or _format_of_text(source.head)
    if named in begins and shown is None:
        raise BadData(f"{source.name}: does not begin like a {named} file; name its --format.")
    return named


def _format_of_text(head: bytes) -> str:
    """The format of a text, judged by its first line."""
    line = head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]
    if line.startswith(b"{"):
        return "jsonl"
    if SPARSE_LINE.match(line):
        return "libsvm"
    if VOWPAL_LINE.match(line):
        return "vw"
    return "tsv" if b"\t" in line and b"," not in line else "csv"
