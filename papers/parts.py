"""The independent parts of a figure: made by several processes where asked, kept as soon as they are made.

`each(make, arguments)` is `[make(*a) for a in arguments]`. Within `keeping(folder, processes)` every value
goes to a file at once, under the name of the function and of its arguments, so that a run that was stopped
goes on with the part it was at; and so many parts are made side by side.
"""

import hashlib
import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kalvi.cli.console import complete_file
from papers import records

Make = Callable[..., Any]


class Part(NamedTuple):
    """A value, the seconds of processor time it took, and where."""

    value: Any
    seconds: float
    machine: str


class Workshop(NamedTuple):
    """Where parts are kept (None: nowhere), how many are made at a time, those made by other processes."""

    folder: Path | None
    processes: int
    elsewhere: list[Part]


_workshop: ContextVar[Workshop | None] = ContextVar("workshop", default=None)


@contextmanager
def keeping(folder: Path | None, processes: int = 1) -> Iterator[None]:
    """Parts are kept in the folder, if any, and so many are made at a time."""
    token = _workshop.set(Workshop(folder, processes, []))
    try:
        yield
    finally:
        _workshop.reset(token)


def made_elsewhere() -> list[Part]:
    """The parts so far that this process did not make itself: their seconds are not among its own."""
    shop = _workshop.get()
    return [] if shop is None else shop.elsewhere


def each(make: Make, arguments: Sequence[tuple]) -> list[Any]:
    """What `make`, a function of a module, gives for each of the arguments."""
    shop = _workshop.get()
    if shop is None:
        return [make(*a) for a in arguments]
    if shop.processes == 1 or len(arguments) == 1:
        found = [_one(shop.folder, make, a) for a in arguments]
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(shop.processes, mp_context=spawn) as pool:
            found = list(pool.map(partial(_foreign, shop.folder, make), arguments))
    shop.elsewhere.extend(part for part, own in found if not own)
    return [part.value for part, _ in found]


def _foreign(folder: Path | None, make: Make, arguments: tuple) -> tuple[Part, bool]:
    """A part made by a process of its own."""
    return _one(folder, make, arguments)[0], False


def _one(folder: Path | None, make: Make, arguments: tuple) -> tuple[Part, bool]:
    """A part, and whether this process made it now."""
    path = None if folder is None else folder / _name(make, arguments)
    if path is not None and path.exists():
        with path.open("rb") as file:
            return pickle.load(file), False
    began = time.process_time()
    part = Part(make(*arguments), time.process_time() - began, records.machine())
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with complete_file(path, "wb") as file:
            pickle.dump(part, file)
    return part, True


def _name(make: Make, arguments: tuple) -> str:
    """A file's name; arguments are told apart by how they print."""
    digest = hashlib.sha256(repr(arguments).encode()).hexdigest()[:16]
    return f"{make.__module__}.{make.__name__}.{digest}.pickle"
