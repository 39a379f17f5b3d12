"""The file formats from which tables are read, listed in one place.

This module imports nothing large, so that help is printed, and a missing file refused, before pyarrow is
imported. `recognition.READERS` has the reader for each format.
"""

from typing import NamedTuple


class Format(NamedTuple):
    """A file format: its name for people, and how its files are recognised."""

    description: str
    endings: tuple[str, ...]
    begins: bytes | None = None  # the first bytes of every file; None for text
    compressible: bool = True  # whether the whole file may be compressed


class Compression(NamedTuple):
    """A way to compress whole files."""

    ending: str
    begins: bytes


FORMATS = {
    "csv": Format("CSV", (".csv",)),
    "tsv": Format("TSV", (".tsv", ".tab")),
    "jsonl": Format("JSON lines", (".jsonl", ".ndjson", ".json")),
    "libsvm": Format("libsvm", (".libsvm", ".svmlight", ".svm")),
    "vw": Format("Vowpal Wabbit's text", (".vw",)),
    "arrow": Format("Arrow streams", (".arrow", ".ipc", ".arrows"), b"\xff\xff\xff\xff"),
    "feather": Format("Feather", (".feather",), b"ARROW1", compressible=False),
    "parquet": Format("Parquet", (".parquet", ".pq"), b"PAR1", compressible=False),
    "npz": Format("NumPy's .npz", (".npz",), b"PK", compressible=False),
}
"""The formats, by the names that `open_data` and `--format` take."""

COMPRESSIONS = {
    "gzip": Compression(".gz", b"\x1f\x8b"),
    "zstd": Compression(".zst", b"\x28\xb5\x2f\xfd"),
    "bz2": Compression(".bz2", b"BZh"),
}
"""The compressions, by pyarrow's names."""

ENDINGS = {ending: name for name, format in FORMATS.items() for ending in format.endings}
"""The format for each ending."""
COMPRESSED_ENDINGS = tuple(compression.ending for compression in COMPRESSIONS.values())


def list_formats() -> str:
    """All formats as a phrase: "CSV, TSV, … (also .gz, .zst, .bz2), Feather, Parquet or NumPy's .npz"."""
    text = [format.description for format in FORMATS.values() if format.compressible]
    other = [format.description for format in FORMATS.values() if not format.compressible]
    packed = f"{', '.join(text)} (also {', '.join(COMPRESSED_ENDINGS)})"
    return f"{', '.join([packed, *other[:-1]])} or {other[-1]}"
