"""Expansion of names, directories and patterns into the files that they stand for.

This module imports nothing large, so that a missing file is refused at once.
"""

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kalvi.readers.formats import COMPRESSED_ENDINGS, ENDINGS

RowLocator = Callable[[int], str]
"""Returns the name of the i-th row of a table in messages, such as "flights.csv, row 123"."""
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class BadData(ValueError):
    """Input that cannot be read; the message begins with the place ("flights.csv, row 123: ...")."""


def expand(data: Data) -> list[str]:
    """The files that names, directories and patterns stand for, in the order of reading.

    A file that does not exist, or that comes twice, is refused.
    """
    if isinstance(data, str | os.PathLike):
        return _expand_one(os.fspath(data))
    files = [file for item in data for file in _expand_one(os.fspath(item))]
    if not files:
        raise BadData("no data: name at least one file, directory or pattern.")
    first: dict[object, str] = {}
    for file in files:
        known = first.get(_identity(file))
        if known is not None:
            names = file if known == file else f"{known} and {file}"
            raise BadData(
                f"no file may be named twice, because each row is read once; got {names}."
            )
        first[_identity(file)] = file
    return files


def _identity(file: str) -> object:
    """The identity of a file, the same for all names and links that lead to it."""
    if file == "-" or not os.path.exists(file):
        return file
    status = os.stat(file)
    return status.st_dev, status.st_ino


def suffix_of(file: str) -> str:
    """The ending of a file's name, before that of a compression."""
    path = Path(file.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED_ENDINGS else path.suffix


def stem_of(file: str) -> str:
    """The name of a file without its folder and the endings of data ("may" of "days/may.csv.gz")."""
    path = Path(file)
    while path.suffix.lower() in (*ENDINGS, *COMPRESSED_ENDINGS, ".txt"):
        path = path.with_suffix("")
    return path.name


def _expand_one(path: str) -> list[str]:
    if path == "-" or os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return _directory(path)
    if not os.path.exists(path) and glob.has_magic(path):
        files = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        if not files:
            raise BadData(f"{path}: no file has a name of this pattern.")
        return files
    if not os.path.lexists(path):
        raise BadData(f"{path}: no such file.")
    return [path]


def _directory(path: str) -> list[str]:
    """The files of a directory that are not hidden: those with a known ending, or all if there are none."""
    try:
        names = sorted(name for name in os.listdir(path) if name[0] not in "._")
    except OSError as error:
        raise BadData(f"{path}: cannot be listed ({(error.strerror or '').lower()}).") from error
    files = [os.path.join(path, name) for name in names if os.path.isfile(os.path.join(path, name))]
    data = [file for file in files if suffix_of(file) in ENDINGS]
    if not files:
        raise BadData(f"{path}: is a directory without files.")
    return data or files
