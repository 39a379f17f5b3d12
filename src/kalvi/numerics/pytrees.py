"""The parameters of any model as one flat vector, and back.

A pytree is anything with arrays as leaves: a NumPy vector, nested dictionaries (Flax), an Equinox module,
or a `state_dict()`, `parameters()` or `named_parameters()` of PyTorch. A `Flattener` is made from a first
pytree. It flattens later ones of the same structure, and unflattens a vector into the same kind.

Floating leaves make up the vector, in the order of the pytree. Everything else (functions, masks, counters
such as PyTorch's `num_batches_tracked`) is carried along: `unflatten` puts back the values of the first
pytree. The vector is float64 if a leaf is, and otherwise float32: half precision is too coarse for
averages. PyTorch is imported only if a tensor is given; tensors are read through DLPack, without a copy.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.numerics.precision import is_traced, matching_precision

SHOWN = 3
"""The most leaves that a message names."""


class Leaf(NamedTuple):
    """The position of a floating leaf in the vector."""

    name: str
    start: int
    shape: tuple[int, ...]
    dtype: str
    device: str | None  # of a tensor; None for an array
    numpy: bool

    @property
    def end(self) -> int:
        """The start of the next leaf."""
        return self.start + int(np.prod(self.shape, dtype=np.int64))

    @property
    def form(self) -> str:
        """The properties of the leaf that must not change."""
        return f"{self.dtype}{list(self.shape)}"


class Flattener:
    """The layout of a pytree in a flat vector.

    Parameters
    ----------
    tree : pytree
        The parameters, with at least one floating leaf.

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> flat = kalvi.networks.Flattener({"weight": np.ones((2, 2)), "bias": np.zeros(2)})
    >>> flat.size
    6
    >>> flat.unflatten(np.arange(6.0))["weight"]
    array([[2., 3.],
           [4., 5.]])
    """

    def __init__(self, tree: Any):
        named, self._structure = _named_leaves(consume_generator(tree))
        self._slots: list[Leaf | Any] = []
        self.size = 0
        for name, leaf in named:
            slot = _describe_leaf(name, leaf, self.size) if _is_floating(leaf) else leaf
            self.size = slot.end if isinstance(slot, Leaf) else self.size
            self._slots.append(slot)
        self._leaves = [slot for slot in self._slots if isinstance(slot, Leaf)]
        if not self._leaves:
            found = ", ".join(f"{name}: {_describe_type(leaf)}" for name, leaf in named[:SHOWN])
            raise TypeError(
                f"parameters need at least one floating-point array; got {found or 'no leaf at all'}. "
                "Give a vector, a dictionary of arrays, an Equinox module or a state_dict."
            )
        wide = any(leaf.dtype == "float64" for leaf in self._leaves)
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    def flatten(self, tree: Any) -> Float[Array, " d"]:
        """The floating leaves as one vector; a different structure or numbers that are not finite are
        refused."""
        named, _ = _named_leaves(consume_generator(tree))
        floating = [(name, leaf) for name, leaf in named if _is_floating(leaf)]
        self._check_structure([_describe_leaf(name, leaf, 0) for name, leaf in floating])
        arrays = [_array(leaf) for _, leaf in floating]
        with matching_precision(self.dtype):
            if any(is_traced(a) or not _on_host(a) for a in arrays):
                vector = jnp.concatenate([jnp.ravel(a).astype(self.dtype) for a in arrays])
            else:
                vector = jnp.asarray(self._join(arrays))
            self._check_finite(vector)
        return vector

    def unflatten(self, vector: Float[Any, " d"]) -> Any:
        """The pytree with these parameters, of the same kind as the first; with JAX arrays inside `jit`."""
        if np.shape(vector) != (self.size,):
            raise ValueError(
                f"these parameters are a vector of shape ({self.size},); got {np.shape(vector)}."
            )
        traced = is_traced(vector)
        away = isinstance(vector, jax.Array) and (traced or not _on_host(vector))
        vector = vector if away else np.asarray(vector)
        with matching_precision(self.dtype):
            leaves = [
                _restore_leaf(slot, vector[slot.start : slot.end], traced)
                if isinstance(slot, Leaf)
                else slot
                for slot in self._slots
            ]
        return jax.tree.unflatten(self._structure, leaves)

    def _join(self, arrays: list[Any]) -> np.ndarray:
        """The arrays as one vector, with a single copy."""
        vector = np.empty(self.size, self.dtype)
        for slot, array in zip(self._leaves, arrays, strict=True):
            vector[slot.start : slot.end].reshape(slot.shape)[...] = np.asarray(array)
        return vector

    def _check_structure(self, found: list[Leaf]) -> None:
        before = {leaf.name: leaf.form for leaf in self._leaves}
        now = {leaf.name: leaf.form for leaf in found}
        if list(before.items()) == list(now.items()):
            return
        changes = [f"{name} is gone" for name in before if name not in now]
        changes += [f"{name} is new" for name in now if name not in before]
        both = (name for name in before if name in now and before[name] != now[name])
        changes += [f"{name} was {before[name]} and is {now[name]}" for name in both]
        changes = changes or ["the leaves came in another order"]
        more = f" and {len(changes) - SHOWN} changes more" if len(changes) > SHOWN else ""
        raise ValueError(
            f"parameters must keep the structure of the first: {'; '.join(changes[:SHOWN])}{more}. "
            "Start anew for another model."
        )

    def _check_finite(self, vector: Array) -> None:
        if is_traced(vector) or bool(np.isfinite(vector).all()):
            return
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        leaf = next(leaf for leaf in self._leaves if place < leaf.end)
        raise ValueError(
            f"parameters must be finite; {leaf.name} holds {np.asarray(vector)[place]}. "
            "Training has diverged: lower its learning rate."
        )


def consume_generator(tree: Any) -> Any:
    """The items of a generator, such as PyTorch's, as a list, or as a dictionary if it yields names as
    well."""
    if not isinstance(tree, Iterator):
        return tree
    items = list(tree)
    named = items and all(
        isinstance(i, tuple) and len(i) == 2 and isinstance(i[0], str) for i in items
    )
    return dict(items) if named else items


def _named_leaves(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    with_paths, structure = jax.tree.flatten_with_path(tree)
    return [
        (jax.tree_util.keystr(path) or "the vector", leaf) for path, leaf in with_paths
    ], structure


def _is_tensor(leaf: Any) -> bool:
    return type(leaf).__module__.partition(".")[0] == "torch"


def _is_floating(leaf: Any) -> bool:
    if _is_tensor(leaf):
        return leaf.is_floating_point()
    return isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _describe_leaf(name: str, leaf: Any, start: int) -> Leaf:
    tensor = _is_tensor(leaf)
    dtype = str(leaf.dtype).removeprefix("torch.")
    device = str(leaf.device) if tensor else None
    return Leaf(name, start, tuple(leaf.shape), dtype, device, isinstance(leaf, np.ndarray))


def _array(leaf: Any) -> Any:
    """A view of a leaf as an array; NumPy has no bfloat16 tensors."""
    if not _is_tensor(leaf):
        return leaf
    tensor = leaf.detach()
    tensor = tensor.float() if str(tensor.dtype) in ("torch.float16", "torch.bfloat16") else tensor
    if str(tensor.device) == "cpu" or jax.default_backend() == "cpu":
        return np.from_dlpack(tensor.cpu())
    return jax.dlpack.from_dlpack(tensor)


def _on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or array.devices() == {jax.devices("cpu")[0]}


def _restore_leaf(leaf: Leaf, part: Any, traced: bool) -> Any:
    """A leaf in its own memory."""
    if traced or (leaf.device is None and not leaf.numpy):
        return jnp.array(part).reshape(leaf.shape).astype(leaf.dtype)
    part = np.asarray(part).reshape(leaf.shape)
    if leaf.numpy:
        return part.astype(leaf.dtype)
    import torch  # pyright: ignore[reportMissingImports]

    return torch.from_numpy(part.copy()).to(dtype=getattr(torch, leaf.dtype), device=leaf.device)


def _describe_type(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", None)
    return type(leaf).__name__ + (f" of {dtype}" if dtype is not None else "")
