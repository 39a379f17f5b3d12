"""Compiled programs on disk, so that a later process need not compile them again.

JAX has such a cache, but only for the whole process: turning it on would affect all users of JAX in the
process. The replacement here is in place only while kalvi computes, answers only the threads that compute
for kalvi, and changes no setting. If the user has turned on JAX's own cache, that one is used, for the
programs of kalvi too.

KALVI_CACHE=off in the environment turns the cache off, KALVI_CACHE=/some/folder moves it. If the cache
cannot be written to, nothing is kept: silently in the user's cache folder, as in a container without a
home, and with a warning in a folder that was named.
"""

import os
import platform
import threading
import warnings
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache as jax_cache
from jax._src.config import persistent_cache_min_compile_time_secs as least_seconds
from platformdirs import user_cache_path

from kalvi.system.bounded_folder import BoundedFolder

VARIABLE, OFF = "KALVI_CACHE", "off"
"""The environment variable that moves the cache, and the word that turns it off."""
MOST_BYTES = 2**28
"""The largest size of the folder: about a thousand programs, of up to 1 MB."""


class _Programs:
    """The object that JAX asks for programs while kalvi computes. It answers only the threads in
    `threads`."""

    def __init__(self, folder: BoundedFolder, named: bool):
        self.folder = folder
        self._path = folder.path  # JAX logs it when it closes a cache
        self.named = named  # by the user, who is warned if it does not work
        self.threads: set[int] = set()

    def get(self, key: str) -> bytes | None:
        if threading.get_ident() not in self.threads:
            return None
        return self.folder.read(_file_name(key))

    def put(self, key: str, value: bytes) -> None:
        if threading.get_ident() not in self.threads:
            return
        try:
            self.folder.write(_file_name(key), value)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if self.named:
            warnings.warn(
                f"every process compiles its programs again: {self.folder.path}, named by {VARIABLE}, "
                f"cannot be written to ({error.strerror}). Name another folder, or set {VARIABLE}={OFF}.",
                stacklevel=3,
            )
        self.named = False


class cached_programs:
    """A context in which programs of this thread are read from the folder, or compiled and written to it.

    If one thread leaves while another enters, an answer may be lost, which only costs a compilation.
    """

    def __enter__(self) -> None:
        self.programs, self.thread = _programs(), threading.get_ident()
        if self.programs is None or self.thread in self.programs.threads or _user_has_cache():
            self.programs = None
            return
        self.programs.threads.add(self.thread)
        jax_cache._cache = self.programs  # noqa: SLF001
        self.every_program = least_seconds(0.0)
        self.every_program.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.programs is None:
            return
        self.every_program.__exit__(*error)
        self.programs.threads.discard(self.thread)
        if not self.programs.threads and jax_cache._cache is self.programs:  # noqa: SLF001
            jax_cache._cache = None  # noqa: SLF001


def _user_has_cache() -> bool:
    there = jax_cache._cache  # noqa: SLF001
    named = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    return named is not None or not (there is None or isinstance(there, _Programs))


@cache
def _programs() -> _Programs | None:
    named = os.environ.get(VARIABLE, "")
    if named.lower() == OFF:
        return None
    path = Path(named).expanduser().absolute() if named else _users_folder()
    return _Programs(BoundedFolder(path / "programs", MOST_BYTES), bool(named)) if path else None


def _users_folder() -> Path | None:
    """The user's cache folder; None if the user has no home."""
    try:
        path = user_cache_path("kalvi", appauthor=False)
    except RuntimeError:  # older versions of platformdirs give "~/.cache"
        return None
    return path if path.is_absolute() else None


def _file_name(key: str) -> str:
    """The name of a file: JAX's key lacks only the kind of processor, and machines may share a home."""
    return blake2b(f"{key} {_processor()}".encode(), digest_size=20).hexdigest()


@cache
def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if not described.exists():
        return f"{platform.machine()} {platform.processor()}"
    lines = described.read_text().splitlines()
    return " ".join(
        sorted({line for line in lines if line.startswith(("flags", "Features", "isa"))})
    )
