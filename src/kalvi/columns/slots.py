"""Which column of x a key gets: one of its own when it is first seen, or one of 2^bits by its hash.

A column of x is called a slot, to distinguish it from a column of the table. The `unknown` slot is for keys
that are seen for the first time in a prediction. No row of the stream uses it (unless slots are fixed), so
its coefficient has the prior, and the prediction is as uncertain as it should be. Without an unknown slot,
such keys are ignored.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalvi.columns.keys import Key, Keys

Label = Callable[[Key], str]


class OwnSlots(eqx.Module):
    """A slot for each key, in the order in which they were first seen."""

    keys: tuple[str, ...] | tuple[int, ...]
    slots: np.ndarray  # of each key
    counts: np.ndarray  # rows with each key
    unknown: int | None = None

    @classmethod
    def none(cls, unknown: int | None) -> "OwnSlots":
        """No keys yet."""
        none = np.zeros(0, int)
        return cls(keys=(), slots=none, counts=none, unknown=unknown)

    def find(self, keys: Sequence[Key], label: Label) -> np.ndarray:
        """The slot of each key, −1 where it has none."""
        return np.append(self.slots, -1)[self._positions(keys)]

    def with_slots_for(self, keys: Sequence[Key], first: int) -> "OwnSlots":
        """A copy with slots from `first` on for new keys, in their order."""
        new: Any = tuple(keys[int(i)] for i in np.flatnonzero(self._positions(keys) < 0))
        if not new:
            return self
        return replace(
            self,
            keys=self.keys + new,
            slots=np.append(self.slots, np.arange(first, first + len(new))),
            counts=np.append(self.counts, np.zeros(len(new), int)),
        )

    def count(self) -> int | None:
        """The number of keys with a slot of their own; None if slots are never added."""
        return len(self.keys)

    def by_key(self) -> dict[Any, int]:
        """The slot of each key; the unknown slot is that of None."""
        found = dict(zip(self.keys, self.slots.tolist(), strict=True))
        return found if self.unknown is None else {**found, None: self.unknown}

    def labels(self, label: Label) -> dict[int, str]:
        """The name of each slot."""
        return {slot: label(key) for key, slot in self.by_key().items() if key is not None}

    def rows_by_key(self) -> tuple[Sequence[Key], np.ndarray]:
        """The keys whose rows are counted, and the number of rows with each."""
        return self.keys, self.counts

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The slots of keys whose rows are counted, and the share of the rows with each."""
        return self.slots, self.counts / max(self.counts.sum(), 1)

    def describe(self, keys: Keys) -> dict[str, Any]:
        """A summary of the keys for people; `keys` says how they were read."""
        return {**keys.describe(self.keys, self.counts), "hashed": False}

    def with_counts(self, keys: Sequence[Key], counts: np.ndarray) -> "OwnSlots":
        """A copy that counts further rows: `counts` of them with each of these keys."""
        total, at = self.counts.copy(), self._positions(keys)
        total[at[at >= 0]] += counts[at >= 0]
        return replace(self, counts=total)

    def without_counts(self) -> "OwnSlots":
        """A copy that has counted no row."""
        return replace(self, counts=np.zeros_like(self.counts))

    def rules(self, textual: bool, front: int, bits: int | None) -> Iterator[tuple[str, bool]]:
        """Rules for slots from a file: pairs of what is checked and the outcome.

        `textual` says whether the keys are texts; the first `front` slots belong to numbers, and the model
        hashes keys to `bits` bits, if at all.
        """
        n, key = len(self.keys), str if textual else int
        yield "its levels", all(type(own) is key for own in self.keys) and bits is None
        yield "its levels", len(set(self.keys)) == n
        arrays = (self.slots, self.counts)
        yield "its places", all(a.dtype.kind == "i" and a.shape == (n,) for a in arrays)
        yield "its counts", bool(np.all(self.counts >= 0))
        places = self.by_key().values()
        yield (
            "its places",
            (self.unknown is not None) == textual and len(set(places)) == len(places),
        )

    def _positions(self, keys: Sequence[Key]) -> np.ndarray:
        """The position of each key in `self.keys`, −1 where it is not there."""
        if not self.keys or not keys:
            return np.full(len(keys), -1)
        found = pc.index_in(pa.array(keys), value_set=pa.array(self.keys))
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(int)


class HashedSlots(eqx.Module):
    """Slots from `start` on that the keys of all hashed columns share; rows are not counted by key."""

    bits: int
    start: int
    unknown: int | None = None

    def find(self, keys: Sequence[Key], label: Label) -> np.ndarray:
        return self.start + np.array([hash_text(label(key), self.bits) for key in keys], int)

    def with_slots_for(self, keys: Sequence[Key], first: int) -> "HashedSlots":
        return self

    def count(self) -> int | None:
        return None

    def by_key(self) -> dict[Any, int]:
        return {i: self.start + i for i in range(2**self.bits)}

    def labels(self, label: Label) -> dict[int, str]:
        return {slot: f"(hash {i})" for i, slot in self.by_key().items()}

    def rows_by_key(self) -> tuple[Sequence[Key], np.ndarray]:
        return (), np.zeros(0, int)

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, int), np.zeros(0)

    def describe(self, keys: Keys) -> dict[str, Any]:
        return {"bits": self.bits, "hashed": True}

    def with_counts(self, keys: Sequence[Key], counts: np.ndarray) -> "HashedSlots":
        return self

    def without_counts(self) -> "HashedSlots":
        return self

    def rules(self, textual: bool, front: int, bits: int | None) -> Iterator[tuple[str, bool]]:
        yield "its hash", self.bits == bits and self.start == front and self.unknown is None


Slots = OwnSlots | HashedSlots
"""Slots of the keys of one column."""


def hash_text(text: str, bits: int) -> int:
    """A number below 2^bits that is the same on every machine."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - bits)
