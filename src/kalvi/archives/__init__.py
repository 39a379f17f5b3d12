"""Any fitted model, Gaussian, state or tree of plain values as one file; nothing is executed on load.

container    the file: safetensors, its sizes checked, its checksum, replaced all at once
packing      a value as a tree of JSON and named arrays
unpacking    and back, nothing trusted
registry     the classes that a file may speak of
older        what files of older versions call them, and the fields that they had
annotations  whether the parts of an object are what its class declares
"""

import json
from pathlib import Path
from typing import Any

from kalvi import __version__
from kalvi.archives import container
from kalvi.archives.packing import Packer, Unsaved
from kalvi.archives.unpacking import Unpacker

FORMAT = 1
"""Of the files written; one of a higher number is from a later kalvi."""
BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""What putting together a value may fail with that no kalvi has written."""


def write(path: str | Path, value: Any, texts: dict[str, str]) -> None:
    """Write a value to `path`, and texts beside it."""
    packer = Packer()
    structure = packer.pack(value, _root(value))
    ours = {"format": str(FORMAT), "version": __version__, "structure": json.dumps(structure)}
    container.write(path, packer.arrays, texts | ours)


def read(path: str | Path) -> Any:
    """The value that was written to `path`, in its own precision whatever JAX's setting."""
    try:
        header, arrays = container.read(path)
        structure = described(header)
        return Unpacker(arrays).unpack(structure)
    except BROKEN as error:
        raise refusal(path, error) from error


def described(header: container.Header) -> Any:
    """The JSON of what a file holds."""
    texts = header.texts
    number = texts.get("format", "")
    if not number.isdecimal() or len(number) > 9 or not {"structure", "sha256"} <= set(texts):
        raise ValueError("it does not say what it holds")
    if int(number) > FORMAT:
        writer = texts.get("version", "a later version")[:20]
        raise ValueError(
            f"it was written by kalvi {writer}, and this is {__version__}; update kalvi"
        )
    return container.parse(texts["structure"])


def refusal(path: str | Path, error: BaseException) -> ValueError:
    """The one sentence about a file that cannot be loaded."""
    why = (
        str(error)
        if type(error) is ValueError
        else f"its parts do not fit ({type(error).__name__})"
    )
    return ValueError(f"{path} is not a saved state: {' '.join(why.split())[:300].rstrip('.')}.")


def _root(value: Any) -> str:
    return "the value" if type(value).__module__ == "builtins" else type(value).__name__


__all__ = ["Unsaved", "described", "read", "refusal", "write"]
