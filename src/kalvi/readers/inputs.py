"""The decompressed bytes of a file, a pipe or standard input."""

import hashlib
import io
import os
import stat
import sys
import tempfile
from typing import Any

import pyarrow as pa

from kalvi.readers.errors import as_bad_data
from kalvi.readers.files import BadData, suffix_of
from kalvi.readers.formats import COMPRESSIONS

HEAD = 2**16
"""The number of first bytes by which a file is recognised."""
DIGESTED = 64
"""The digest of a large file is computed from so many blocks, evenly spaced over the file."""


class ReplayedStream(io.RawIOBase):
    """A pipe that can be read again, because its bytes are kept in memory until they are released."""

    def __init__(self, raw: Any):
        self._raw, self._kept, self._at, self._keeping = raw, bytearray(), 0, True

    def rewind(self, *, release: bool) -> None:
        """Go back to the beginning; `release` says that this is the last time."""
        if not self._keeping:
            raise BadData("standard input: can be read only once; save it as a file first.")
        self._at, self._keeping = 0, not release

    def close_for_good(self) -> None:
        """Close the pipe, unless it is standard input."""
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._at < len(self._kept):
            end = len(self._kept) if size < 0 else self._at + size
            data = bytes(self._kept[self._at : end])
            self._at += len(data)
            return data
        if not self._keeping:
            self._kept = bytearray()
            self._at = 0
        data = self._whole(size)
        if self._keeping:
            self._kept += data
            self._at = len(self._kept)
        return data

    def _whole(self, size: int) -> bytes:
        """Read so many bytes, or all that are left; a pipe may return fewer at a time than asked for."""
        data = self._raw.read(size)
        if not 0 < len(data) < size:
            return data
        whole = bytearray(data)
        while len(whole) < size and (more := self._raw.read(size - len(whole))):
            whole += more
        return bytes(whole)


def standard_input() -> Any:
    """Standard input without Python's buffer, whose lock would be held while waiting for bytes."""
    try:
        return io.FileIO(sys.stdin.fileno(), closefd=False)
    except io.UnsupportedOperation:  # sys.stdin was replaced by something else
        return sys.stdin.buffer


class Input:
    """A file, or a stream such as standard input, which can be opened several times."""

    def __init__(self, path: str):
        self.path = path
        self.name = "standard input" if path == "-" else os.path.basename(path)
        self._stream: ReplayedStream | None = None
        self._raw: Any = None
        self.size: int | None = None
        with as_bad_data(self.name, "cannot be opened"):
            if path == "-":
                self._stream = ReplayedStream(standard_input())
            elif stat.S_ISREG((status := os.stat(path)).st_mode):
                self.size, self._changed = status.st_size, status.st_mtime_ns
            else:  # a named pipe, or the shell's <(command)
                self._stream = ReplayedStream(open(path, "rb", buffering=0))  # noqa: SIM115
        self.head = self._peek(self.open_raw())
        packed = (name for name, c in COMPRESSIONS.items() if self.head.startswith(c.begins))
        self.codec = next(packed, None)
        if self.codec:
            with as_bad_data(self.name, f"is not a whole {self.codec} file"):
                self.head = self._peek(self.open())
        if not self.head:
            raise BadData(f"{self.name}: is empty.")
        self.close()

    @property
    def suffix(self) -> str:
        """The ending of the name, before that of a compression."""
        return suffix_of(self.path)

    def open(self, *, last: bool = False) -> Any:
        """Open the decompressed bytes as a stream; `last` says that a pipe is read for the last time."""
        raw = self.open_raw(last=last)
        return pa.CompressedInputStream(raw, self.codec) if self.codec else raw

    def open_raw(self, *, last: bool = False) -> Any:
        """Open the bytes without decompressing them."""
        self.close()
        if self._stream is not None:
            self._stream.rewind(release=last)
            self._raw = pa.PythonFile(self._stream, mode="r")
            return self._raw
        self.check_unchanged()
        with as_bad_data(self.name, "cannot be opened"):
            self._raw = pa.OSFile(self.path, "rb")
        return self._raw

    def seekable(self) -> Any:
        """Open the file for random access; a pipe is first copied to a temporary file."""
        if self.codec:
            raise BadData(f"{self.name}: is compressed as a whole; decompress it first.")
        if self._stream is None:
            return self.open_raw()
        with as_bad_data(self.name, "cannot be copied to a temporary file"):
            stream, spool = self.open_raw(last=True), tempfile.NamedTemporaryFile()  # noqa: SIM115
            while data := stream.read(2**22):
                spool.write(data)
            spool.flush()
        self._spool, self._stream, self.path = spool, None, spool.name
        status = os.stat(self.path)
        self.size, self._changed = status.st_size, status.st_mtime_ns
        return self.open_raw()

    def check_unchanged(self) -> None:
        """Refuse a file that has changed since it was opened first."""
        if self._stream is not None:
            return
        with as_bad_data(self.name, "cannot be opened"):
            status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != (self.size, self._changed):
            raise BadData(f"{self.name}: has changed since it was opened; begin again.")

    def position(self) -> int | None:
        """The number of bytes that were read; None for a pipe."""
        if self._stream is not None:
            return None
        try:
            return 0 if self._raw is None else self._raw.tell()
        except ValueError:  # the thread that reads has closed the file, perhaps just now
            return 0

    def fingerprint(self) -> dict[str, Any]:
        """The properties that identify this file: path, size, and digests of its beginning and of its
        content."""
        if self._stream is not None or self.name == "standard input":
            return {"path": "-" if self.name == "standard input" else self.path}
        with as_bad_data(self.name, "cannot be opened"), open(self.path, "rb") as file:
            head = hashlib.sha256(file.read(HEAD)).hexdigest()
            digest = _digest(file, self.size or 0)
        return {
            "path": os.path.abspath(self.path),
            "bytes": self.size,
            "head": head,
            "digest": digest,
        }

    def has_grown_from(self, old: dict[str, Any]) -> bool:
        """Whether this is the file of an older fingerprint, with more bytes at its end."""
        if (
            self._stream is not None
            or self.size is None
            or self.size <= old.get("bytes", self.size)
        ):
            return False
        with as_bad_data(self.name, "cannot be opened"), open(self.path, "rb") as file:
            head = hashlib.sha256(file.read(min(HEAD, old["bytes"]))).hexdigest()
        return head == old.get("head") and self.name == os.path.basename(old["path"])

    def close(self) -> None:
        """Close the file; it can be opened again."""
        if self._raw is not None and self._stream is None:
            self._raw.close()

    def close_for_good(self) -> None:
        """Close the file for good."""
        self.close()
        if self._stream is not None:
            self._stream.close_for_good()

    def _peek(self, stream: Any) -> bytes:
        with as_bad_data(self.name, "cannot be read"):
            return stream.read(HEAD)


def _digest(file: Any, size: int) -> str:
    """A digest of the content; of a large file, only evenly spaced blocks are read."""
    last = max(size - HEAD, 0)
    spaced = (last * i // (DIGESTED - 1) for i in range(DIGESTED))
    starts = spaced if size > DIGESTED * HEAD else range(0, size, HEAD)
    digest = hashlib.sha256()
    for start in starts:
        file.seek(start)
        digest.update(file.read(HEAD))
    return digest.hexdigest()
