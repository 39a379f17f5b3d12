"""Whether the parts of an object are what its class declares: types, axes that agree, proper Gaussians."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np
from jaxtyping import AbstractArray

from kalvi.gaussians import Gaussian

ARRAYS = (np.ndarray, np.generic, jax.Array)
MOST = 2**20
"""Counts of loops, classes and points at most: more would never end."""
NUMBERS = {int: (int, np.integer), float: (int, float, np.floating), bool: (bool, np.bool_)}


def check_fields(cls: type, declared: dict[str, Any], parts: dict[str, Any]) -> None:
    """Refuse parts that contradict the annotations of a class, or each other.

    Arrays may have further axes in front, the same for all: a grid of states is one state of such arrays.
    """
    axes: dict[str, Any] = {}
    for name, part in parts.items():
        if not _fits(part, declared[name], axes):
            raise ValueError(f"{cls.__name__}.{name} has a type or a shape that it cannot have")


def _fits(value: Any, declared: Any, axes: dict[str, Any]) -> bool:
    origin, inner = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return any(_fits(value, each, axes) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and _parts_fit(value, inner)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, inner[1], {}) for v in value.values())
    if not isinstance(declared, type) or declared is Any:
        return True
    if declared is type(None):
        return value is None
    if issubclass(declared, AbstractArray):
        return isinstance(value, ARRAYS) and _array_fits(value, declared, axes)
    if declared in NUMBERS:
        single = isinstance(value, ARRAYS) and value.ndim == 0
        return single or isinstance(value, NUMBERS[declared])
    own = declared.__module__.startswith("kalvi.") and not vars(declared).get("_is_protocol")
    return not (own or declared in (str, dict, np.ndarray)) or isinstance(value, declared)


def _parts_fit(value: tuple, inner: tuple) -> bool:
    """Whether the parts of a tuple are of the types declared, or all of one."""
    if inner[-1:] == (...,):
        return all(_fits(part, inner[0], {}) for part in value)
    return len(value) == len(inner) and all(map(_fits, value, inner, [{} for _ in inner]))


def _array_fits(value: Any, declared: Any, axes: dict[str, Any]) -> bool:
    if not _dtype_fits(value, declared):
        return False
    names = declared.dim_str.split()
    if not all(name.isidentifier() or name.isdigit() for name in names):
        return True
    front, own = value.shape[: value.ndim - len(names)], value.shape[value.ndim - len(names) :]
    if value.ndim < len(names) or axes.setdefault("in front", front) != front:
        return False
    return all(
        size == (int(name) if name.isdigit() else axes.setdefault(name, size))
        for name, size in zip(names, own, strict=True)
    )


def _dtype_fits(value: Any, declared: Any) -> bool:
    """Whether an array has one of the types declared; a single whole number may stand for any number."""
    whole = value.ndim == 0 and np.issubdtype(value.dtype, np.integer)
    return value.dtype.name in (*declared.dtypes, "bool") or (
        whole and "float64" in declared.dtypes
    )


def check_counts(cls: type, static: dict[str, Any]) -> None:
    """Refuse numbers of loops, classes or points that nobody can have meant."""
    for name, count in static.items():
        if type(count) is int and abs(count) > MOST:
            raise ValueError(f"{cls.__name__}.{name} is {count}; {MOST} is the most")


def check_gaussian(q: Gaussian) -> None:
    """Refuse a Gaussian whose parts have different lengths, that is nowhere, or has no width."""
    d, widths = q.mean.shape[-1:], q.widths()
    if any(width.shape[-1:] != d for width in widths):
        raise ValueError(f"{type(q).__name__} has a mean of {d[0]} numbers and another width")
    if q.mean.ndim > 1:  # of a grid, some member may have run away while another is chosen
        return
    whole = [leaf for leaf in jax.tree.leaves(q) if np.issubdtype(leaf.dtype, np.floating)]
    if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in whole):
        raise ValueError(f"{type(q).__name__} holds what is not finite: it is no distribution")
    if any(np.any(np.asarray(width) < 0) for width in widths):
        raise ValueError(f"{type(q).__name__} has a negative width")
