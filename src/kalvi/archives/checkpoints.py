"""Models, Gaussians and states on disk, each in one safetensors file.

A file is written completely or not at all. Loading executes nothing: there is no pickle in a file, and only
classes of kalvi are rebuilt.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kalvi import __version__
from kalvi.archives import container
from kalvi.archives.packing import Packer
from kalvi.archives.unpacking import Unpacker, parse_structure
from kalvi.numerics.precision import matching_precision

FORMAT = 1
"""Version of the file format; a file with a higher number is from a later kalvi."""
BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""Errors that may be raised when a forged or damaged value is put together."""


def save(path: str | Path, value: Any, **metadata: Any) -> None:
    """Write a fitted model, a Gaussian, a state or a tree of them to `path`.

    A tree may have dicts with texts as keys, lists, tuples, texts, numbers, None, and arrays of NumPy, JAX
    and SciPy (CSR). An existing file is replaced, whatever it is, once the new one is complete. `metadata`
    may be anything that JSON can express.

    If the state is of a class of your own, only its arrays are saved; `load` then needs a state `like` it.
    """
    texts = {"kalvi": json.dumps(metadata)}
    if _foreign(value):
        arrays = {name: np.asarray(leaf) for name, leaf in _named(value).items()}
    else:
        packer, plain = Packer(), type(value).__module__ == "builtins"
        structure = packer.pack(value, "the value" if plain else type(value).__name__)
        texts |= {"format": str(FORMAT), "version": __version__, "structure": json.dumps(structure)}
        arrays = packer.arrays
    container.write(path, arrays, texts)


def load(path: str | Path, like: Any = None) -> Any:
    """Load the value that was saved at `path`, with the same bits and precision, whatever JAX's setting.

    `like` is a state of the same structure, whose arrays have the same names, shapes and types.
    """
    with _refusing(path):
        texts, arrays = container.read(path)
        value = Unpacker(arrays).unpack(_structure(texts)) if "structure" in texts else None
    if like is not None:
        return _filled(path, like, arrays if value is None else _named(value))
    if "structure" not in texts:
        raise ValueError(f"{path} holds the arrays of a state only; give load a state like it.")
    return value


def metadata(path: str | Path) -> dict[str, Any]:
    """The `metadata` that were given to `save`."""
    with _refusing(path):
        found = json.loads(container.read_texts(path).get("kalvi", "{}"))
        if not isinstance(found, dict):
            raise ValueError("its metadata are not a table")
        return found


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """Turn any error in reading a file into one sentence about it."""
    try:
        yield
    except BROKEN as error:
        own = type(error) is ValueError
        why = str(error) if own else f"its parts do not fit ({type(error).__name__})"
        why = " ".join(why.split())[:300].rstrip(".")
        raise ValueError(f"{path} is not a saved state: {why}.") from error


def _structure(texts: dict[str, str]) -> Any:
    """The JSON tree that describes the value of a file."""
    number = texts.get("format", "")
    if not number.isdecimal() or len(number) > 9 or "sha256" not in texts:
        raise ValueError("it does not say what it holds")
    if int(number) > FORMAT:
        writer = texts.get("version", "a later version")[:20]
        raise ValueError(
            f"it was written by kalvi {writer}, and this is {__version__}; update kalvi"
        )
    return parse_structure(texts["structure"])


def _filled(path: str | Path, like: Any, found: dict[str, Any]) -> Any:
    """A copy of `like` with the arrays of the file."""
    wanted = _named(like)
    for name, leaf in wanted.items():
        if name not in found:
            raise ValueError(f"{path} holds no '{name}'; it was saved from another kind of state.")
        array, there = np.asarray(leaf), np.asarray(found[name])
        if there.shape != array.shape or there.dtype != array.dtype:
            raise ValueError(
                f"'{name}' in {path} is {there.dtype}{list(there.shape)}; "
                f"needed {array.dtype}{list(array.shape)}."
            )
    with matching_precision(np.float64):
        leaves = [jnp.asarray(found[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _foreign(value: Any) -> bool:
    """Whether a value is a state of a class that is not kalvi's."""
    own = type(value) is tuple or type(value).__module__.startswith("kalvi.")
    return isinstance(value, eqx.Module | tuple) and not own


def _named(state: Any) -> dict[str, Any]:
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
