"""Any state on disk: one safetensors file, written whole or not at all, nothing executed on load."""

import json
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

State = TypeVar("State")


def save(path: str | Path, state: State, **metadata: str) -> None:
    """Write the arrays of `state` to `path` atomically: the old file stays until the new one is safe."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(_named(state), temporary, {"kalvi": json.dumps(metadata)})
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | Path, like: State) -> State:
    """The state saved at `path`, in the structure of `like`."""
    wanted = _named(like)
    try:
        with safe_open(path, "numpy") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a saved state: {error}.") from error
    for name, array in wanted.items():
        if name not in found:
            raise ValueError(f"{path} holds no '{name}'; it was saved from another kind of state.")
        if found[name].shape != array.shape or found[name].dtype != array.dtype:
            raise ValueError(
                f"'{name}' in {path} is {found[name].dtype}{list(found[name].shape)}; "
                f"needed {array.dtype}{list(array.shape)}."
            )
    leaves = [jnp.asarray(found[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def metadata(path: str | Path) -> dict[str, str]:
    """What was said at `save` beside the state."""
    with safe_open(path, "numpy") as file:
        return json.loads((file.metadata() or {}).get("kalvi", "{}"))


def _named(state: State) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
