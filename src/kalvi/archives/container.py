"""One file of named arrays and text: safetensors, read with suspicion and replaced all at once.

    8 bytes     length of the header, little-endian
    header      JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, …}
    the rest    the arrays, one after another

(https://github.com/huggingface/safetensors.) A file of ours says in its metadata the SHA-256 of all its
bytes, its own digits taken as zeros: what was cut short or changed is found. Whoever changes a file on
purpose can write another digest, so everything is checked besides, sizes before anything is allocated.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

MOST_HEADER = 2**26
"""Bytes of a header at most."""
MOST_AXES = 32
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


class Part(NamedTuple):
    """Where an array lies among the bytes after the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """What a file says of itself, checked against its size."""

    parts: dict[str, Part]
    texts: dict[str, str]
    raw: bytes


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A new file in the place of `path`, once it is whole and on the disk; until then the old one stays."""
    named, path = path, Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with _told_of(named, temporary):
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
def _told_of(path: str | Path, temporary: Path) -> Iterator[None]:
    """Trouble with the file being written, such as a full disk, is told of the file that was asked for."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _sync_folder(folder: Path) -> None:
    """The new name on the disk as well, where folders can be synced."""
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
    # the widest first, as safetensors has it: every array then begins at a multiple of its item size
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    stored = {name: np.ascontiguousarray(arrays[name]).reshape(-1) for name in order}
    header: dict[str, Any] = {"__metadata__": texts | {"sha256": UNSIGNED}}
    end = 0
    for name, flat in stored.items():
        begin, end = end, end + flat.nbytes
        header[name] = {
            "dtype": NAMES[flat.dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > MOST_HEADER:
        raise ValueError(
            f"{path} would need a header of {len(raw)} bytes; {MOST_HEADER} is the most."
        )
    digest = hashlib.sha256(raw)
    for flat in stored.values():
        digest.update(_raw(flat))
    raw = _with_digest(raw, UNSIGNED, digest.hexdigest())
    with replacing(path) as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for flat in stored.values():
            file.write(_raw(flat))


def _raw(flat: Any) -> memoryview:
    """The bytes of an array, not copied."""
    return memoryview(flat.view(np.uint8))


def _with_digest(raw: bytes, old: str, new: str) -> bytes:
    return raw.replace(f'"sha256": "{old}"'.encode(), f'"sha256": "{new}"'.encode(), 1)


def read_header(path: str | Path) -> Header:
    """What a file says of itself; its arrays are not read."""
    with open(path, "rb") as file:
        return _header(file)


def read(path: str | Path) -> tuple[Header, dict[str, np.ndarray]]:
    """The header and the arrays; the digest is checked where there is one."""
    with open(path, "rb") as file:
        header = _header(file)
        written = header.texts.get("sha256")
        digest = hashlib.sha256(_with_digest(header.raw, written or "", UNSIGNED))
        arrays = {}
        for name, part in sorted(header.parts.items(), key=lambda item: item[1][2:]):
            flat = np.fromfile(file, part.dtype, prod(part.shape))
            digest.update(_raw(flat))
            arrays[name] = flat.reshape(part.shape)
    if written is not None and written != digest.hexdigest():
        raise ValueError(
            "its content is not what its checksum says, so it is damaged or was changed"
        )
    return header, arrays


def _header(file: BinaryIO) -> Header:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > MOST_HEADER or file.read(1) != b"{":
        raise ValueError("it does not begin as a file of kalvi does")
    if 8 + length > size:
        raise ValueError(f"it was cut short: it has {size} bytes and its header alone {8 + length}")
    raw = b"{" + file.read(length - 1)
    found = parse(raw)
    if not isinstance(found, dict):
        raise ValueError("its header is not a table")
    texts = found.pop("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("its metadata are not texts")
    parts = {name: _part(name, entry) for name, entry in found.items()}
    _check_places(parts, size - 8 - length)
    return Header(parts, texts, raw)


def parse(text: str | bytes) -> Any:
    """The value of a JSON text; tables have each name once, and numbers are numbers."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its header is not JSON") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header gives a name twice")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"its header holds {name}")


def _part(name: str, entry: Any) -> Part:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"its entry {name[:40]!r} describes no array")
    kind, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"array {name[:40]!r} has the unknown type {str(kind)[:20]!r}")
    if not (_counts(shape) and len(shape) <= MOST_AXES and _counts(places) and len(places) == 2):
        raise ValueError(f"array {name[:40]!r} has no possible shape or place")
    part = Part(np.dtype(DTYPES[kind]), tuple(shape), *places)
    if prod(part.shape) * part.dtype.itemsize != part.end - part.begin:
        raise ValueError(f"array {name[:40]!r} does not have the size of its shape")
    return part


def _counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**62 for n in numbers)


def _check_places(parts: dict[str, Part], size: int) -> None:
    """Refuse arrays that overlap, leave gaps, or do not end with the file."""
    end = 0
    for part in sorted(parts.values(), key=lambda part: part[2:]):
        if part.begin != end:
            raise ValueError("its arrays overlap or leave gaps")
        end = part.end
    if end != size:
        raise ValueError(
            f"its arrays need {end} bytes and it has {size}: it was cut short or added to"
        )
