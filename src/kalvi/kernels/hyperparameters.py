"""The hyperparameters of a kernel as one vector of logarithms, and back."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from kalvi.kernels.kernel import Fixed, Kernel, Product, Sum
from kalvi.numerics.namespaces import AnyArray, namespace_of

Logarithms = Float[AnyArray, " p"]


def flatten(kernel: Kernel) -> tuple[Logarithms, Callable[[Logarithms], Kernel]]:
    """The logarithms of the learned hyperparameters, and a function that turns such a vector into a
    kernel."""
    leaves, structure = jax.tree.flatten(kernel, is_leaf=_is_fixed)
    free = [k for k, leaf in enumerate(leaves) if not _is_fixed(leaf)]
    shapes = [np.shape(leaves[k]) for k in free]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    xp = namespace_of(*(leaves[k] for k in free))
    logs = [xp.ravel(xp.log(xp.asarray(leaves[k]))) for k in free]

    def rebuild(theta: Logarithms) -> Kernel:
        filled = list(leaves)
        for k, shape, start, end in zip(free, shapes, ends[:-1], ends[1:], strict=True):
            filled[k] = namespace_of(theta).exp(theta[start:end]).reshape(shape)
        return jax.tree.unflatten(structure, filled)

    return xp.concatenate(logs) if logs else xp.zeros(0), rebuild


def log_slopes(kernel: Kernel, slopes: Kernel) -> np.ndarray:
    """Derivatives with respect to the entries of `flatten`, given those with respect to all
    hyperparameters."""
    values, by = (jax.tree.leaves(tree, is_leaf=_is_fixed) for tree in (kernel, slopes))
    free = [np.ravel(v * s) for v, s in zip(values, by, strict=True) if not _is_fixed(v)]
    return np.concatenate(free).astype(np.float64) if free else np.zeros(0)


def names(kernel: Kernel) -> list[str]:
    """The names of the entries of `flatten`, such as "RBF.length_scale[2]"; equal names are numbered."""
    entries = jax.tree_util.tree_flatten_with_path(kernel, is_leaf=_is_fixed)[0]
    found, owners = [], {}
    for path, leaf in entries:
        if _is_fixed(leaf):
            continue
        owner, depth = kernel, 0
        while isinstance(owner, Sum | Product):
            owner, depth = getattr(owner, path[depth].name), depth + 1
        kind, place = type(owner).__name__, path[:depth]
        alike = owners.setdefault(kind, [])
        if place not in alike:
            alike.append(place)
        found.append((kind, alike.index(place) + 1, jax.tree_util.keystr(path[depth:]), leaf))
    return [
        f"{kind}{number if len(owners[kind]) > 1 else ''}{field}{suffix}"
        for kind, number, field, leaf in found
        for suffix in ([f"[{k}]" for k in range(np.size(leaf))] if np.ndim(leaf) else [""])
    ]


def _is_fixed(node: Any) -> bool:
    return isinstance(node, Fixed)
