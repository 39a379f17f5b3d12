"""The position of a number on an axis, and the round numbers to write beside the axis.

A scale maps [low, high] onto [0, 1], linearly or by logarithms. Figures use it in percent of their box, so
that a figure may have any width while its text keeps its size.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

Number = float | int


class Scale(NamedTuple):
    """A map of [low, high] onto [0, 1]."""

    low: Number
    high: Number
    log: bool = False

    def __call__(self, value: Number) -> float:
        """The position of a value: 0 at `low`, 1 at `high`, and outside [0, 1] beyond them."""
        if self.log:
            least = math.log(self.low)
            return (math.log(value) - least) / (math.log(self.high) - least)
        return value / (self.high - self.low) - self.low / (self.high - self.low)

    def clipped(self, value: Number) -> float:
        """The position of a value, clipped to [0, 1]."""
        if self.log and value <= 0:
            return 0.0
        return min(1.0, max(0.0, self(min(max(value, self.low), self.high))))

    def ticks(self, most: int = 5) -> list[Number]:
        """At most `most` round numbers from low to high: powers of ten, or multiples of 1, 2 or 5."""
        if self.log:
            return _powers(self.low, self.high, most)
        power = 10.0 ** (math.floor(math.log10(self.high - self.low)) - 1)
        steps = (m * p for p in (power, 10 * power, 100 * power) for m in (1, 2, 5))
        return next(values for s in steps if len(values := self._multiples(s)) <= most)

    def _multiples(self, step: Number) -> list[Number]:
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        digits = max(0, 1 - math.floor(math.log10(step)))  # i * step has errors of rounding
        return [round(i * step, digits) for i in range(first, last + 1)]


def covering(values: Iterable[Number], *, zero: bool = False, margin: Number = 0.06) -> Scale:
    """A linear scale that covers the finite values with a margin, and zero if asked."""
    # the span of larger values may overflow
    kept = [v for v in values if abs(v) < 1e300] + ([0.0] if zero else [])
    low, high = (min(kept), max(kept)) if kept else (0.0, 1.0)
    room = margin * (high - low)
    if not room > 1e-12 * max(abs(low), abs(high)):
        room = 0.1 * max(abs(low), abs(high)) or 1.0
    return Scale(low - room, high + room)


def counting(values: Iterable[Number]) -> Scale:
    """A scale for numbers of rows: logarithmic if they span more than a factor of 30."""
    kept = [v for v in values if 0 < v < 1e300]
    if kept and max(kept) > 30 * min(kept):
        return Scale(min(kept), max(kept), log=True)
    return Scale(0.0, max(kept, default=1.0))


def _powers(low: Number, high: Number, most: int) -> list[Number]:
    """Round numbers for a logarithmic axis, as many as there is room for."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps, every in (((1, 2, 5), 1), ((1, 3), 1), *(((1,), k) for k in range(1, len(decades)))):
        values = [step * 10.0**i for i in decades if i % every == 0 for step in steps]
        kept = [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
        if len(kept) <= most:
            return kept
    return [low, high]
