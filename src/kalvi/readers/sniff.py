"""Which format a file has: by its first bytes, else by its name, else by how its first line looks."""

import re
from collections.abc import Callable, Sequence

from kalvi.readers.base import BOM, Format
from kalvi.readers.columnar import ArrowFile, ArrowStream, Parquet
from kalvi.readers.delimited import Delimited
from kalvi.readers.errors import BadData
from kalvi.readers.inputs import Input
from kalvi.readers.json_lines import JsonLines
from kalvi.readers.libsvm import Libsvm
from kalvi.readers.npz import Npz
from kalvi.system.files import SUFFIXES

MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"\xff\xff\xff\xff": "arrow", b"PK": "npz"}
FORMATS: dict[str, Callable[[], Format]] = {
    "csv": Delimited,
    "tsv": lambda: Delimited("\t"),
    "parquet": Parquet,
    "feather": ArrowFile,
    "arrow": ArrowStream,
    "jsonl": JsonLines,
    "libsvm": Libsvm,
    "npz": Npz,
}
SPARSE_LINE = re.compile(rb"\s*\S+(\s+(qid|\d+):\S+)+\s*(#.*)?\r?\Z")


def format_of(inputs: Sequence[Input], name: str | None) -> Format:
    """The format of the files, which must be one."""
    if name is not None and name not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}; got {name!r}.")
    names = [_name(source, name) for source in inputs]
    for source, other in zip(inputs, names, strict=True):
        if other != names[0]:
            raise BadData(f"{source.name}: is {other}, but {inputs[0].name} is {names[0]}.")
    return FORMATS[names[0]]()


def _name(source: Input, asked: str | None) -> str:
    """The name of a file's format."""
    magic = next((name for magic, name in MAGIC.items() if source.head.startswith(magic)), None)
    if asked in ("arrow", "feather") and magic in ("arrow", "feather"):
        return magic
    named = asked or magic or SUFFIXES.get(source.suffix) or _look(source.head)
    if named in MAGIC.values() and magic is None:
        raise BadData(f"{source.name}: does not begin as {named} files do; name its --format.")
    return named


def _look(head: bytes) -> str:
    """How text without a telling name looks."""
    line = head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]
    if line.startswith(b"{"):
        return "jsonl"
    if SPARSE_LINE.match(line):
        return "libsvm"
    return "tsv" if b"\t" in line and b"," not in line else "csv"
