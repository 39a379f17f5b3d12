"""The keys in a column: levels of a category, words of a text, indices of a sparse row, or names.

A row has a number for each of its keys: 1 for its level, the given value for an index or a name, and 1/√K
for each of the K different words of a text, so that the prior variance of a text is that of a level. Words
are runs of letters and digits; case is ignored. In a category or a text, a missing entry is a key too.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.column_types import NAMED, SPARSE, TEXT

MISSING = "(missing)"
NEW_WORDS, NEW_INDICES, NEW_FEATURES = "(new words)", "(new indices)", "(new features)"
BETWEEN_WORDS = r"[^\p{L}\p{N}]+"
COMMONEST = 5
"""The number of keys that the description of a column names."""

Key = str | int


class KeyedRows(NamedTuple):
    """Rows of a column as triplets (row, key, value); `keys` lists each key once, in order."""

    n: int
    rows: np.ndarray
    codes: np.ndarray  # the position of a triplet's key in `keys`
    values: np.ndarray
    keys: list[Any]

    def tally(self) -> np.ndarray:
        """The number of rows with each key."""
        return np.bincount(self.codes, minlength=len(self.keys))

    def missing(self) -> int:
        """The number of rows whose entry is missing."""
        return int(self.tally()[self.keys.index(MISSING)]) if MISSING in self.keys else 0


class Keys(eqx.Module):
    """How the entries of a column are read as keys."""

    kind: eqx.AbstractClassVar[str]  # the type of the column in descriptions of a model
    noun: eqx.AbstractClassVar[str]  # the name of the number of keys in descriptions
    type: eqx.AbstractClassVar[pa.DataType]  # of the column in a table
    textual: ClassVar[bool] = True  # whether keys are texts, not indices
    exclusive: ClassVar[bool] = False  # whether a row has exactly one key

    @abstractmethod
    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        """The triplets of some rows."""

    @abstractmethod
    def label(self, name: str, key: Key) -> str:
        """The name of the slot for a key of the column `name`."""

    @abstractmethod
    def count_new(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        """The number of rows with new keys, by their names for people; `new` is a mask of the keys."""

    def describe(self, keys: tuple[Key, ...], counts: np.ndarray) -> dict[str, Any]:
        """The number of keys and, if they are texts, the commonest with the number of rows of each."""
        if not self.textual:
            return {self.noun: len(keys)}
        order = np.argsort(-counts, kind="stable")[:COMMONEST]
        return {self.noun: len(keys), "commonest": [[keys[i], int(counts[i])] for i in order]}


class Levels(Keys):
    """A category: an entry is one level."""

    kind: ClassVar[str] = "category"
    noun: ClassVar[str] = "levels"
    type: ClassVar[pa.DataType] = TEXT
    exclusive: ClassVar[bool] = True

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        codes, levels = _encode(pc.fill_null(column.cast(TEXT), MISSING).combine_chunks())
        return KeyedRows(len(codes), np.arange(len(codes)), codes, np.ones(len(codes)), levels)

    def label(self, name: str, key: Key) -> str:
        return f"{name}={key}"

    def count_new(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        found = zip(rows.keys, rows.tally().tolist(), new, strict=True)
        return {level: n for level, n, is_new in found if n and is_new}


class Words(Keys):
    """Free text: an entry is the set of its words."""

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "words"
    type: ClassVar[pa.DataType] = TEXT

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        text = pc.utf8_lower(column.cast(TEXT)).combine_chunks()
        lists = pc.split_pattern_regex(pc.fill_null(text, ""), BETWEEN_WORDS)
        flat, rows = lists.flatten(), pc.list_parent_indices(lists)
        flat = pc.if_else(pc.is_null(text).take(rows), MISSING, flat)
        there = pc.not_equal(flat, "")
        codes, words = _encode(flat.filter(there))
        rows = rows.filter(there).to_numpy(zero_copy_only=False).astype(int)
        rows, codes = np.divmod(np.unique(rows * max(len(words), 1) + codes), max(len(words), 1))
        lengths = np.bincount(rows, minlength=len(text))
        return KeyedRows(len(text), rows, codes, 1 / np.sqrt(lengths[rows]), words)

    def label(self, name: str, key: Key) -> str:
        return f"{name}: {key}"

    def count_new(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        n = len(np.unique(rows.rows[new[rows.codes]]))
        return {NEW_WORDS: n} if n else {}


class Indices(Keys):
    """Sparse rows: an entry is a list of indices and values, which are not standardised."""

    kind: ClassVar[str] = "sparse"
    noun: ClassVar[str] = "width"
    type: ClassVar[pa.DataType] = SPARSE
    textual: ClassVar[bool] = False

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        return _read_pairs(column, "index")

    def label(self, name: str, key: Key) -> str:
        return f"{name}[{key}]"

    def count_new(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        n = int(new[rows.codes].sum())
        return {NEW_INDICES: n} if n else {}


class Names(Keys):
    """Named numbers: an entry is a list of names and values, which are not standardised."""

    kind: ClassVar[str] = "named"
    noun: ClassVar[str] = "features"
    type: ClassVar[pa.DataType] = NAMED

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        return _read_pairs(column, "name")

    def label(self, name: str, key: Key) -> str:
        return f"{name}: {key}"

    def count_new(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        n = int(new[rows.codes].sum())
        return {NEW_FEATURES: n} if n else {}


def _read_pairs(column: pa.ChunkedArray, key: str) -> KeyedRows:
    """The triplets of lists of a key and a value."""
    whole = column.combine_chunks()
    lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    flat = whole.flatten()
    codes, keys = _encode(flat.field(key))
    values = flat.field("value").to_numpy(zero_copy_only=False).astype(float)
    return KeyedRows(len(column), np.repeat(np.arange(len(column)), lengths), codes, values, keys)


def _encode(entries: pa.Array) -> tuple[np.ndarray, list[Any]]:
    """The position of each entry among the distinct entries, and the distinct entries."""
    coded = entries.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(int)
    return codes, coded.dictionary.to_pylist()
