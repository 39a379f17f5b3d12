"""A folder of files by name that many processes share and that stays below a size.

A file is written under another name and then renamed, so nobody sees half of it; a checksum finds what a
crash of the machine, or anything else, left damaged. Whoever writes removes the files unused for longest.
"""

import os
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

CHECKSUM_BYTES = 16


class BoundedFolder:
    """Bytes by name in a folder, which is made when something is written to it.

    A file that is damaged, or that another process has removed, is not there. Raises OSError where the
    folder cannot be written to.
    """

    def __init__(self, path: Path, most_bytes: int):
        self.path = path
        self.most_bytes = most_bytes

    def read(self, name: str) -> bytes | None:
        """What was written under this name, or None. Reading makes a file one that was used lately."""
        path = self.path / name
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        if stored[:CHECKSUM_BYTES] != _checksum(stored[CHECKSUM_BYTES:]):
            return None
        with suppress(OSError):  # of a folder that can only be read
            os.utime(path)
        return stored[CHECKSUM_BYTES:]

    def write(self, name: str, content: bytes) -> None:
        """Keep `content` under this name, in place of what was there, and remove old files."""
        if len(content) + CHECKSUM_BYTES > self.most_bytes:
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, unfinished = tempfile.mkstemp(dir=self.path, prefix="unfinished-")
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(_checksum(content) + content)
            with suppress(FileNotFoundError):  # so full that another process has removed it
                os.replace(unfinished, self.path / name)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
        self._remove_old_files()

    def _remove_old_files(self) -> None:
        found = []
        for entry in os.scandir(self.path):
            with suppress(FileNotFoundError):  # another process was quicker, here and below
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
