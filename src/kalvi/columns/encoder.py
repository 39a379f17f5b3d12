"""The rows of a table as rows of x: first numbers, then indicators of missing numbers, then slots of keys.

A slot is a column of x. Keys are the levels, words and indices in columns that are no numbers. Rows of x
have some free slots, whose coefficients keep the prior until a new key takes the slot. When none is free,
the encoder returns wider rows, and the model is widened before it learns from them.
"""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from kalvi.columns.keyed import KeyedColumn
from kalvi.columns.keys import Indices, Key, KeyedRows, Keys, Levels, Names, Words
from kalvi.columns.numbers import ColumnMoments, NumberColumns
from kalvi.columns.slots import HashedSlots, OwnSlots, Slots
from kalvi.readers.column_types import NAMED
from kalvi.readers.files import BadData, RowLocator

FREE = "(free)"
KINDS = {"double": "number", "bool": "flag", "string": "category"}
KEYS: dict[str, Keys] = {
    "category": Levels(),
    "text": Words(),
    "sparse": Indices(),
    "named": Names(),
}
"""How columns of these types are read; columns of other types are numbers."""
DENSE_WIDTH = 128
"""The most columns of x that is always a dense array; wider rows with keys are sparse."""
ROOM, STEP = 0.06, 8
"""The share of slots that are kept free for new keys; the width is a multiple of `STEP`."""


class EncoderSettings(NamedTuple):
    """The user's choices about the encoding of columns."""

    impute: bool = False
    hash_bits: int | None = None
    max_width: int = 2**20
    fixed: bool = False  # whether keys that the first rows lack share an unknown slot


class Encoded(NamedTuple):
    """Rows of x, the encoder after them, and for each column the number of rows with each unknown key."""

    x: Any
    encoder: "Encoder"
    new_keys: dict[str, dict[str, int]]


class Encoder(NamedTuple):
    """Turns the columns of a table into rows of numbers."""

    numbers: NumberColumns
    groups: tuple[KeyedColumn, ...]
    settings: EncoderSettings
    used: int  # slots given so far
    width: int  # slots that a row of x has

    @classmethod
    def begin(
        cls,
        kinds: dict[str, str],
        sample: pa.Table,
        settings: EncoderSettings,
        locate: RowLocator = lambda row: f"row {row + 1}",
    ) -> "Encoder":
        """An encoder for columns of these types, with the units and keys of the first rows."""
        dense = {name: kind for name, kind in kinds.items() if kind not in KEYS}
        numbers = NumberColumns.begin(dense, sample.schema)
        used = start = numbers.width + settings.impute * len(dense)
        bits, keyed = settings.hash_bits, []
        used += 2**bits if bits is not None and len(dense) < len(kinds) else 0
        for name in (name for name in kinds if name not in dense):
            keys = KEYS[kinds[name]]
            slots = _first_slots(keys, bits, start, used)
            keyed.append(KeyedColumn(name, keys, slots))
            used += slots.unknown is not None
        numbers = numbers.with_units(numbers.raw(sample, locate))
        encoder = cls(numbers, tuple(keyed), settings, used, used)
        known = encoder.with_slots_for([rows.keys for rows in encoder._keyed_rows(sample)])
        return known._replace(width=known.used if settings.fixed else known.roomy_width())

    def encode(self, table: pa.Table, locate: RowLocator, *, learn: bool) -> Encoded:
        """The rows of x; with `learn` they are counted, and new keys get slots unless these are fixed."""
        table = self._check_types(table, locate)
        raw = self.numbers.raw(table, locate)
        if not self.settings.impute:
            self._check_missing(table, raw, locate)
        after = self._replace(numbers=self.numbers.with_units(raw)) if learn else self
        keyed, new_keys = self._keyed_rows(table), {}
        if learn and not self.settings.fixed:
            after = after.with_slots_for([rows.keys for rows in keyed])
        else:
            pairs = zip(self.groups, keyed, strict=True)
            new_keys = {g.name: new for g, rows in pairs if (new := g.count_new(rows))}
        z = after.numbers.standardise(raw, locate)
        x = after.matrix_of(z, raw, keyed)
        return Encoded(x, after.with_counts(z, raw, keyed) if learn else self, new_keys)

    def names(self) -> list[str]:
        """The name of each slot; free ones are called FREE."""
        found = self.numbers.slot_names()
        if self.settings.impute:
            found += [f"{name} is missing" for name in self.numbers.names]
        names = found + [FREE] * (self.width - len(found))
        for group in self.groups:
            for slot, name in group.labels().items():
                names[slot] = name
        return names

    def merged_with(self, other: "Encoder") -> "Encoder":
        """A copy with the keys of another of the same columns and units, and its rows counted as well."""
        counts = [group.slots.rows_by_key() for group in other.groups]
        wide = self.with_slots_for([keys for keys, _ in counts])
        groups = (
            own.with_counts(*found, group.rows, group.missing)
            for own, found, group in zip(wide.groups, counts, other.groups, strict=True)
        )
        numbers = self.numbers._replace(
            rows=self.numbers.rows + other.numbers.rows,
            moments=self.numbers.moments.join(other.numbers.moments),
        )
        return wide._replace(numbers=numbers, groups=tuple(groups))

    def slots_in(self, wide: "Encoder") -> np.ndarray:
        """The slot of each slot's key in a wider encoder; free slots go to slots that are free there."""
        found = np.full(self.width, -1)
        for own, other in zip(self.groups, wide.groups, strict=True):
            where = other.slots.by_key()
            for key, slot in own.slots.by_key().items():
                found[slot] = where[key]
        front = self.numbers.width + self.settings.impute * len(self.numbers.names)
        found[:front] = np.arange(front)
        spare = np.setdiff1d(np.arange(wide.width), found)
        free = np.flatnonzero(found < 0)
        found[free] = spare[: len(free)]
        return found

    def without_counts(self) -> "Encoder":
        """A copy with the same slots and units that has counted no row."""
        none = self.numbers._replace(rows=0, moments=ColumnMoments.none(self.numbers.width))
        return self._replace(numbers=none, groups=tuple(g.without_counts() for g in self.groups))

    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the table that are read."""
        return (*self.numbers.names, *(group.name for group in self.groups))

    def describe(self) -> list[dict[str, Any]]:
        """For each column its kind and a summary of its entries."""
        return [*self.numbers.describe(), *(group.describe() for group in self.groups)]

    def fixed(self) -> bool:
        """Whether no key can ever get a new slot."""
        return all(group.slots.count() is None for group in self.groups)

    def _check_types(self, table: pa.Table, locate: RowLocator) -> pa.Table:
        """The table, if its columns have the known types; a column without entries may have any."""
        types = {**dict(self.numbers.types()), **{g.name: g.keys.type for g in self.groups}}
        for name, known in types.items():
            column = table[name]
            if column.type == known or (known == pa.bool_() and column.type == pa.float64()):
                continue
            if column.null_count < len(column):
                raise BadData(
                    f"{locate(0)}: column '{name}' is {column.type} here, but the model knows it as "
                    f"{known}."
                )
            where = table.column_names.index(name)
            table = table.set_column(where, name, pa.nulls(len(column), known))
        return table

    def _check_missing(self, table: pa.Table, raw: np.ndarray, locate: RowLocator) -> None:
        absent = self.numbers.is_missing(raw)
        nulls = {g.name: table[g.name].is_null().to_numpy() for g in self.groups}
        columns = {**dict(zip(self.numbers.names, absent.T, strict=True)), **nulls}
        for name, missing in columns.items():
            if missing.any():
                raise BadData(
                    f"{locate(int(np.argmax(missing)))}: column '{name}' is missing; fill it in (it is "
                    "empty, or a marker such as ? or NA), drop the column, or have missing values imputed "
                    "and marked (--missing impute)."
                )

    def _keyed_rows(self, table: pa.Table) -> list[KeyedRows]:
        return [group.keys.read(table[group.name]) for group in self.groups]

    def with_slots_for(self, keys: list[Sequence[Key]]) -> "Encoder":
        """A copy with slots for the new ones among the keys of each column."""
        used, found = self.used, []
        for group, own in zip(self.groups, keys, strict=True):
            slots = group.slots.with_slots_for(own, used)
            found.append(replace(group, slots=slots))
            used += (slots.count() or 0) - (group.slots.count() or 0)
        if used > self.settings.max_width:
            self._refuse_width(found)
        grown = self._replace(groups=tuple(found), used=used)
        return grown if used <= self.width else grown._replace(width=grown.roomy_width())

    def _refuse_width(self, found: list[KeyedColumn]) -> None:
        sizes = {group.name: group.slots.count() or 0 for group in found}
        most = max(sizes, key=lambda name: sizes[name])
        raise BadData(
            f"the columns need more than {self.settings.max_width} features, {sizes[most]} of them for "
            f"'{most}'; drop it (--drop {most}), hash its levels (--hash-bits 18), or raise --max-width."
        )

    def roomy_width(self) -> int:
        """The width with some slots free for new keys, unless there can be none."""
        if self.fixed():
            return self.used
        return -(-int(self.used * (1 + ROOM) + 1) // STEP) * STEP

    def matrix_of(self, z: np.ndarray, raw: np.ndarray, keyed: list[KeyedRows]) -> Any:
        """The rows of x, made from standardised numbers, raw numbers and keys."""
        dense = [np.nan_to_num(z, nan=0.0)]
        if self.settings.impute:
            dense.append(self.numbers.is_missing(raw).astype(float))
        front = np.column_stack(dense)
        if not self.groups:
            return front
        entries = [g.triplets(own) for g, own in zip(self.groups, keyed, strict=True)]
        rows, slots, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        shape = (len(z), self.width)
        if self.width <= DENSE_WIDTH:
            x = np.zeros(shape)
            x[:, : front.shape[1]] = front
            np.add.at(x, (rows, slots), values)
            return x
        numbers = np.indices(front.shape)
        rows, slots = np.append(numbers[0], rows), np.append(numbers[1], slots)
        return sp.csr_array((np.append(front, values), (rows, slots)), shape=shape)

    def with_counts(self, z: np.ndarray, raw: np.ndarray, keyed: list[KeyedRows]) -> "Encoder":
        """A copy that counts these rows as well."""
        groups = (
            group.with_counts(rows.keys, rows.tally(), rows.n, rows.missing())
            for group, rows in zip(self.groups, keyed, strict=True)
        )
        return self._replace(numbers=self.numbers.with_counts(z, raw), groups=tuple(groups))


def _first_slots(keys: Keys, bits: int | None, start: int, used: int) -> Slots:
    """The slots of a column before its first rows; hashed ones begin at `start`."""
    if bits is not None:
        return HashedSlots(bits=bits, start=start)
    return OwnSlots.none(used if keys.textual else None)


def kinds_of(
    schema: pa.Schema, features: tuple[str, ...], drop: tuple[str, ...], taken: set[str]
) -> dict[str, str]:
    """The type of each column that matches `features` (all if it is empty) but not `drop`, by name."""
    for pattern in features:
        if not any(fnmatchcase(name, pattern) for name in schema.names):
            raise ValueError(
                f"no column is called '{pattern}'; there are {', '.join(schema.names[:30])}"
                + (" ..." if len(schema.names) > 30 else ".")
            )
    kept = [
        field
        for field in schema
        if field.name not in taken and is_chosen(field.name, features, drop)
    ]
    if not kept:
        raise ValueError("no columns are left to learn from; check --features and --drop.")
    return {field.name: _kind(field) for field in kept}


def is_chosen(name: str, features: tuple[str, ...], drop: tuple[str, ...]) -> bool:
    """Whether a column matches `features` (or that is empty) and does not match `drop`."""
    chosen = not features or any(fnmatchcase(name, pattern) for pattern in features)
    return chosen and not any(fnmatchcase(name, pattern) for pattern in drop)


def _kind(field: pa.Field) -> str:
    kind = field.type
    if (field.metadata or {}).get(b"kind") == b"text":
        return "text"
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_fixed_size_list(kind):
        return "vector"
    if kind == NAMED:
        return "named"
    return "sparse" if pa.types.is_list(kind) else KINDS[str(kind)]
