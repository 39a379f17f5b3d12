"""A column of keys: the product of how its entries are read (`keys`) and which slots keys get (`slots`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from kalvi.columns.keys import Key, KeyedRows, Keys
from kalvi.columns.slots import Slots

NEW_LEVEL = "=(new level)"


class Triplets(NamedTuple):
    """Entries of x as rows, slots and values."""

    rows: np.ndarray
    slots: np.ndarray
    values: np.ndarray


class KeyedColumn(eqx.Module):
    """A column of a table whose keys have slots in x."""

    name: str
    keys: Keys
    slots: Slots
    rows: int = 0
    missing: int = 0

    def triplets(self, rows: KeyedRows) -> Triplets:
        """The entries of x; all new keys of a row share one entry in the unknown slot, if there is one."""
        slots = self._find(rows)[rows.codes]
        known = slots >= 0
        own = Triplets(rows.rows[known], slots[known], rows.values[known])
        if self.slots.unknown is None or known.all():
            return own
        squares = np.bincount(rows.rows[~known], rows.values[~known] ** 2, minlength=rows.n)
        new = np.flatnonzero(squares)
        return Triplets(
            np.append(own.rows, new),
            np.append(own.slots, np.full(len(new), self.slots.unknown)),
            np.append(own.values, np.sqrt(squares[new])),
        )

    def with_counts(
        self, keys: Sequence[Key], counts: np.ndarray, rows: int, missing: int
    ) -> "KeyedColumn":
        """A copy that counts further rows: `counts` by key, `rows` in all, `missing` without an entry."""
        slots = self.slots.with_counts(keys, counts)
        return replace(self, slots=slots, rows=self.rows + rows, missing=self.missing + missing)

    def without_counts(self) -> "KeyedColumn":
        """A copy that has counted no row."""
        return replace(self, slots=self.slots.without_counts(), rows=0, missing=0)

    def count_new(self, rows: KeyedRows) -> dict[str, int]:
        """The number of rows with each key that has no slot, by its name for people."""
        return self.keys.count_new(rows, self._find(rows) < 0)

    def labels(self) -> dict[int, str]:
        """The name of each slot."""
        found = self.slots.labels(self._label)
        unknown = self.slots.unknown
        return found if unknown is None else {**found, unknown: f"{self.name}{NEW_LEVEL}"}

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The slots, if every row has exactly one of them, and the share of the rows with each."""
        return self.slots.shares() if self.keys.exclusive else (np.zeros(0, int), np.zeros(0))

    def describe(self) -> dict[str, Any]:
        """The kind of the column and a summary of its entries."""
        about = {"name": self.name, "missing": self.missing, "kind": self.keys.kind}
        return about | self.slots.describe(self.keys)

    def _label(self, key: Key) -> str:
        return self.keys.label(self.name, key)

    def _find(self, rows: KeyedRows) -> np.ndarray:
        """The slot of each key of some rows, −1 where it has none."""
        return self.slots.find(rows.keys, self._label)
