"""Models, Gaussians and states on disk: one safetensors file, written whole or not at all.

Nothing is executed on load: there is no pickle in it, and only classes of kalvi are rebuilt.
"""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kalvi import archives
from kalvi.archives import container
from kalvi.numerics.precision import matching


def save(path: str | Path, value: Any, **metadata: Any) -> None:
    """Write a fitted model, a Gaussian, a state or a tree of them to `path`.

    A tree is made of dicts with texts as keys, lists, tuples, texts, numbers, None, NumPy, JAX and CSR
    arrays. A file that is there is replaced, whatever it is; it stays until the new one is safe.
    `metadata` are kept beside the value: whatever JSON can say.

    Of a state of a class of your own, the arrays are kept; `load` needs a state `like` it.
    """
    texts = {"kalvi": json.dumps(metadata)}
    if _foreign(value):
        named = {name: np.asarray(leaf) for name, leaf in _named(value).items()}
        container.write(path, named, texts)
    else:
        archives.write(path, value, texts)


def load(path: str | Path, like: Any = None) -> Any:
    """What was saved at `path`, bit for bit and in its own precision whatever JAX's setting.

    With `like`, what was saved has to have the structure of it.
    """
    if "structure" in _texts(path):
        value = archives.read(path)
        if like is None:
            return value
        found = _named(value)
    elif like is None:
        raise ValueError(f"{path} holds the arrays of a state only; give load a state like it.")
    else:
        try:
            found = container.read(path)[1]
        except ValueError as error:
            raise archives.refusal(path, error) from error
    return _filled(path, like, found)


def metadata(path: str | Path) -> dict[str, Any]:
    """What was said at `save` beside the value."""
    try:
        found = json.loads(_texts(path).get("kalvi", "{}"))
    except (ValueError, RecursionError) as error:
        raise archives.refusal(path, error) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a saved state: its metadata are no table.")
    return found


def _texts(path: str | Path) -> dict[str, str]:
    try:
        return container.read_texts(path)
    except ValueError as error:
        raise archives.refusal(path, error) from error


def _filled(path: str | Path, like: Any, found: dict[str, Any]) -> Any:
    """`like` with the arrays that were found in place of its own."""
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
    with matching(np.float64):
        leaves = [jnp.asarray(found[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _foreign(value: Any) -> bool:
    """Whether a value is a state of a class that is not kalvi's."""
    own = type(value) is tuple or type(value).__module__.startswith("kalvi.")
    return isinstance(value, eqx.Module | tuple) and not own


def _named(state: Any) -> dict[str, Any]:
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
