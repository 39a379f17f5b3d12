"""Values put together again from a tree of plain JSON and named arrays, nothing trusted.

The words are those of `packing`. Whatever does not fit is a ValueError; nothing is called but the
constructors of NumPy, SciPy and JAX, what makes the defaults of fields that an older file lacks and the
changes of `older`, and, for estimators, their own `__setstate__`.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.sparse as sp

from kalvi.archives import older, registry
from kalvi.archives.consistency import check, check_attributes, check_names
from kalvi.archives.container import NAMES
from kalvi.archives.packing import DEEPEST, INTEGERS, is_plain
from kalvi.numerics.precision import matching

FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
BYTES = re.compile(r"<U[1-9]\d{0,8}|\|S[1-9]\d{0,8}|<[Mm]8(\[\d{0,6}[A-Za-z]{1,2}\])?")
LAST_CHARACTER = 0x10FFFF


class Unpacker:
    """The arrays of a file, and values made of them."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.words: dict[str, Callable[..., Any]] = {
            "float": lambda depth, name: FLOATS[name],
            "list": lambda depth, items: self._items(items, depth),
            "tuple": lambda depth, items: tuple(self._items(items, depth)),
            "dict": self._dict,
            "key": self._key,
            "jax": lambda depth, name: _on_device(self._array(name)),
            "array": lambda depth, name: self._array(name),
            "objects": self._objects,
            "bytes": self._bytes,
            "scalar": self._scalar,
            "csr": self._csr,
            "dtype": lambda depth, name: _dtype(name),
            "type": lambda depth, name: _dtype(name).type,
            "treedef": lambda depth, node: jax.tree.structure(self.unpack(node, depth)),
            "function": lambda depth, name: registry.function(older.moved(name)),
            "module": partial(self._own, _module),
            "object": self._object,
            "record": partial(self._own, _record),
            "kernel": self._kernel,
            "estimator": self._estimator,
            "step": self._step,
            "slice": self._slice,
            "kind": lambda depth, name: registry.TYPES[name],
        }

    def unpack(self, node: Any, depth: int = 0) -> Any:
        """The value of a node."""
        if node is None or type(node) in (bool, str, float):
            return node
        if type(node) is int and node in INTEGERS:
            return node
        if depth > DEEPEST:
            raise ValueError(f"it nests deeper than {DEEPEST} levels")
        if type(node) is not list or not node or type(node[0]) is not str:
            raise ValueError("it describes no value")
        if node[0] not in self.words:
            raise ValueError(f"it holds the unknown word {node[0][:20]!r}")
        return self.words[node[0]](depth + 1, *node[1:])

    def _items(self, node: Any, depth: int) -> list:
        word, *rest = node
        if word == "each":
            return [self.unpack(item, depth) for item in _listed(rest[0])]
        if word == "texts":
            return self._texts(*rest)
        if word not in ("floats", "ints"):
            raise ValueError("it describes no list")
        array = self._array(rest[0])
        if array.ndim != 1 or array.dtype != {"floats": np.float64, "ints": np.int64}[word]:
            raise ValueError("a list of numbers has another type")
        return array.tolist()

    def _texts(self, letters: Any, lengths: Any) -> list[str]:
        letters, lengths = self._array(letters), self._array(lengths)
        right = letters.dtype == np.uint8 and lengths.dtype == np.int64
        if not right or letters.ndim != 1 or lengths.ndim != 1:
            raise ValueError("a list of texts has another type")
        ends = [0]
        for length in lengths.tolist():
            if length < 0:
                raise ValueError("a text has a negative length")
            ends.append(ends[-1] + length)
        if ends[-1] != letters.size:
            raise ValueError("the texts of a list do not have their lengths")
        raw = letters.tobytes()
        return [raw[i:j].decode("utf-8", "surrogatepass") for i, j in pairwise(ends)]

    def _array(self, name: Any) -> np.ndarray:
        if type(name) is not str or name not in self.arrays:
            raise ValueError(f"it has no array {str(name)[:20]!r}")
        return self.arrays[name]

    def _dict(self, depth: int, keys: Any, values: Any) -> dict[str, Any]:
        names, parts = self._items(keys, depth), self._items(values, depth)
        if len(set(names)) < len(names) or not all(type(name) is str for name in names):
            raise ValueError("a table has no proper keys")
        return dict(zip(names, parts, strict=True))

    def _key(self, depth: int, kind: Any, name: Any) -> jax.Array:
        if kind not in KEYS:
            raise ValueError("it holds random bits of an unknown kind")
        return jr.wrap_key_data(_on_device(self._array(name)), impl=kind)

    def _objects(self, depth: int, shape: Any, items: Any) -> np.ndarray:
        parts = self._items(items, depth)
        if prod(_shape(shape)) != len(parts) or not all(is_plain(part) for part in parts):
            raise ValueError("an array of texts does not have its shape")
        array = np.empty(len(parts), object)
        array[:] = parts
        return array.reshape(shape)

    def _bytes(self, depth: int, dtype: Any, shape: Any, name: Any) -> np.ndarray:
        raw = self._array(name)
        if type(dtype) is not str or not BYTES.fullmatch(dtype) or raw.dtype != np.uint8:
            raise ValueError(f"it holds an array of the unknown type {str(dtype)[:20]!r}")
        kind = np.dtype(dtype)
        if raw.ndim != 1 or prod(_shape(shape)) * kind.itemsize != raw.size:
            raise ValueError("an array of texts or times does not have its shape")
        if kind.kind == "U" and np.any(raw.view("<u4") > LAST_CHARACTER):
            raise ValueError("a text holds what is no character")
        return raw.view(kind).reshape(shape)

    def _scalar(self, depth: int, node: Any) -> Any:
        array = self.unpack(node, depth)
        if not isinstance(array, np.ndarray) or array.shape != ():
            raise ValueError("a number is not one")
        return array[()]

    def _csr(self, depth: int, is_array: Any, shape: Any, *names: Any) -> Any:
        data, indices, indptr = (self._array(name) for name in names)
        if len(_shape(shape)) != 2 or indptr.shape != (shape[0] + 1,):
            raise ValueError("a sparse matrix does not have its shape")
        form = sp.csr_array if is_array is True else sp.csr_matrix
        found = form((data, indices, indptr), shape=tuple(shape))
        found.check_format(full_check=True)
        return found

    def _parts(self, fields: Any, wanted: Any, depth: int) -> dict[str, Any]:
        """The fields of an object, which must be those wanted."""
        if type(fields) is not dict:
            raise ValueError("an object has no fields")
        check_names(fields, wanted)
        return {name: self.unpack(fields[name], depth) for name in fields}

    def _own(self, make: Callable[..., Any], depth: int, name: Any, fields: Any) -> Any:
        """An object of kalvi; one of an older version becomes what it is now."""
        return _rebuilt(make, older.upgraded(name, self._parts(fields, fields, depth)))

    def _object(self, depth: int, name: Any, fields: Any) -> Any:
        name = older.moved(name)
        cls = registry.find(name, "object")
        return _bare(cls, self._parts(fields, registry.OBJECTS[name], depth))

    def _kernel(self, depth: int, name: Any, fields: Any) -> Any:
        cls = registry.find(name, "kernel")
        return cls(**self._parts(fields, signature(cls).parameters, depth))

    def _slice(self, depth: int, ends: Any) -> slice:
        parts = [self.unpack(end, depth) for end in _listed(ends)]
        if len(parts) != 3 or not all(part is None or type(part) is int for part in parts):
            raise ValueError("it describes no slice")
        return slice(*parts)

    def _step(self, depth: int, name: Any, version: Any, fields: Any) -> Any:
        """A step of a pipeline with the attributes that it had."""
        cls, own = registry.find(name, "step"), registry.sklearn_version()
        if version != own:
            raise ValueError(
                f"its {cls.__name__} is of scikit-learn {str(version)[:20]}, and this is {own}; install "
                f"that version, or fit the pipeline again"
            )
        names = set(fields) if type(fields) is dict else set()
        check_attributes(cls, names)
        return _bare(cls, self._parts(fields, names, depth))

    def _estimator(self, depth: int, name: Any, fields: Any) -> Any:
        cls = registry.find(older.moved(name), "estimator")
        parts = self._parts(fields, fields, depth)
        settings = {key: signature(cls).parameters[key].default for key in cls._get_param_names()}
        learned, later = parts.keys() - settings.keys(), settings.keys() - parts.keys()
        if later == settings.keys():
            raise ValueError(f"{cls.__name__} has none of its settings")
        check_attributes(cls, learned)
        model = object.__new__(cls)
        model.__setstate__(parts | {key: settings[key] for key in later})
        return model


def parse_structure(text: str) -> Any:
    """The value of a JSON text; tables have each name once, and numbers are numbers."""
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


def _rebuilt(make: Callable[..., Any], found: Any) -> Any:
    """What an upgrade made, put together from the inside out."""
    if not isinstance(found, older.Rebuilt):
        return found
    parts = {name: _rebuilt(make, part) for name, part in found.parts.items()}
    return make(found.name, parts)


def _module(name: Any, parts: dict[str, Any]) -> Any:
    """A module of arrays; what an older file lacks is as in a new one."""
    cls = registry.find(name, "module")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    lacking = {
        key: _default(field)
        for key, field in fields.items()
        if key not in parts and _has_default(field)
    }
    check_names(parts | lacking, fields)
    return check(_bare(cls, parts | lacking), "module")


def _has_default(field: dataclasses.Field) -> bool:
    given = (field.default, field.default_factory)
    return any(part is not dataclasses.MISSING for part in given)


def _default(field: dataclasses.Field) -> Any:
    """What a field is that nobody gives."""
    made = field.default
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
    convert = field.metadata.get("converter")
    return made if convert is None else convert(made)


def _record(name: Any, parts: dict[str, Any]) -> Any:
    """A named tuple; what an older file lacks is as in a new one."""
    cls = registry.find(name, "record")
    check_names(cls._field_defaults | parts, cls._fields)
    return check(cls(**parts), "record")


def _on_device(array: np.ndarray) -> jax.Array:
    """An array of JAX of the same type, whatever JAX's setting."""
    with matching(np.float64):
        return jnp.asarray(array)


def _bare(cls: type, parts: dict[str, Any]) -> Any:
    """An object with these attributes; no code of its class is run."""
    made = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _dtype(name: Any) -> np.dtype:
    if name not in [dtype.name for dtype in NAMES]:
        raise ValueError(f"it speaks of the unknown type {str(name)[:20]!r}")
    return np.dtype(name)


def _shape(shape: Any) -> list[int]:
    if not all(type(n) is int and 0 <= n < 2**62 for n in _listed(shape)) or len(shape) > 32:
        raise ValueError("an array has no possible shape")
    return shape


def _listed(items: Any) -> list:
    if type(items) is not list:
        raise ValueError("it has something else where a list is needed")
    return items
