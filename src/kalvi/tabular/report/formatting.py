"""Numbers, sizes and times as people write them."""

import math
from datetime import datetime, timedelta
from typing import Any

ABSENT = "–"
NBSP = "\u00a0"
"""A no-break space, between a number and its unit."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
LAST_SECOND = 6e10
"""Seconds before and after 1970 within which times can be written as dates."""
UNITS = ((1e12, "tn"), (1e9, "bn"), (1e6, "M"), (1e3, "k"))


def real(value: object) -> float:
    """The value as a number; NaN if it is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a dict, otherwise an empty dict."""
    return value if isinstance(value, dict) else {}


def listing(value: object) -> list[Any]:
    """The value as a list if it is a list or a tuple, otherwise an empty list."""
    return list(value) if isinstance(value, (list, tuple)) else []


def mappings(values: object) -> list[dict[str, Any]]:
    """The dicts in a list; an empty list for anything else."""
    return [value for value in listing(values) if isinstance(value, dict)]


def reals(values: object) -> list[float]:
    """The entries of a list as numbers; an empty list for anything else."""
    return [real(value) for value in listing(values)]


def pairs(values: object) -> list[tuple[Any, float]]:
    """The pairs (name, number) in a list, without those whose number is NaN."""
    found = [p for p in listing(values) if isinstance(p, (list, tuple)) and len(p) == 2]
    return [(name, real(value)) for name, value in found if not math.isnan(real(value))]


def number(value: object, digits: int = 4) -> str:
    """A number with `digits` significant digits; digits before the decimal point are never rounded."""
    x = real(value)
    if math.isnan(x):
        return ABSENT
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    size = abs(x)
    if size >= 1e15 or 0 < size < 1e-4:
        mantissa, power = f"{x:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{_minus(mantissa)} × 10{str(int(power)).translate(SUPERSCRIPTS)}"
    whole = 1 + math.floor(math.log10(size)) if size else 1
    return fixed(x, max(0, digits - max(whole, 1)) if size >= 1 else digits - whole, trim=True)


def fixed(value: object, places: int, *, trim: bool = False) -> str:
    """A number with so many decimals and separated thousands."""
    x = real(value)
    if not math.isfinite(x):
        return number(x)
    said = f"{x:,.{max(0, places)}f}"
    if trim and "." in said:
        said = said.rstrip("0").rstrip(".")
    return "0" if said == "-0" else _minus(said)


def decimals(mean: object, std: object) -> int:
    """The number of decimals that shows two digits of the standard deviation of an estimate."""
    spread, size = real(std), abs(real(mean))
    scale = spread if math.isfinite(spread) and spread > 0 else size / 100
    return min(8, max(0, 1 - math.floor(math.log10(scale)))) if 0 < scale < math.inf else 3


def count(value: object, noun: str = "") -> str:
    """A whole number with its noun, such as "1 row" or "3,000,000 rows"."""
    x = real(value)
    said = fixed(x, 0) if math.isfinite(x) else ABSENT
    return f"{said} {noun if x == 1 else plural(noun)}" if noun else said


def plural(noun: str) -> str:
    """The plural of a regular noun: rows, classes, passes."""
    return noun + ("es" if noun.endswith("s") else "s")


def percent(share: object, digits: int = 3) -> str:
    """A share as a percentage."""
    x = real(share)
    return f"{number(100 * x, digits)}{NBSP}%" if math.isfinite(x) else ABSENT


def short(value: float | int) -> str:
    """A number for an axis, such as 20k, 1.5M or −0.25."""
    for unit, letter in UNITS:
        if unit <= abs(value) < 1e15:
            return number(value / unit, 4) + letter
    return number(value, 6)


def duration(seconds: object) -> str:
    """A duration, such as 0.34 s, 61 s, 4 min 12 s, 2 h 5 min or 3 days 2 h."""
    x = real(seconds)
    if not math.isfinite(x) or x < 0:
        return ABSENT
    if x < 100:
        return f"{number(x, 2)}{NBSP}s"
    minutes, rest = divmod(round(x), 60)
    if minutes < 60:
        return f"{minutes}{NBSP}min {rest}{NBSP}s" if rest else f"{minutes}{NBSP}min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}{NBSP}h {minutes}{NBSP}min" if minutes else f"{hours}{NBSP}h"
    return f"{hours // 24}{NBSP}days {hours % 24}{NBSP}h"


def size(n_bytes: object) -> str:
    """A number of bytes, such as 812 bytes or 1.2 MB."""
    x = real(n_bytes)
    for unit, name in BYTES:
        if unit <= x < math.inf:
            return f"{number(x / unit, 3)}{NBSP}{name}"
    return count(x, "byte") if math.isfinite(x) else ABSENT


def cut(value: object, longest: int) -> str:
    """The value as text, cut off at `longest` characters."""
    said = str(value)
    return said if len(said) <= longest else said[: longest - 1] + "…"


def _minus(said: str) -> str:
    return said.replace("-", "−")


def date(seconds: float) -> str:
    """A time in seconds from 1970 as a date, with the time of day unless that is midnight."""
    when = datetime(1970, 1, 1) + timedelta(seconds=round(seconds))
    return when.isoformat(" ").removesuffix(" 00:00:00")
