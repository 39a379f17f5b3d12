"""Puts values together again from a tree of plain JSON and named arrays, without trusting them.

The words are those of `packing`. Whatever does not fit is refused. Nothing is called but the constructors
of NumPy, SciPy and JAX, the factories of default fields that an older file lacks, the changes of `older`
and, for estimators, their own `__setstate__`.
"""

import dataclasses
import json
import re
from inspect import signature
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.sparse as sp

from kalvi.archives import older, registry
from kalvi.archives.consistency import check, check_attributes, check_field_names
from kalvi.archives.container import NAMES
from kalvi.archives.packing import DEEPEST, INTEGERS, is_plain
from kalvi.numerics.precision import matching_precision

FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
DTYPES = {dtype.name: dtype for dtype in NAMES}
BYTES = re.compile(r"<U[1-9]\d{0,8}|\|S[1-9]\d{0,8}|<[Mm]8(\[\d{0,6}[A-Za-z]{1,2}\])?")
LAST_CHARACTER = 0x10FFFF


class Unpacker:
    """Makes values from the JSON and the arrays of a file."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays

    def unpack(self, node: Any, depth: int = 0) -> Any:
        """The value of a node."""
        if node is None or type(node) in (bool, str, float):
            return node
        if type(node) is int and node in INTEGERS:
            return node
        if depth > DEEPEST:
            raise ValueError(f"it nests deeper than {DEEPEST} levels")
        return self._container(node, depth + 1)

    def _container(self, node: Any, depth: int) -> Any:
        match node:
            case ["float", str(name)]:
                return FLOATS[name]
            case ["list", items]:
                return self._items(items, depth)
            case ["tuple", items]:
                return tuple(self._items(items, depth))
            case ["dict", keys, values]:
                return self._dict(self._items(keys, depth), self._items(values, depth))
            case ["slice", [_, _, _] as ends] if all(e is None or type(e) is int for e in ends):
                return slice(*ends)
            case _:
                return self._numbers(node, depth)

    def _numbers(self, node: Any, depth: int) -> Any:
        match node:
            case ["key", str(kind), name] if kind in KEYS:
                return jr.wrap_key_data(_to_jax(self._array(name)), impl=kind)
            case ["jax", name]:
                return _to_jax(self._array(name))
            case ["array", name]:
                return self._array(name)
            case ["objects", list(shape), items]:
                return _object_array(self._items(items, depth), _shape(shape))
            case ["bytes", str(dtype), list(shape), name] if BYTES.fullmatch(dtype):
                return _typed_bytes(self._array(name), np.dtype(dtype), _shape(shape))
            case ["scalar", array]:
                return self._scalar(array, depth)
            case ["csr", bool(is_array), list(shape), data, indices, indptr]:
                parts = self._array(data), self._array(indices), self._array(indptr)
                return _csr(sp.csr_array if is_array else sp.csr_matrix, _shape(shape), parts)
            case ["dtype", str(name)]:
                return DTYPES[name]
            case ["type", str(name)]:
                return DTYPES[name].type
            case ["kind", str(name)]:
                return registry.TYPES[name]
            case _:
                return self._instance(node, depth)

    def _instance(self, node: Any, depth: int) -> Any:
        match node:
            case ["treedef", skeleton]:
                return jax.tree.structure(self.unpack(skeleton, depth))
            case ["function", name]:
                return registry.named_function(older.moved(name))
            case ["module" | "record" as kind, name, dict(fields)]:
                return _rebuild(kind, older.upgraded(name, self._fields(fields, depth)))
            case ["object", name, dict(fields)]:
                cls = registry.find(older.moved(name), "object")
                check_field_names(fields, registry.OBJECTS[older.moved(name)])
                return _bare(cls, self._fields(fields, depth))
            case ["kernel", name, dict(fields)]:
                cls = registry.find(name, "kernel")
                check_field_names(fields, signature(cls).parameters)
                return cls(**self._fields(fields, depth))
            case ["estimator", name, dict(fields)]:
                cls = registry.find(older.moved(name), "estimator")
                return _estimator(cls, self._fields(fields, depth))
            case ["step", name, version, dict(fields)]:
                cls = _step_class(name, version)
                check_attributes(cls, fields)
                return _bare(cls, self._fields(fields, depth))
            case [str(word), *_]:
                raise ValueError(f"it holds {word[:20]!r} with parts that describe no value")
            case _:
                raise ValueError("it describes no value")

    def _fields(self, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        return {name: self.unpack(part, depth) for name, part in fields.items()}

    def _items(self, node: Any, depth: int) -> list:
        """The items of a list, given one by one or as arrays."""
        match node:
            case ["each", list(items)]:
                return [self.unpack(item, depth) for item in items]
            case ["texts", letters, lengths]:
                return self._texts(self._list(letters, np.uint8), self._list(lengths, np.int64))
            case ["floats", name]:
                return self._list(name, np.float64).tolist()
            case ["ints", name]:
                return self._list(name, np.int64).tolist()
            case _:
                raise ValueError("it describes no list")

    def _texts(self, letters: np.ndarray, lengths: np.ndarray) -> list[str]:
        if np.any(lengths < 0) or sum(lengths.tolist()) != letters.size:
            raise ValueError("the texts of a list do not match their lengths")
        ends = np.cumsum(lengths)
        raw = letters.tobytes()
        pairs = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return [raw[i:j].decode("utf-8", "surrogatepass") for i, j in pairs]

    def _array(self, name: Any) -> np.ndarray:
        if type(name) is not str or name not in self.arrays:
            raise ValueError(f"it has no array {str(name)[:20]!r}")
        return self.arrays[name]

    def _list(self, name: Any, dtype: type) -> np.ndarray:
        array = self._array(name)
        if array.ndim != 1 or array.dtype != dtype:
            raise ValueError("a list has the wrong type")
        return array

    def _dict(self, names: list, parts: list) -> dict[str, Any]:
        if len(set(names)) < len(names) or not all(type(name) is str for name in names):
            raise ValueError("the keys of a table are invalid")
        return dict(zip(names, parts, strict=True))

    def _scalar(self, node: Any, depth: int) -> Any:
        array = self.unpack(node, depth)
        if not isinstance(array, np.ndarray) or array.shape != ():
            raise ValueError("a number is invalid")
        return array[()]


def parse_structure(text: str) -> Any:
    """Parse JSON; a name that comes twice in an object, or a number such as NaN, is refused."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its structure is not JSON") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its structure gives a name twice")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"its structure holds {name}")


def _rebuild(kind: str, found: Any) -> Any:
    """Put together a module or a named tuple, and the parts of it that `older` changed."""
    if not isinstance(found, older.Rebuilt):
        return found
    parts = {name: _rebuild(kind, part) for name, part in found.parts.items()}
    cls = registry.find(found.name, kind)
    if kind == "record":
        check_field_names(cls._field_defaults | parts, cls._fields)
        return check(cls(**parts), kind)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    missing = {name: _default(field) for name, field in fields.items() if name not in parts}
    check_field_names(parts | missing, fields)
    return check(_bare(cls, parts | missing), kind)


def _default(field: dataclasses.Field) -> Any:
    """The value of a field that an older file lacks."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        raise ValueError("an object has other fields than its class")
    convert = field.metadata.get("converter")
    return value if convert is None else convert(value)


def _estimator(cls: Any, parts: dict[str, Any]) -> Any:
    """Put together an estimator; settings that an older file lacks get their defaults."""
    settings = {key: signature(cls).parameters[key].default for key in cls._get_param_names()}
    if settings.keys().isdisjoint(parts):
        raise ValueError(f"{cls.__name__} has none of its settings")
    check_attributes(cls, parts.keys() - settings.keys())
    model = object.__new__(cls)
    model.__setstate__(settings | parts)
    return model


def _step_class(name: Any, version: Any) -> type:
    """The class of a step of a pipeline; refused if it was saved by another version of scikit-learn."""
    cls, own = registry.find(name, "step"), registry.sklearn_version()
    if version != own:
        raise ValueError(
            f"its {cls.__name__} is of scikit-learn {str(version)[:20]}, and this is {own}; install "
            f"that version, or fit the pipeline again"
        )
    return cls


def _bare(cls: type, parts: dict[str, Any]) -> Any:
    """An object with these attributes, made without running any code of its class."""
    made = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _to_jax(array: np.ndarray) -> jax.Array:
    """A JAX array of the same type, whatever JAX's setting."""
    with matching_precision(np.float64):
        return jnp.asarray(array)


def _object_array(parts: list, shape: list[int]) -> np.ndarray:
    if prod(shape) != len(parts) or not all(is_plain(part) for part in parts):
        raise ValueError("an array of texts does not match its shape")
    array = np.empty(len(parts), object)
    array[:] = parts
    return array.reshape(shape)


def _typed_bytes(raw: np.ndarray, dtype: np.dtype, shape: list[int]) -> np.ndarray:
    """An array of texts or times, for which safetensors has no type, from its bytes."""
    right = raw.dtype == np.uint8 and raw.ndim == 1
    if not right or prod(shape) * dtype.itemsize != raw.size:
        raise ValueError("an array of texts or times does not match its shape")
    if dtype.kind == "U" and np.any(raw.view("<u4") > LAST_CHARACTER):
        raise ValueError("a text holds an invalid character")
    return raw.view(dtype).reshape(shape)


def _csr(form: Any, shape: list[int], parts: tuple[np.ndarray, ...]) -> Any:
    if len(shape) != 2 or parts[2].shape != (shape[0] + 1,):
        raise ValueError("a sparse matrix does not match its shape")
    matrix = form(parts, shape=tuple(shape))
    matrix.check_format(full_check=True)
    return matrix


def _shape(shape: list) -> list[int]:
    if not all(type(n) is int and 0 <= n < 2**62 for n in shape) or len(shape) > 32:
        raise ValueError("an array has an impossible shape")
    return shape
