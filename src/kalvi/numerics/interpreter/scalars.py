"""Arithmetic of Python numbers in cases where Python raises an error and JAX gives infinity, NaN or some
other value."""

import math
from typing import Any

import numpy as np

Number = int | float


def divide_by_zero(a: float, b: float) -> float:
    """a / b for b = ±0."""
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def truncated_quotient(a: int, b: int) -> int:
    """a / b rounded towards zero; −1 for b = 0, as in XLA."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a >= 0) == (b >= 0) else -quotient


def remainder(a: Number, b: Number) -> Number:
    """The remainder of truncated division, with the sign of a; for integers a itself if b = 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b * truncated_quotient(a, b) if b else a
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


def power(a: float, b: float) -> float:
    """aᵇ."""
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        return _by_numpy(np.power, a, b)


def integer_power(a: Number, n: int) -> Number:
    """aⁿ."""
    try:
        return a**n
    except (OverflowError, ZeroDivisionError):
        return _by_numpy(np.power, float(a), float(n))


def saturated(a: float, low: int, high: int) -> int:
    """The integer part, limited to the bounds; 0 for NaN."""
    if low <= a <= high:
        return int(a)
    return low if a < low else high if a > high else 0


def wrapped(a: int, bits: int) -> int:
    """The signed number that the last `bits` bits represent."""
    half = 1 << (bits - 1)
    return ((a + half) & ((1 << bits) - 1)) - half


def _by_numpy(function: Any, *args: float) -> float:
    with np.errstate(all="ignore"):
        return float(function(*args))
