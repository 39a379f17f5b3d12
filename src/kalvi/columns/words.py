"""Columns of free text: the words of an entry have places in a row of x.

An entry of K different words has 1/√K at the place of each, so that a text says as much about the target
before any row as a level does. Words are runs of letters and digits without regard to capitals. Like
levels, they get places when they are first seen, or share 2^bits places by their hashes; words that no row
of the stream had share one place, with a number as large as if each had its own.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalvi.columns.groups import COMMONEST, MISSING, NEW_LEVEL, Entries, Group, HashedGroup, hashed

BETWEEN = r"[^\p{L}\p{N}]+"
NEW_WORDS = "(new words)"


class Words(NamedTuple):
    """The different words of the entries of some rows: which row has which of them."""

    rows: np.ndarray
    codes: np.ndarray
    words: list[str]
    n: int

    def tally(self) -> np.ndarray:
        """How many rows have each word."""
        return np.bincount(self.codes, minlength=len(self.words))

    def missing(self) -> int:
        """How many rows have no text."""
        return int(self.tally()[self.words.index(MISSING)]) if MISSING in self.words else 0

    def values(self) -> np.ndarray:
        """The number of each word of each row."""
        return 1 / np.sqrt(np.bincount(self.rows, minlength=self.n)[self.rows])


class Text(Group):
    """Words with places of their own."""

    unknown: int  # the place of words that no row of the stream had
    words: tuple[str, ...]
    slots: np.ndarray  # the place of each word
    counts: np.ndarray  # rows with each word

    def parts(self, column: pa.ChunkedArray) -> Words:
        return words_of(column)

    def count(self) -> int | None:
        return len(self.words)

    def with_new(self, part: Words, first: int) -> "Text":
        known = set(self.words)
        new = tuple(word for word in part.words if word not in known)
        if not new:
            return self
        return replace(
            self,
            words=self.words + new,
            slots=np.append(self.slots, np.arange(first, first + len(new))),
            counts=np.append(self.counts, np.zeros(len(new), int)),
        )

    def entries(self, part: Words) -> Entries:
        order, values = self._order(part)[part.codes], part.values()
        known = order >= 0
        slots = np.append(self.slots, self.unknown)[order]
        strange = np.bincount(part.rows[~known], values[~known] ** 2, minlength=part.n)
        rows = np.flatnonzero(strange)
        return Entries(
            np.append(part.rows[known], rows),
            np.append(slots[known], np.full(len(rows), self.unknown)),
            np.append(values[known], np.sqrt(strange[rows])),
        )

    def seen(self, part: Words, n: int) -> "Text":
        counts, order = self.counts.copy(), self._order(part)
        counts[order[order >= 0]] += part.tally()[order >= 0]
        missing = self.missing + part.missing()
        return replace(self, counts=counts, missing=missing, rows=self.rows + n)

    def unseen(self, part: Words) -> dict[str, int]:
        strange = np.unique(part.rows[self._order(part)[part.codes] < 0])
        return {NEW_WORDS: len(strange)} if len(strange) else {}

    def slot_names(self) -> dict[int, str]:
        named = zip(self.slots.tolist(), self.words, strict=True)
        names = {slot: f"{self.name}: {word}" for slot, word in named}
        return {**names, self.unknown: f"{self.name}{NEW_LEVEL}"}

    def about(self) -> dict[str, Any]:
        order = np.argsort(-self.counts, kind="stable")[:COMMONEST]
        common = [[self.words[i], int(self.counts[i])] for i in order]
        return {"kind": "text", "words": len(self.words), "commonest": common, "hashed": False}

    def keys(self) -> dict[Any, int]:
        return {**dict(zip(self.words, self.slots.tolist(), strict=True)), None: self.unknown}

    def type(self) -> pa.DataType:
        return pa.string()

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, int), np.zeros(0)

    def known(self) -> Words:
        none = np.zeros(0, int)
        return Words(none, none, list(self.words), 0)

    def with_counts(self, other: "Text") -> "Text":
        counts = self.counts.copy()
        counts[self._order(other.known())] += other.counts
        rows, missing = self.rows + other.rows, self.missing + other.missing
        return replace(self, counts=counts, rows=rows, missing=missing)

    def uncounted(self) -> "Text":
        return replace(self, rows=0, missing=0, counts=np.zeros_like(self.counts))

    def _order(self, part: Words) -> np.ndarray:
        """Which of our words those of the rows are, −1 where it is none."""
        index = {word: i for i, word in enumerate(self.words)}
        return np.array([index.get(word, -1) for word in part.words], int)


class HashedText(HashedGroup):
    """Words that share 2^bits places with the entries of all other hashed columns."""

    def parts(self, column: pa.ChunkedArray) -> Words:
        return words_of(column)

    def entries(self, part: Words) -> Entries:
        found = [hashed(f"{self.name}: {word}", self.bits) for word in part.words]
        slots = self.start + np.array(found, int)
        return Entries(part.rows, slots[part.codes], part.values())

    def seen(self, part: Words, n: int) -> "HashedText":
        return replace(self, missing=self.missing + part.missing(), rows=self.rows + n)

    def type(self) -> pa.DataType:
        return pa.string()

    def known(self) -> Words:
        none = np.zeros(0, int)
        return Words(none, none, [], 0)

    def about(self) -> dict[str, Any]:
        return {"kind": "text", "bits": self.bits, "hashed": True}


def words_of(column: pa.ChunkedArray) -> Words:
    """The different words of each entry in the order in which they first come; missing is a word too."""
    text = pc.fill_null(pc.utf8_lower(column.cast(pa.string())), MISSING).combine_chunks()
    missing = pc.equal(text, MISSING).to_numpy(zero_copy_only=False)
    lists = pc.split_pattern_regex(pc.if_else(pc.equal(text, MISSING), "", text), BETWEEN)
    flat, rows = lists.flatten(), pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    filled = pc.if_else(pa.array(missing[rows]), MISSING, flat)
    coded = filled.filter(pc.not_equal(filled, "")).dictionary_encode()
    rows = rows[pc.not_equal(filled, "").to_numpy(zero_copy_only=False)]
    codes, words = coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()
    pairs = np.unique(rows.astype(np.int64) * max(len(words), 1) + codes)
    return Words(*np.divmod(pairs, max(len(words), 1)), words, len(text))
