"""Any fitted model, Gaussian, state or tree of plain values as one file; nothing is executed on load.

container    the file: safetensors, signed, replaced all at once
packing      a value as a tree of JSON and named arrays
unpacking    a tree of JSON and named arrays as a value
registry     the classes and functions that a file may name
consistency  whether the parts of a value are what its class declares
older        names and fields of older versions as they are today
checkpoints  `kalvi.save` and `kalvi.load`
"""

import json
from pathlib import Path
from typing import Any

from kalvi import __version__
from kalvi.archives import container
from kalvi.archives.packing import Packer, Unsaved
from kalvi.archives.unpacking import Unpacker, parse_structure

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
        texts, arrays = container.read(path)
        structure = structure_of(texts)
        return Unpacker(arrays).unpack(structure)
    except BROKEN as error:
        raise refusal(path, error) from error


def structure_of(texts: dict[str, str]) -> Any:
    """The JSON tree that describes the value of a file."""
    number = texts.get("format", "")
    if not number.isdecimal() or len(number) > 9 or not {"structure", "sha256"} <= set(texts):
        raise ValueError("it does not say what it holds")
    if int(number) > FORMAT:
        writer = texts.get("version", "a later version")[:20]
        raise ValueError(
            f"it was written by kalvi {writer}, and this is {__version__}; update kalvi"
        )
    return parse_structure(texts["structure"])


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


__all__ = ["Unsaved", "read", "refusal", "structure_of", "write"]
