"""Turns values into a tree of plain JSON and named arrays.

Texts, whole numbers, finite numbers, truth values and null stand for themselves. Everything else is a list
that begins with a word; `unpacking` has the same words in the same order.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from kalvi.archives import consistency, registry
from kalvi.archives.container import NAMES

DEEPEST = 64
"""The deepest nesting of a value."""
LONG = 32
"""Longer lists of texts or of numbers become arrays, so that the header stays small."""
INTEGERS = range(-(2**63), 2**63)


class Packer:
    """Takes a value apart, and collects its arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def pack(self, value: Any, place: str, depth: int = 0) -> Any:
        """The JSON of a value; errors call it `place`."""
        if depth > DEEPEST:
            raise TypeError(f"{place} nests deeper than {DEEPEST} levels, or in itself.")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int and value in INTEGERS:
            return value
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        for pack in (self._container, self._numbers, self._instance):
            found = pack(value, place, depth + 1)
            if found is not None:
                return found
        raise TypeError(f"{place} is {_described(value)}, which cannot be saved; {_remedy(value)}.")

    def _container(self, value: Any, place: str, depth: int) -> list | None:
        kind = type(value)
        if kind in (list, tuple):
            return [kind.__name__, self._items(list(value), place, depth)]
        if kind is dict:
            odd = [key for key in value if type(key) is not str]
            if odd:
                raise TypeError(f"{place} has the key {odd[0]!r}; only texts can be saved as keys.")
            keys = self._items(list(value), place, depth)
            parts = {key: f"{place}[{key!r}]" for key in value}
            return ["dict", keys, self._items(list(value.values()), parts.values(), depth)]
        if kind is slice:
            ends = [value.start, value.stop, value.step]
            return ["slice", [self.pack(end, place, depth) for end in ends]]
        return None

    def _items(self, items: list, places: Any, depth: int) -> list:
        """Many texts or numbers of one type as arrays, other items one by one."""
        kinds = {type(item) for item in items} if len(items) > LONG else None
        if kinds == {str}:
            return ["texts", *self._texts(items)]
        if kinds == {float}:
            return ["floats", self._array(np.array(items, np.float64))]
        if kinds == {int} and min(items) in INTEGERS and max(items) in INTEGERS:
            return ["ints", self._array(np.array(items, np.int64))]
        if isinstance(places, str):
            places = [f"{places}[{i}]" for i in range(len(items))]
        return ["each", [self.pack(*pair, depth) for pair in zip(items, places, strict=True)]]

    def _texts(self, texts: list[str]) -> tuple[str, str]:
        coded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.array([len(code) for code in coded], np.int64)
        return self._array(np.frombuffer(b"".join(coded), np.uint8)), self._array(lengths)

    def _array(self, array: np.ndarray) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return name

    def _numbers(self, value: Any, place: str, depth: int) -> list | None:
        """Arrays, numbers of NumPy, sparse matrices and types of numbers."""
        if isinstance(value, jax.Array):
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                data = np.asarray(jr.key_data(value))
                return ["key", str(jr.key_impl(value)), self._array(data)]
            return ["jax", self._stored(np.asarray(value), place)]
        if type(value) is np.ndarray:
            return self._numpy(value, place, depth)
        if isinstance(value, np.generic):
            return ["scalar", self._numpy(np.asarray(value), place, depth)]
        if isinstance(value, sp.csr_array | sp.csr_matrix):
            parts = (
                self._stored(part, place) for part in (value.data, value.indices, value.indptr)
            )
            return ["csr", isinstance(value, sp.csr_array), [*(value.shape or ())], *parts]
        if isinstance(value, np.dtype) and value in NAMES:
            return ["dtype", value.name]
        if isinstance(value, type) and value in registry.TYPES.values():
            return ["kind", value.__name__]
        if isinstance(value, type) and issubclass(value, np.generic) and np.dtype(value) in NAMES:
            return ["type", np.dtype(value).name]
        return None

    def _stored(self, array: np.ndarray, place: str) -> str:
        if array.dtype.newbyteorder("=") not in NAMES:
            raise TypeError(f"{place} is an array of {array.dtype}, which cannot be saved.")
        return self._array(array)

    def _numpy(self, array: np.ndarray, place: str, depth: int) -> list:
        shape = list(array.shape)
        if array.dtype.kind == "O":
            if not all(is_plain(item) for item in array.flat):
                raise TypeError(
                    f"{place} is an array of objects, of which only texts and numbers can be saved."
                )
            return ["objects", shape, self._items(list(array.reshape(-1)), place, depth)]
        if array.dtype.kind in "USMm":  # of no type that safetensors has: as bytes
            native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).reshape(-1)
            return ["bytes", native.dtype.str, shape, self._array(native.view(np.uint8))]
        return ["array", self._stored(array, place)]

    def _instance(self, value: Any, place: str, depth: int) -> list | None:
        """Functions by their names, and objects of the classes in `registry` by their fields."""
        if type(value) is type(jax.tree.structure(0)):
            skeleton = jax.tree.unflatten(value, [0] * value.num_leaves)
            return ["treedef", self.pack(skeleton, place, depth)]
        if isinstance(value, type):
            return None
        if (name := registry.function_name(value)) is not None:
            return ["function", name]
        kind = registry.kind_of(type(value))
        if kind is None:
            return None
        if kind == "step":
            packed = self._attributes(value, place, depth)
            return [kind, registry.name_of(type(value)), registry.sklearn_version(), packed]
        fields = _fields(value, kind)
        packed = {name: self.pack(part, f"{place}.{name}", depth) for name, part in fields.items()}
        consistency.check(value, kind)  # what could not be loaded is not saved
        return [kind, registry.name_of(type(value)), packed]

    def _attributes(self, step: Any, place: str, depth: int) -> dict[str, Any]:
        """The attributes of a step of a pipeline; errors call the steps inside it by their names."""
        found = {}
        for name, part in vars(step).items():
            if name in ("steps", "transformers_", "transformer_list"):
                places = [f"the step {item[0]!r} of {place}" for item in part]
                found[name] = ["list", self._items(part, places, depth + 1)]
            else:
                found[name] = self.pack(part, f"{place}.{name}", depth)
        return found


def is_plain(value: Any) -> bool:
    """Whether an array of objects may hold a value."""
    return value is None or type(value) in (str, int, float, bool)


def _fields(value: Any, kind: str) -> dict[str, Any]:
    if kind == "estimator":
        return value.__getstate__()
    if kind == "record":
        return value._asdict()
    return value.get_params(deep=False) if kind == "kernel" else vars(value)


def _described(value: Any) -> str:
    if callable(value) and not isinstance(value, type) and hasattr(value, "__qualname__"):
        return f"the function {value.__qualname__}"
    return f"a {registry.name_of(type(value)).replace(':', '.')}"


def _remedy(value: Any) -> str:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return "give a whole number as seed"
    if isinstance(value, BaseEstimator):
        return "a pipeline with such a step can be kept with skops.io or joblib"
    return "a file holds data only, of kalvi's own classes"
