"""Errors about files: one sentence that begins with the place of the error."""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kalvi.readers.files import BadData as BadData

FAILURES = (
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    NotImplementedError,
    SyntaxError,  # NumPy's parser of array headers
    zlib.error,
    zipfile.BadZipFile,
)
"""The exceptions that NumPy, pyarrow and the standard library raise for malformed data."""

LONGEST = 40
"""The most characters of a bad value that are shown."""


def name_row(name: str, row: int) -> str:
    """The name of a row in messages; rows are counted from 1, without the header."""
    return f"{name}, row {row:,}"


def counted(n: int, noun: str) -> str:
    """A number of things, such as "1 row" or "2,000 rows"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def shorten(value: object) -> str:
    """A value, quoted for a message; a long one is cut off."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def list_names(names: list[str], most: int = 5) -> str:
    """The first few names of a list, as text."""
    shown = ", ".join(shorten(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


@contextmanager
def as_bad_data(where: str, what: str) -> Iterator[None]:
    """Turn the exceptions of libraries into an error of the form "where: what (reason)."."""
    try:
        yield
    except BadData:
        raise
    except FAILURES as error:
        raise BadData(f"{where}: {what} ({_reason(error)}).") from error


def _reason(error: BaseException) -> str:
    """The first line of the exception's message, or the name of its class."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")[:200]


def succeeds(attempt: Callable[..., object], *arguments: Any) -> bool:
    """Whether a call raises none of `FAILURES`."""
    try:
        attempt(*arguments)
    except FAILURES:
        return False
    return True


def first_failure(n: int, attempt: Callable[[int], object]) -> int:
    """Find the first bad one of n rows by bisection; `attempt(k)` raises unless the first k are good."""
    good, bad = 0, n
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if succeeds(attempt, middle) else (good, middle)
    return bad - 1
