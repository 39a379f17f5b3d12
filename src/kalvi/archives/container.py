"""One file of named arrays and texts: safetensors with a digest, replaced atomically.

    8 bytes     length of the header, little-endian
    header      JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, …}
    the rest    the arrays, one after another

(https://github.com/huggingface/safetensors.) The metadata of our files contain the SHA-256 of all bytes,
computed with zeros in place of its own digits, by which truncated and changed files are found. Someone who
changes a file on purpose can change the digest too. So files are read by the safetensors package, which
checks every size against the file before it allocates anything.

Files are written here and not by the package, for four reasons. The package writes texts in random order,
and the same value must give the same bytes. A killed process leaves a temporary file, and ours has a name
by which it is found and removed. Our errors name the file and the reason, as `OSError` does. And each array
is hashed and written from where it is, without a copy.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

MOST_HEADER = 100_000_000
"""The longest header in bytes, the same limit as in the package."""
DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
}
"""The array types that can be stored, by safetensors' names."""
NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
UNSIGNED = "0" * 64


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a new file, which replaces `path` once it is complete and on the disk."""
    named, path = path, Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with _naming(named, temporary):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if path.exists():
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


@contextmanager
def _naming(path: str | Path, temporary: Path) -> Iterator[None]:
    """Make errors about the temporary file, such as a full disk, name the file that was asked for."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _sync_folder(folder: Path) -> None:
    """Sync the folder, which holds the new name, if the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def write(path: str | Path, arrays: dict[str, np.ndarray], texts: dict[str, str]) -> None:
    """Write arrays and texts to one file, atomically."""
    stored = _in_order({name: np.asarray(array, order="C") for name, array in arrays.items()})
    header: dict[str, Any] = {"__metadata__": texts | {"sha256": UNSIGNED}}
    end = 0
    for name, array in stored.items():
        begin, end = end, end + array.nbytes
        offsets = [begin, end]
        dtype = NAMES[array.dtype]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > MOST_HEADER:
        most = f"{MOST_HEADER} is the most"
        raise ValueError(f"{path} would need a header of {len(raw)} bytes; {most}.")
    signed = _with_digest(raw, UNSIGNED, _digest(raw, stored.values()))
    with replacing(path) as file:
        file.write(len(signed).to_bytes(8, "little") + signed)
        for array in stored.values():
            file.write(_bytes(array))


def read_texts(path: str | Path) -> dict[str, str]:
    """The texts of a file, without reading its arrays."""
    with _opened(path) as (_, tensors):
        return tensors.metadata() or {}


def read(path: str | Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and the arrays of a file; its digest is checked if it has one."""
    with _opened(path) as (header, tensors):
        texts = tensors.metadata() or {}
        arrays = _in_order({name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118
    for name, array in arrays.items():
        if array.dtype not in NAMES:
            raise ValueError(f"array {name[:40]!r} has the type {array.dtype}, which no model has")
    written = texts.get("sha256")
    unsigned = _with_digest(header, written or "", UNSIGNED)
    if written is not None and written != _digest(unsigned, arrays.values()):
        raise ValueError("its content does not match its checksum, so it is damaged or was changed")
    return texts, arrays


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[bytes, Any]]:
    """The header of a file, byte by byte, and the file as the package opens it."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= MOST_HEADER or file.read(1) != b"{":
            raise ValueError("it does not begin like a file of kalvi")
        try:
            with safe_open(path, framework="np") as tensors:
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    yield b"{" + file.read(length - 1), tensors
                    return
        except (SafetensorError, TypeError, KeyError) as error:
            reason = str(error).removeprefix("Error while deserializing header: ")
            raise ValueError(f"it was cut short or changed ({reason})") from error
    with _opened(path) as again:  # the file was replaced between the two openings
        yield again


def _in_order(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in the order of a file, the largest item size first, so that each is aligned."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    return {name: arrays[name] for name in order}


def _digest(header: bytes, arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256(header)
    for array in arrays:
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: Any) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return memoryview(array.reshape(-1).view(np.uint8))


def _with_digest(header: bytes, old: str, new: str) -> bytes:
    return header.replace(f'"sha256": "{old}"'.encode(), f'"sha256": "{new}"'.encode(), 1)
