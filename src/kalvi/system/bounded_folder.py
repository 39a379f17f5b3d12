"""A folder of named files that many processes share and that stays below a given size.

A file is written under another name and then renamed, so no process sees half of it. A checksum detects
damage, for instance from a crash of the machine. Each write removes the files that were unused for longest.
"""

import os
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

CHECKSUM_BYTES = 16


class BoundedFolder:
    """Bytes by name in a folder, which is made by the first write.

    A file counts as missing if it is damaged or another process has removed it. Raises OSError if the
    folder cannot be written to.
    """

    def __init__(self, path: Path, most_bytes: int):
        self.path = path
        self.most_bytes = most_bytes

    def read(self, name: str) -> bytes | None:
        """The bytes written under this name, or None. Reading counts as a use of the file."""
        path = self.path / name
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        if stored[:CHECKSUM_BYTES] != _checksum(stored[CHECKSUM_BYTES:]):
            return None
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)
        return stored[CHECKSUM_BYTES:]

    def write(self, name: str, content: bytes) -> None:
        """Keep `content` under this name, replacing earlier bytes, and remove old files."""
        if len(content) + CHECKSUM_BYTES > self.most_bytes:
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, unfinished = tempfile.mkstemp(dir=self.path, prefix="unfinished-")
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(_checksum(content) + content)
            with suppress(FileNotFoundError):  # another process has removed it to make room
                os.replace(unfinished, self.path / name)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
        self._remove_old_files()

    def _remove_old_files(self) -> None:
        found = []
        for entry in os.scandir(self.path):
            with suppress(FileNotFoundError):  # another process was faster, here and below
                status = entry.stat()
                found.append((status.st_mtime_ns, status.st_size, entry.path))
        excess = sum(size for _, size, _ in found) - self.most_bytes
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)
            excess -= size


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=CHECKSUM_BYTES).digest()
