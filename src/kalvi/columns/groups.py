"""Columns of levels, and columns that are sparse rows themselves: places in a row of x by name.

A level has a place of its own, given when it is first seen, or one of 2^bits by its hash. A column of
levels has one more place, which no row of the stream ever takes: a level seen for the first time when
predicting goes there, so that the prediction is as uncertain as the prior of a new level makes it.
"""

import hashlib
from abc import abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MISSING, NEW_LEVEL = "(missing)", "=(new level)"
COMMONEST = 5
"""So many levels of a column are named in descriptions."""
SPARSE = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))
MOST_INDICES = 2**27
"""Larger indices of sparse rows need hashing: the places of all below are kept in one array."""


class Coded(NamedTuple):
    """A column of levels: for each row the number of its level, and the levels."""

    codes: np.ndarray
    levels: list[str]

    def tally(self) -> np.ndarray:
        """How many rows have each level."""
        return np.bincount(self.codes, minlength=len(self.levels))

    def missing(self) -> int:
        """How many rows have none."""
        return int(self.tally()[self.levels.index(MISSING)]) if MISSING in self.levels else 0


class Entries(NamedTuple):
    """Numbers at places of a block of rows."""

    rows: np.ndarray
    slots: np.ndarray
    values: np.ndarray


class Group(eqx.Module):
    """A column whose entries have places in a row of x."""

    name: str
    rows: int
    missing: int

    @abstractmethod
    def parts(self, column: pa.ChunkedArray) -> Any:
        """The column of some rows in the form that the other methods take."""

    @abstractmethod
    def count(self) -> int | None:
        """How many places it was given, if it is given any beyond those of its beginning."""

    @abstractmethod
    def with_new(self, part: Any, first: int) -> "Group":
        """With places from `first` on for what had none, in the order of the rows."""

    @abstractmethod
    def entries(self, part: Any) -> Entries:
        """Where the rows have which numbers."""

    @abstractmethod
    def seen(self, part: Any, n: int) -> "Group":
        """With n rows counted."""

    @abstractmethod
    def unseen(self, part: Any) -> dict[str, int]:
        """What no row of the stream had, and how many rows have it."""

    @abstractmethod
    def slot_names(self) -> dict[int, str]:
        """What its places are."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What a person wants to know of it."""

    @abstractmethod
    def keys(self) -> dict[Any, int]:
        """Its places, by what they are of."""

    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of the column in a table."""

    @abstractmethod
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The places that exclude each other, and the shares of the rows that have them."""

    @abstractmethod
    def known(self) -> Any:
        """All that has places, in the form of `parts`."""

    @abstractmethod
    def with_counts(self, other: Any) -> "Group":
        """With the rows of another column of the same places, or some of them, counted as well."""

    @abstractmethod
    def uncounted(self) -> "Group":
        """The same places, with no row counted."""

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "missing": self.missing, **self.about()}


class Levels(Group):
    """Levels with places of their own."""

    unknown: int  # the place of levels that no row of the stream had
    levels: tuple[str, ...]
    slots: np.ndarray  # the place of each level
    counts: np.ndarray  # rows of each level

    def parts(self, column: pa.ChunkedArray) -> Coded:
        return coded(column)

    def count(self) -> int | None:
        return len(self.levels)

    def with_new(self, part: Coded, first: int) -> "Levels":
        known = set(self.levels)
        new = tuple(level for level in part.levels if level not in known)
        if not new:
            return self
        return replace(
            self,
            levels=self.levels + new,
            slots=np.append(self.slots, np.arange(first, first + len(new))),
            counts=np.append(self.counts, np.zeros(len(new), int)),
        )

    def entries(self, part: Coded) -> Entries:
        slots = np.append(self.slots, self.unknown)[self._order(part)]
        return Entries(np.arange(len(part.codes)), slots[part.codes], np.ones(len(part.codes)))

    def seen(self, part: Coded, n: int) -> "Levels":
        counts, order = self.counts.copy(), self._order(part)
        counts[order[order >= 0]] += part.tally()[order >= 0]
        return replace(
            self, counts=counts, missing=self.missing + part.missing(), rows=self.rows + n
        )

    def unseen(self, part: Coded) -> dict[str, int]:
        found = zip(part.levels, part.tally(), self._order(part), strict=True)
        return {level: int(n) for level, n, i in found if n and i < 0}

    def slot_names(self) -> dict[int, str]:
        named = zip(self.slots.tolist(), self.levels, strict=True)
        names = {slot: f"{self.name}={level}" for slot, level in named}
        return {**names, self.unknown: f"{self.name}{NEW_LEVEL}"}

    def about(self) -> dict[str, Any]:
        order = np.argsort(-self.counts, kind="stable")[:COMMONEST]
        return {
            "kind": "category",
            "levels": len(self.levels),
            "commonest": [[self.levels[i], int(self.counts[i])] for i in order],
            "hashed": False,
        }

    def keys(self) -> dict[Any, int]:
        return {**dict(zip(self.levels, self.slots.tolist(), strict=True)), None: self.unknown}

    def type(self) -> pa.DataType:
        return pa.string()

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        return self.slots, self.counts / max(self.counts.sum(), 1)

    def known(self) -> Coded:
        return Coded(np.zeros(0, int), list(self.levels))

    def with_counts(self, other: "Levels") -> "Levels":
        counts = self.counts.copy()
        counts[self._order(other.known())] += other.counts
        rows, missing = self.rows + other.rows, self.missing + other.missing
        return replace(self, counts=counts, rows=rows, missing=missing)

    def uncounted(self) -> "Levels":
        return replace(self, rows=0, missing=0, counts=np.zeros_like(self.counts))

    def _order(self, part: Coded) -> np.ndarray:
        """Which of our levels those of the rows are, −1 where it is none."""
        index = {level: i for i, level in enumerate(self.levels)}
        return np.array([index.get(level, -1) for level in part.levels], int)


class HashedGroup(Group):
    """A column whose entries share 2^bits places with those of all other hashed columns."""

    bits: int
    start: int

    def count(self) -> int | None:
        return None

    def with_new(self, part: Any, first: int) -> "HashedGroup":
        return self

    def unseen(self, part: Any) -> dict[str, int]:
        return {}

    def slot_names(self) -> dict[int, str]:
        return {slot: f"(hash {i})" for i, slot in self.keys().items()}

    def keys(self) -> dict[Any, int]:
        return {i: self.start + i for i in range(2**self.bits)}

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, int), np.zeros(0)

    def with_counts(self, other: "HashedGroup") -> "HashedGroup":
        return replace(self, rows=self.rows + other.rows, missing=self.missing + other.missing)

    def uncounted(self) -> "HashedGroup":
        return replace(self, rows=0, missing=0)


class Hashed(HashedGroup):
    """Levels that share 2^bits places with those of all other hashed columns."""

    def parts(self, column: pa.ChunkedArray) -> Coded:
        return coded(column)

    def entries(self, part: Coded) -> Entries:
        found = [hashed(f"{self.name}={level}", self.bits) for level in part.levels]
        slots = self.start + np.array(found, int)
        return Entries(np.arange(len(part.codes)), slots[part.codes], np.ones(len(part.codes)))

    def seen(self, part: Coded, n: int) -> "Hashed":
        return replace(self, missing=self.missing + part.missing(), rows=self.rows + n)

    def type(self) -> pa.DataType:
        return pa.string()

    def known(self) -> Coded:
        return Coded(np.zeros(0, int), [])

    def about(self) -> dict[str, Any]:
        return {"kind": "category", "bits": self.bits, "hashed": True}


class Sparse(Group):
    """Sparse rows: numbers at indices, taken as they are, each index with a place of its own."""

    places: np.ndarray  # of each index, −1 of those that no row had

    def parts(self, column: pa.ChunkedArray) -> Entries:
        return sparse_parts(column)

    def count(self) -> int | None:
        return int(np.sum(self.places >= 0))

    def with_new(self, part: Entries, first: int) -> "Sparse":
        largest = int(part.slots.max(initial=-1)) + 1
        if largest > MOST_INDICES:
            raise ValueError(
                f"column '{self.name}' has the index {largest - 1}, beyond {MOST_INDICES - 1}; "
                "hash the indices (--hash-bits 20)."
            )
        places = self.places
        if largest > len(places):
            places = np.append(places, np.full(max(largest, 2 * len(places)) - len(places), -1))
        absent = part.slots[places[part.slots] < 0]
        if not absent.size:
            return self
        which, where = np.unique(absent, return_index=True)
        places = places.copy()
        places[which[np.argsort(where)]] = np.arange(first, first + len(which))
        return replace(self, places=places)

    def entries(self, part: Entries) -> Entries:
        """Indices that no row of the stream had are left out."""
        inside = part.slots < len(self.places)
        slots = np.full(len(part.slots), -1)
        slots[inside] = self.places[part.slots[inside]]
        known = slots >= 0
        return Entries(part.rows[known], slots[known], part.values[known])

    def seen(self, part: Entries, n: int) -> "Sparse":
        return replace(self, rows=self.rows + n)

    def unseen(self, part: Entries) -> dict[str, int]:
        left_out = len(part.slots) - len(self.entries(part).slots)
        return {"(new indices)": left_out} if left_out else {}

    def slot_names(self) -> dict[int, str]:
        index = np.flatnonzero(self.places >= 0)
        return {int(self.places[i]): f"{self.name}[{i}]" for i in index}

    def keys(self) -> dict[Any, int]:
        index = np.flatnonzero(self.places >= 0)
        return dict(zip(index.tolist(), self.places[index].tolist(), strict=True))

    def type(self) -> pa.DataType:
        return SPARSE

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, int), np.zeros(0)

    def known(self) -> Entries:
        none = np.zeros(0, int)
        return Entries(none, np.flatnonzero(self.places >= 0), none)

    def with_counts(self, other: "Sparse") -> "Sparse":
        return replace(self, rows=self.rows + other.rows, missing=self.missing + other.missing)

    def uncounted(self) -> "Sparse":
        return replace(self, rows=0, missing=0)

    def about(self) -> dict[str, Any]:
        return {"kind": "sparse", "width": self.count(), "hashed": False}


class HashedSparse(HashedGroup):
    """Sparse rows whose indices share 2^bits places."""

    def parts(self, column: pa.ChunkedArray) -> Entries:
        return sparse_parts(column)

    def entries(self, part: Entries) -> Entries:
        which, inverse = np.unique(part.slots, return_inverse=True)
        slots = np.array([hashed(f"{self.name}[{i}]", self.bits) for i in which], int)
        return part._replace(slots=self.start + slots[inverse])

    def seen(self, part: Entries, n: int) -> "HashedSparse":
        return replace(self, rows=self.rows + n)

    def type(self) -> pa.DataType:
        return SPARSE

    def known(self) -> Entries:
        none = np.zeros(0, int)
        return Entries(none, none, none)

    def about(self) -> dict[str, Any]:
        return {"kind": "sparse", "bits": self.bits, "hashed": True}


def coded(column: pa.ChunkedArray) -> Coded:
    """The levels are in the order of their first rows; a missing one is a level too."""
    text = pc.fill_null(column.cast(pa.string()), MISSING).combine_chunks()
    encoded = text.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(int)
    return Coded(codes, encoded.dictionary.to_pylist())


def sparse_parts(column: pa.ChunkedArray) -> Entries:
    """The entries of a column of lists of (index, value); `slots` are the indices."""
    whole = column.combine_chunks()
    lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    flat = whole.flatten()
    return Entries(
        np.repeat(np.arange(len(column)), lengths),
        flat.field("index").to_numpy(zero_copy_only=False).astype(int),
        flat.field("value").to_numpy(zero_copy_only=False).astype(float),
    )


def hashed(text: str, bits: int) -> int:
    """A number below 2^bits that is the same on every machine."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - bits)
