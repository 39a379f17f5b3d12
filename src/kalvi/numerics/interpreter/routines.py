"""Functions that lines of programs call, for operations of JAX that need more than an expression in
NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special


def put(array: np.ndarray, where: Any, what: Any) -> np.ndarray:
    """A copy with some entries replaced."""
    new = array.copy()
    new[where] = what
    return new


def pad(array: np.ndarray, fill: Any, config: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """The array with `low` entries added before, `high` after (or cut off if negative) and some in
    between."""
    spread = [
        n + max(n - 1, 0) * between for n, (_, _, between) in zip(array.shape, config, strict=True)
    ]
    shape = [max(low + n + high, 0) for n, (low, high, _) in zip(spread, config, strict=True)]
    result = np.full(shape, fill, array.dtype)
    there, here = [], []
    for n, size, (low, _, between) in zip(array.shape, shape, config, strict=True):
        step = between + 1
        first = max(-(low // step), 0)  # the first entry that is not cut off
        last = max(min(n, -((low - size) // step)), first)
        here.append(slice(first, last))
        there.append(slice(low + first * step, max(low + (last - 1) * step + 1, 0), step))
    if all(cut.stop > cut.start for cut in here):
        result[tuple(there)] = array[tuple(here)]
    return result


def sort(arrays: Sequence[np.ndarray], axis: int, keys: int) -> list[np.ndarray]:
    """The arrays sorted stably along an axis by the first `keys` of them."""
    if keys == 1:
        order = np.argsort(arrays[0], axis=axis, kind="stable")
    else:
        order = np.lexsort(arrays[:keys][::-1], axis=axis)
    return [np.take_along_axis(array, order, axis) for array in arrays]


def top_k(array: np.ndarray, k: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries along an axis, in decreasing order (NaN first), and their positions."""
    last = array.shape[axis] - 1
    backwards = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
    order = (last - np.flip(backwards, axis)).take(range(k), axis=axis)
    return np.take_along_axis(array, order, axis), order.astype(np.int32)


def shift_left(a: Any, by: Any, dtype: np.dtype) -> Any:
    """Bits shifted left; zero if they are shifted by all their number or more."""
    a, by = np.asarray(a, dtype), np.asarray(by, dtype)
    return np.where(_in_range(by), np.left_shift(a, by), 0).astype(dtype)


def shift_right_logical(a: Any, by: Any, dtype: np.dtype) -> Any:
    """Bits shifted right, filled with zeros."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits, by = np.asarray(a, dtype).view(unsigned), np.asarray(by, dtype)
    moved = np.right_shift(bits, by.view(unsigned))
    return np.where(_in_range(by), moved, 0).astype(unsigned).view(dtype)


def shift_right_arithmetic(a: Any, by: Any, dtype: np.dtype) -> Any:
    """Bits shifted right, filled with copies of the first."""
    signed, by = np.dtype(f"i{dtype.itemsize}"), np.asarray(by, dtype)
    most = np.asarray(8 * dtype.itemsize - 1, dtype)
    places = np.where(_in_range(by), by, most).view(signed)
    return np.right_shift(np.asarray(a, dtype).view(signed), places).view(dtype)


def _in_range(by: np.ndarray) -> Any:
    return (by >= 0) & (by < 8 * by.dtype.itemsize)


def quotients(a: Any, b: Any) -> Any:
    """a / b for integers, rounded towards zero; −1 for b = 0, as in XLA."""
    found = np.floor_divide(a, b)
    inexact = found * b != a
    negative = (np.asarray(a) < 0) != (np.asarray(b) < 0)
    found = np.where(inexact & negative, found + 1, found)
    return np.where(np.asarray(b) == 0, np.asarray(-1).astype(found.dtype), found)


def remainders(a: Any, b: Any) -> Any:
    """The remainder of truncated division, with the sign of a; for integers a itself if b = 0."""
    found = np.fmod(a, b)
    return found if found.dtype.kind == "f" else np.where(np.asarray(b) == 0, a, found)


def digamma(a: Any) -> Any:
    """The derivative of log Γ; NaN at 0."""
    return np.where(np.equal(a, 0), np.nan, scipy.special.digamma(a))


def saturated_array(a: np.ndarray, low: int, high: int) -> np.ndarray:
    """The numbers, limited so that their integer parts are within the bounds; 0 for NaN."""
    inside = np.where(np.isnan(a), 0, np.trunc(a).astype(float))
    top = np.nextafter(float(high) + 1, 0)  # the bound itself may have no double-precision value
    return np.clip(inside, low, top if top < high else high)


def bitcast(a: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The same bits as numbers of another dtype."""
    return np.ascontiguousarray(a).reshape(-1).view(dtype).reshape(shape)


def count_in_halves(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the entries of an array: the upper 32 bits, and the lower."""
    numbers = np.arange(np.prod(shape, dtype=int), dtype=np.uint64).reshape(shape)
    upper, lower = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    return upper.astype(np.uint32), lower.astype(np.uint32)
