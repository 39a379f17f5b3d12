"""What the entries of a column hold: levels of a category, words of a text, or indices of a sparse row.

Levels, words and indices are all called keys. A row has a number at each of its keys: 1 at its level, the
value that a sparse row gives for an index, and 1/√K at each of the K different words of a text, so that
a text says as much about the target before any row as a level does. Words are runs of letters and digits
without regard to capitals. In a category and in a text, a missing entry is a key too.
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.column_types import SPARSE, TEXT

MISSING = "(missing)"
NEW_WORDS, NEW_INDICES = "(new words)", "(new indices)"
BETWEEN_WORDS = r"[^\p{L}\p{N}]+"
COMMONEST = 5
"""So many keys of a column are named in descriptions."""

Key = str | int


class KeyedRows(NamedTuple):
    """Rows of a column as triplets (row, key, value); the keys are listed once, as they first come."""

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

    kind: eqx.AbstractClassVar[str]  # what descriptions of a model call the column
    noun: eqx.AbstractClassVar[str]  # under which they say how many keys there are
    type: eqx.AbstractClassVar[pa.DataType]  # of the column in a table
    textual: eqx.AbstractClassVar[bool]  # whether keys are texts, which may be new in predictions
    exclusive: eqx.AbstractClassVar[bool]  # whether a row has exactly one key

    @abstractmethod
    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        """The triplets of some rows."""

    @abstractmethod
    def label(self, name: str, key: Key) -> str:
        """What a key of the column `name` is called among the columns of x."""

    @abstractmethod
    def unseen(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        """Counts of what is `new` among the keys, by the words in which people are told."""

    def described(self, keys: tuple[Key, ...], counts: np.ndarray) -> dict[str, Any]:
        """How many keys there are, and of texts the commonest, with the number of rows that have each."""
        if not self.textual:
            return {self.noun: len(keys)}
        order = np.argsort(-counts, kind="stable")[:COMMONEST]
        return {self.noun: len(keys), "commonest": [[keys[i], int(counts[i])] for i in order]}


class Levels(Keys):
    """A category: an entry is one level."""

    kind: ClassVar[str] = "category"
    noun: ClassVar[str] = "levels"
    type: ClassVar[pa.DataType] = TEXT
    textual: ClassVar[bool] = True
    exclusive: ClassVar[bool] = True

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        text = pc.fill_null(column.cast(TEXT), MISSING).combine_chunks()
        coded = text.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(int)
        n = len(codes)
        return KeyedRows(n, np.arange(n), codes, np.ones(n), coded.dictionary.to_pylist())

    def label(self, name: str, key: Key) -> str:
        return f"{name}={key}"

    def unseen(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        found = zip(rows.keys, rows.tally().tolist(), new, strict=True)
        return {level: n for level, n, is_new in found if n and is_new}


class Words(Keys):
    """Free text: an entry is the set of its words."""

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "words"
    type: ClassVar[pa.DataType] = TEXT
    textual: ClassVar[bool] = True
    exclusive: ClassVar[bool] = False

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        text = pc.utf8_lower(column.cast(TEXT)).combine_chunks()
        blank = pc.fill_null(text, "")
        lists = pc.split_pattern_regex(blank, BETWEEN_WORDS)
        flat, rows = lists.flatten(), pc.list_parent_indices(lists)
        missing = pc.is_null(text).take(rows)
        flat = pc.if_else(missing, MISSING, flat)
        there = pc.not_equal(flat, "")
        coded = flat.filter(there).dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(int)
        rows = rows.filter(there).to_numpy(zero_copy_only=False).astype(int)
        words, n = coded.dictionary.to_pylist(), len(text)
        rows, codes = np.divmod(np.unique(rows * max(len(words), 1) + codes), max(len(words), 1))
        return KeyedRows(n, rows, codes, 1 / np.sqrt(np.bincount(rows, minlength=n)[rows]), words)

    def label(self, name: str, key: Key) -> str:
        return f"{name}: {key}"

    def unseen(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        n = len(np.unique(rows.rows[new[rows.codes]]))
        return {NEW_WORDS: n} if n else {}


class Indices(Keys):
    """Sparse rows: an entry is a list of indices and their values, taken as they are."""

    kind: ClassVar[str] = "sparse"
    noun: ClassVar[str] = "width"
    type: ClassVar[pa.DataType] = SPARSE
    textual: ClassVar[bool] = False
    exclusive: ClassVar[bool] = False

    def read(self, column: pa.ChunkedArray) -> KeyedRows:
        whole = column.combine_chunks()
        lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        flat = whole.flatten()
        coded = flat.field("index").dictionary_encode()
        return KeyedRows(
            len(column),
            np.repeat(np.arange(len(column)), lengths),
            coded.indices.to_numpy(zero_copy_only=False).astype(int),
            flat.field("value").to_numpy(zero_copy_only=False).astype(float),
            coded.dictionary.to_pylist(),
        )

    def label(self, name: str, key: Key) -> str:
        return f"{name}[{key}]"

    def unseen(self, rows: KeyedRows, new: np.ndarray) -> dict[str, int]:
        n = int(new[rows.codes].sum())
        return {NEW_INDICES: n} if n else {}
