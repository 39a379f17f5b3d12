"""Checks that the parts of a value from a file are what its class declares, and agree with each other.

They concern the names of fields and attributes, their types, the lengths of axes, absurd numbers, and
Gaussians that are none. `tabular.integrity` has further checks of table models.
"""

import dataclasses
from collections.abc import Iterable
from inspect import get_annotations
from types import UnionType
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np
from jaxtyping import AbstractArray

from kalvi.gaussians import Gaussian
from kalvi.numerics.linalg import LowRankPlusDiagonal

ARRAYS = (np.ndarray, np.generic, jax.Array)
MOST = 2**20
"""The largest count of loops, classes or points; with a larger one, computations would never end."""
NUMBERS = {int: (int, np.integer), float: (int, float, np.floating), bool: (bool, np.bool_)}


def check(value: Any, kind: str) -> Any:
    """The value, if its parts are what its class declares; `kind` is "module" or "record"."""
    cls: Any = type(value)
    if kind == "module":
        fields = dataclasses.fields(cls)
        _check_fields(cls, {field.name: field.type for field in fields}, vars(value))
        static = {f.name: vars(value)[f.name] for f in fields if f.metadata.get("static")}
        _check_counts(cls, static)
    elif kind == "record":
        _check_fields(cls, _annotations(cls), value._asdict())
    if isinstance(value, LowRankPlusDiagonal) and value.sign not in (1, -1):
        raise ValueError(f"{cls.__name__} has a sign other than 1 and -1")
    if isinstance(value, Gaussian):
        _check_gaussian(value)
    return value


def _annotations(cls: type) -> dict[str, Any]:
    """The declared types of a named tuple, even if it inherits its fields."""
    return get_annotations(next(base for base in cls.__mro__ if "_fields" in vars(base)))


def check_field_names(found: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse fields that are not those of the class."""
    if set(found) != set(wanted):
        raise ValueError("an object has other fields than its class")


def check_attributes(cls: type, names: Iterable[str]) -> None:
    """Refuse attributes that would hide a method, or are Python's own."""
    if any(name[:2] == "__" or _hides(cls, name) for name in names):
        raise ValueError(f"{cls.__name__} has other attributes than its class")


def _hides(cls: type, name: str) -> bool:
    """Whether an attribute of this name would hide a method; nothing hides a property."""
    declared = any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)
    found = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
    return not declared and any(not isinstance(part, property) for part in found)


def _check_fields(cls: type, declared: dict[str, Any], parts: dict[str, Any]) -> None:
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


def _check_counts(cls: type, static: dict[str, Any]) -> None:
    """Refuse absurd numbers of loops, classes or points."""
    for name, count in static.items():
        if type(count) is int and abs(count) > MOST:
            raise ValueError(f"{cls.__name__}.{name} is {count}; {MOST} is the most")


def _check_gaussian(q: Gaussian) -> None:
    """Refuse a Gaussian whose parts have different lengths, are not finite, or give negative variances."""
    d, widths = q.mean.shape[-1:], q.widths()
    if any(width.shape[-1:] != d for width in widths):
        raise ValueError(
            f"{type(q).__name__} has a mean of {d[0]} numbers and other parts of another length"
        )
    if q.mean.ndim > 1:  # of a grid, some member may have run away while another is chosen
        return
    whole = [leaf for leaf in jax.tree.leaves(q) if np.issubdtype(leaf.dtype, np.floating)]
    if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in whole):
        raise ValueError(
            f"{type(q).__name__} holds numbers that are not finite, so it is not a distribution"
        )
    if any(np.any(np.asarray(width) < 0) for width in widths):
        raise ValueError(f"{type(q).__name__} has a negative variance")
