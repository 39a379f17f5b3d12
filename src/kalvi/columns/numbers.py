"""Columns of numbers, flags, times and vectors, which become standardised numbers.

A coefficient must mean the same from the first row to the last, so the units of a column (its centre and
its deviation) are those of the first rows and never change. A column that does not vary there is written as
zero until it varies, and then gets its units: rows before that say nothing about its coefficient. The
moments of all rows so far are kept in these units.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kalvi.readers.files import BadData, RowLocator

LARGEST = 1e300
"""Numbers of larger size are refused, because their squares might overflow."""
FAR = 1e9
"""Numbers more deviations than this from the mean of the first rows are refused as a mistake of units."""
STILL = 8 * float(np.finfo(float).eps)
"""A deviation below this share of the largest number is rounding error."""
SECONDS = 1e-6
"""The length in seconds of a microsecond, the unit of times in tables."""
UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


class ColumnMoments(NamedTuple):
    """For each slot, over all rows so far: the number of values, their mean, the sum of their squared
    deviations, and the smallest and the largest value."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    least: np.ndarray
    most: np.ndarray

    @classmethod
    def none(cls, width: int) -> "ColumnMoments":
        zero = np.zeros(width)
        return cls(zero, zero, zero, np.full(width, np.inf), np.full(width, -np.inf))

    def add(self, z: np.ndarray, raw: np.ndarray) -> "ColumnMoments":
        """A copy with further rows: z in units of the columns, raw as in the table, NaN where missing."""
        there = ~np.isnan(raw)
        n = there.sum(axis=0).astype(float)
        held = np.where(there, z, 0.0)
        mean = held.sum(axis=0) / np.maximum(n, 1)
        return self.join(
            ColumnMoments(
                n,
                mean,
                np.where(there, (held - mean) ** 2, 0).sum(axis=0),
                np.where(there, raw, np.inf).min(axis=0, initial=np.inf),
                np.where(there, raw, -np.inf).max(axis=0, initial=-np.inf),
            )
        )

    def join(self, other: "ColumnMoments") -> "ColumnMoments":
        """The moments of the rows of both."""
        ends = np.fmin(self.least, other.least), np.fmax(self.most, other.most)
        return ColumnMoments(*pooled(self[:3], other[:3]), *ends)


def pooled(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Count, mean and sum of squared deviations of two sets of values together (Chan's formula)."""
    n, away = np.maximum(a[0] + b[0], 1), b[1] - a[1]
    return a[0] + b[0], a[1] + away * b[0] / n, a[2] + b[2] + away**2 * a[0] * b[0] / n


class NumberColumns(NamedTuple):
    """The columns that are numbers, in the order of their slots (columns of x)."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]  # "number", "flag", "time" or "vector"
    widths: tuple[int, ...]
    centre: np.ndarray  # NaN where there was no value yet
    scale: np.ndarray  # NaN where the values have not varied yet
    rows: int
    moments: ColumnMoments

    @classmethod
    def begin(cls, kinds: dict[str, str], schema: pa.Schema) -> "NumberColumns":
        widths = tuple(
            schema.field(name).type.list_size if kind == "vector" else 1
            for name, kind in kinds.items()
        )
        unknown = np.full(sum(widths), np.nan)
        moments = ColumnMoments.none(sum(widths))
        return cls(tuple(kinds), tuple(kinds.values()), widths, unknown, unknown, 0, moments)

    @property
    def width(self) -> int:
        return sum(self.widths)

    def types(self) -> list[tuple[str, pa.DataType]]:
        """The type of each column in a table."""
        plain = {"number": pa.float64(), "flag": pa.bool_(), "time": pa.timestamp("us")}
        columns = zip(self.names, self.kinds, self.widths, strict=True)
        return [(n, plain.get(k, pa.list_(pa.float64(), width))) for n, k, width in columns]

    def starts(self) -> list[int]:
        """The first slot of each column."""
        return [int(s) for s in np.cumsum([0, *self.widths])[:-1]]

    def raw(self, table: pa.Table, locate: RowLocator) -> np.ndarray:
        """The numbers as in the table, NaN if missing; infinite and huge ones are refused."""
        found = np.empty((table.num_rows, self.width))
        for name, kind, start, width in zip(
            self.names, self.kinds, self.starts(), self.widths, strict=True
        ):
            found[:, start : start + width] = _numbers(table[name], kind, width)
        odd = self._is_flag() & (found != 0) & (found != 1) & ~np.isnan(found)
        self._refuse(odd, found, locate, ", but the model knows it as true or false (1 or 0).")
        finite = "; numbers must be finite. Leave the field empty if the value is not known."
        self._refuse(np.abs(found) > LARGEST, found, locate, finite)
        return found

    def with_units(self, raw: np.ndarray) -> "NumberColumns":
        """A copy in which columns that had no unit and vary in these rows have one."""
        if not np.isnan(self.scale).any() or not len(raw):
            return self
        mean, std = units(raw)
        centre = np.where(np.isnan(self.centre), mean, self.centre)
        away = np.nanmax(np.abs(raw - centre), axis=0, initial=0.0)
        moved = np.where(std > 0, std, np.where(away > STILL * np.abs(centre), away, np.nan))
        flag = self._is_flag()
        centre, moved = np.where(flag, 0.0, centre), np.where(flag, 1.0, moved)
        return self._replace(centre=centre, scale=np.where(np.isnan(self.scale), moved, self.scale))

    def standardise(self, raw: np.ndarray, locate: RowLocator) -> np.ndarray:
        """The numbers in units of their columns: NaN if missing, 0 while a column has no units."""
        scale = np.where(np.isnan(self.scale), np.inf, self.scale)
        centre = np.where(np.isnan(self.centre), 0.0, self.centre)
        z = (raw - centre) / scale
        far = f", more than {FAR:.0e} deviations from the first rows ({{}} ± {{}}); "
        remedy = "check its units, or drop the column."
        self._refuse(np.abs(z) > FAR, raw, locate, far + remedy, centre, scale)
        return z

    def with_counts(self, z: np.ndarray, raw: np.ndarray) -> "NumberColumns":
        """A copy that counts further rows: z in units of the columns, raw as in the table."""
        return self._replace(rows=self.rows + len(raw), moments=self.moments.add(z, raw))

    def is_missing(self, raw: np.ndarray) -> np.ndarray:
        """A mask of the missing entries, with one column for each column of the table."""
        ends = zip(self.starts(), self.widths, strict=True)
        return np.column_stack(
            [np.isnan(raw[:, s : s + width]).any(axis=1) for s, width in ends] or [raw[:, :0] > 0]
        )

    def slot_names(self) -> list[str]:
        """The name of each slot."""
        named = []
        for name, kind, width in zip(self.names, self.kinds, self.widths, strict=True):
            named += [f"{name}[{i}]" for i in range(width)] if kind == "vector" else [name]
        return named

    def describe(self) -> list[dict[str, Any]]:
        """For each column its kind and a summary of its entries."""
        return [
            self._describe(*column)
            for column in zip(self.names, self.kinds, self.starts(), self.widths, strict=True)
        ]

    def _describe(self, name: str, kind: str, start: int, width: int) -> dict[str, Any]:
        count = int(self.moments.count[start])
        about = {"name": name, "kind": kind, "missing": self.rows - count}
        if kind == "vector":
            return about | {"width": width}
        if np.isnan(self.centre[start]):
            return about
        scale = 0.0 if np.isnan(self.scale[start]) else float(self.scale[start])
        about |= {"centre": float(self.centre[start]), "scale": scale or 1.0}
        about |= {} if scale else {"constant": True}
        if not count:
            return about
        std = np.sqrt(self.moments.squares[start] / count)
        return about | {
            "mean": float(self.centre[start] + scale * self.moments.mean[start]),
            "std": float(scale * std),
            "least": float(self.moments.least[start]),
            "most": float(self.moments.most[start]),
        }

    def _is_flag(self) -> np.ndarray:
        """A mask of the slots of flags."""
        return np.array([kind == "flag" for kind in self.kinds], bool).repeat(self.widths)

    def _refuse(
        self,
        bad: np.ndarray,
        raw: np.ndarray,
        locate: RowLocator,
        reason: str,
        *details: np.ndarray,
    ) -> None:
        """Refuse the first number that is `bad`; each {} in the reason stands for a detail of its slot."""
        if bad.any():
            row, slot = np.argwhere(bad)[0]
            what = f"column '{self.slot_names()[slot]}' is {raw[row, slot]:g}"
            why = reason.format(*(f"{values[slot]:g}" for values in details))
            raise BadData(f"{locate(int(row))}: {what}{why}")


def describe_moments(kind: str, mean: float, std: float) -> str:
    """A mean and a deviation as text: "12.4 ± 3.1", "2020-05-17 ± 8.2 days" or "always 1"."""
    if kind != "time":
        return f"{mean:.4g} ± {std:.3g}" if std else f"always {mean:.6g}"
    when = str(np.datetime64(int(mean), "s")).replace("T", " ").removesuffix(" 00:00:00")
    if not std:
        return f"always {when}"
    unit, size = next((u, s) for u, s in UNITS if std >= 2 * s or s == 1)
    when = when[:10] if unit == "days" else when
    return f"{when} ± {std / size:.3g} {unit}"


def _numbers(column: pa.ChunkedArray, kind: str, width: int) -> np.ndarray:
    """The numbers of a column of the table, NaN if missing, with a column for each slot."""
    if kind == "vector":
        return _vectors(column, width)
    if kind == "time":
        column = column.cast(pa.int64())
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return (values * SECONDS if kind == "time" else values)[:, None]


def _vectors(column: pa.ChunkedArray, width: int) -> np.ndarray:
    parts = [np.empty((0, width))]
    for chunk in column.chunks:
        there = chunk.is_valid().to_numpy(zero_copy_only=False)
        rows = np.full((len(chunk), width), np.nan)
        rows[there] = chunk.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
        parts.append(rows)
    return np.concatenate(parts)


def units(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the deviation of each column, ignoring NaN; NaN and 0 if there are no numbers."""
    there = ~np.isnan(raw)
    n = np.maximum(there.sum(axis=0), 1)
    held = np.where(there, raw, 0.0)
    largest = np.abs(held).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # squares of the numbers themselves might overflow
    mean = (held / unit).sum(axis=0) / n
    away = np.where(there, held / unit - mean, 0.0)
    widest = np.abs(away).max(axis=0)
    still = widest <= STILL
    square = ((away / np.where(still, 1.0, widest)) ** 2).sum(axis=0) / n
    std = np.where(still, 0.0, widest * np.sqrt(square) * unit)
    return np.where(there.any(axis=0), mean * unit, np.nan), std
