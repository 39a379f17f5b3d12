"""The column to predict: labels of classes, numbers or counts."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import numpy as np
import pyarrow as pa

from kalvi.columns.numbers import FAR, LARGEST
from kalvi.readers.files import BadData, RowLocator
from kalvi.readers.notation import FALSE, TRUE, Notation, parse

MOST_CLASSES = 100
NO_LABEL = ("?", "-", "--", ".", "na", "nan", "-nan", "nat", "n/a", "n.a.", "#n/a", "null")
"""Labels that count as missing, unless --classes names them."""
FLAGS = dict.fromkeys(TRUE, "true") | dict.fromkeys(FALSE, "false")


class Target(eqx.Module):
    """Reads the target column."""

    name: str

    @abstractmethod
    def codes(self, column: pa.ChunkedArray) -> tuple[np.ndarray, Any]:
        """A number for each row, NaN if missing, and a mask of the rows whose value is invalid."""

    @abstractmethod
    def complaint(self) -> str:
        """Why a value is invalid, and what to do."""

    def read(
        self, table: pa.Table, locate: RowLocator, *, skip: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """y as it is learned, and a mask of the rows with a target; others are refused unless `skip`."""
        column = table[self.name]
        y, bad = self.codes(column)
        there = ~np.asarray(column.is_null(nan_is_null=True).to_numpy(), bool) & ~np.isnan(y)
        if not skip and not there.all():
            row = int(np.argmin(there))
            marker = column[row].as_py()
            shown = "missing" if marker is None or marker != marker else f"missing ('{marker}')"
            raise BadData(
                f"{locate(row)}: the target '{self.name}' is {shown}; fill it in, or have "
                "such rows left out (--skip-unlabelled)."
            )
        bad = bad & there
        if bad.any():
            row = int(np.argmax(bad))
            value = label(column[row].as_py())
            raise BadData(
                f"{locate(row)}: the target '{self.name}' is '{value[:40]}'; {self.complaint()}"
            )
        return np.where(there, y, 0.0), there

    @abstractmethod
    def read_for_scoring(
        self, column: pa.ChunkedArray, word: str = "number"
    ) -> tuple[np.ndarray, np.ndarray]:
        """y in original units, from a column of text, and a mask of the rows with a target.

        `word` is the notation of numbers (`readers.notation`).
        """

    @abstractmethod
    def in_original_units(self, y: np.ndarray) -> np.ndarray:
        """y, as `read` returned it, in the units of the table and of predictions."""

    @abstractmethod
    def type(self) -> str | None:
        """The type of the column in other files: "number", "category", or None to infer it."""


class Classes(Target):
    """Labels of two classes or more, numbered in the order of `labels`."""

    labels: tuple[str, ...]
    text: bool = True  # whether the labels are text, not numbers

    def read_for_scoring(
        self, column: pa.ChunkedArray, word: str = "number"
    ) -> tuple[np.ndarray, np.ndarray]:
        order = {text: i for i, text in enumerate(self.labels)}
        coded = column.combine_chunks().dictionary_encode()
        texts = coded.dictionary.to_pylist()
        read = _parse_numbers(pa.chunked_array([coded.dictionary]), word).to_pylist()
        values = [
            order.get(text, order.get(FLAGS.get(text, "") if value is None else label(value), -1))
            for text, value in zip(texts, read, strict=True)
        ]
        index = coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        y = np.array([*values, -1], float)[index]
        return np.maximum(y, 0), y >= 0

    def values(self) -> np.ndarray:
        """The labels as values of a table: texts, truth values or numbers."""
        if self.text:
            return np.array(self.labels)
        if set(self.labels) <= {"true", "false"}:
            return np.array([label == "true" for label in self.labels])
        numbers = np.array([float(label) for label in self.labels])
        return numbers.astype(int) if np.all(numbers == numbers.astype(int)) else numbers

    def in_original_units(self, y: np.ndarray) -> np.ndarray:
        return y

    def type(self) -> str | None:
        return "category" if self.text else None

    def codes(self, column: pa.ChunkedArray) -> tuple[np.ndarray, Any]:
        order = {text: i for i, text in enumerate(self.labels)}
        encoded = column.combine_chunks().dictionary_encode()
        values = [
            order.get(label(v), np.nan if is_missing_label(v) else -1)
            for v in encoded.dictionary.to_pylist()
        ]
        index = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        y = np.array([*values, 0], float)[index]
        return y, y < 0

    def complaint(self) -> str:
        known = ", ".join(self.labels[:10])
        return (
            f"the classes are {known}. Name all of them with --classes if the first rows lack some."
        )


class NumericTarget(Target):
    """A column of numbers."""

    def read_for_scoring(
        self, column: pa.ChunkedArray, word: str = "number"
    ) -> tuple[np.ndarray, np.ndarray]:
        y = numbers(_parse_numbers(column, word))
        there = np.isfinite(y)
        return np.where(there, y, 0.0), there

    def type(self) -> str | None:
        return "number"


class Numbers(NumericTarget):
    """Numbers of any size, standardised by the first rows."""

    centre: float = 0.0
    scale: float = 1.0

    def codes(self, column: pa.ChunkedArray) -> tuple[np.ndarray, Any]:
        y = numbers(column)
        z = (y - self.centre) / self.scale
        return z, (np.abs(y) > LARGEST) | (np.abs(z) > FAR)

    def in_original_units(self, y: np.ndarray) -> np.ndarray:
        return y * self.scale + self.centre

    def complaint(self) -> str:
        return (
            f"it must be a finite number, not more than {FAR:.0e} deviations from the first rows."
        )


class Counts(NumericTarget):
    """Counts: 0, 1, 2, …"""

    def codes(self, column: pa.ChunkedArray) -> tuple[np.ndarray, Any]:
        y = numbers(column)
        return y, (y < 0) | (y > LARGEST) | (y != np.floor(y))

    def in_original_units(self, y: np.ndarray) -> np.ndarray:
        return y

    def complaint(self) -> str:
        return "it must be a count, 0, 1, 2 and so on. Use --model linear for other numbers."


def _parse_numbers(column: pa.ChunkedArray, word: str) -> pa.ChunkedArray:
    """The numbers in a column of text, null for other entries; `word` is their notation."""
    return parse(column, Notation.of(word)).values


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column as numbers, NaN if missing."""
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def is_missing_label(value: Any) -> bool:
    """Whether a label counts as missing; words such as "none" do not."""
    return isinstance(value, str) and value.strip().lower() in NO_LABEL


def label(value: Any) -> str:
    """The text of a label; whole numbers have no decimal point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def distinct(column: pa.ChunkedArray) -> list[str]:
    """The distinct labels of a column: numbers in increasing order, texts in alphabetical order."""
    values = [v for v in column.unique().to_pylist() if v is not None and v == v]
    values = [v for v in values if not is_missing_label(v)]
    return [label(v) for v in sorted(values)]
