"""A table into rows of x: numbers first, whether they are missing, then the places of levels and indices.

The width of x has some room for levels to come: their coefficients keep the prior until a row has them.
Where the room is used up the encoder says so by a larger width, and the model is widened before it learns.
"""

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from kalvi.columns.groups import Group, Hashed, HashedSparse, Levels, Sparse
from kalvi.columns.numbers import Moments, Numbers, Place
from kalvi.columns.words import HashedText, Text
from kalvi.readers.files import BadData

FREE = "(free)"
KINDS = {"double": "number", "bool": "flag", "string": "category"}
DENSE_WIDTH = 128
"""Rows of x up to this wide are made dense whatever their columns."""
ROOM, STEP = 0.06, 8
"""The share of places kept free for levels to come, and what widths are multiples of."""


class Settings(NamedTuple):
    """What a person decides about the columns."""

    impute: bool = False
    hash_bits: int | None = None
    max_width: int = 2**20
    fixed: bool = False  # levels that the first rows lack share one place of their column


class Encoded(NamedTuple):
    """Rows of x, the encoder after them, and levels that it did not know."""

    x: Any
    encoder: "Encoder"
    unseen: dict[str, dict[str, int]]


class Encoder(NamedTuple):
    """How the columns of a table are written as numbers."""

    numbers: Numbers
    groups: tuple[Group, ...]
    settings: Settings
    used: int  # places given so far
    width: int  # places that a row of x has

    @classmethod
    def begin(
        cls,
        kinds: dict[str, str],
        sample: pa.Table,
        settings: Settings,
        place: Place = lambda row: f"row {row + 1}",
    ) -> "Encoder":
        """For columns of these kinds, with units and levels from the first rows."""
        dense = {n: k for n, k in kinds.items() if k in ("number", "flag", "time", "vector")}
        numbers = Numbers.begin(dense, sample.schema)
        used = numbers.width + settings.impute * len(dense)
        made, hashing = [], used
        if settings.hash_bits is not None and len(dense) < len(kinds):
            used += 2**settings.hash_bits
        for name, kind in kinds.items():
            if kind in ("category", "text", "sparse"):
                made.append(_begun(name, kind, settings.hash_bits, hashing, used))
                used += kind != "sparse" and settings.hash_bits is None  # a place of new levels
        encoder = cls(numbers, tuple(made), settings, used, used)
        raw = numbers.raw(sample, place)
        encoder = encoder._replace(numbers=numbers.settled(raw))
        known = encoder._with_levels(encoder._parts(sample))
        return known._replace(width=known.used if settings.fixed else known._roomy())

    def encode(self, table: pa.Table, place: Place, *, learn: bool) -> Encoded:
        """The rows of x; with `learn` they are counted, and new levels get places unless fixed."""
        table = self._of_our_kinds(table, place)
        raw = self.numbers.raw(table, place)
        if not self.settings.impute:
            self._check_missing(table, raw, place)
        after = self._replace(numbers=self.numbers.settled(raw)) if learn else self
        parts, unseen = self._parts(table), {}
        if learn and not self.settings.fixed:
            after = after._with_levels(parts)
        else:
            unseen = self._unseen(parts)
        z = after.numbers.standardised(raw, place)
        x = after._matrix(z, raw, parts)
        return Encoded(x, after._counted(z, raw, parts) if learn else self, unseen)

    def names(self) -> list[str]:
        """What each place of a row of x is; free places are FREE."""
        found = self.numbers.slot_names()
        if self.settings.impute:
            found += [f"{name} is missing" for name in self.numbers.names]
        names = found + [FREE] * (self.width - len(found))
        for group in self.groups:
            for slot, name in group.slot_names().items():
                names[slot] = name
        return names

    def joined(self, other: "Encoder") -> "Encoder":
        """With the levels of another of the same columns and units, and its rows counted as well."""
        wide = self._with_levels([group.known() for group in other.groups])
        groups = (a.with_counts(b) for a, b in zip(wide.groups, other.groups, strict=True))
        numbers = self.numbers._replace(
            rows=self.numbers.rows + other.numbers.rows,
            moments=self.numbers.moments.join(other.numbers.moments),
        )
        return wide._replace(numbers=numbers, groups=tuple(groups))

    def places_in(self, wide: "Encoder") -> np.ndarray:
        """Where the places of this one are in another that has all of its levels; free ones stay free."""
        places = np.full(self.width, -1)
        for own, other in zip(self.groups, wide.groups, strict=True):
            where = other.keys()
            for key, slot in own.keys().items():
                places[slot] = where[key]
        front = self.numbers.width + self.settings.impute * len(self.numbers.names)
        places[:front] = np.arange(front)
        spare = np.setdiff1d(np.arange(wide.width), places)
        free = np.flatnonzero(places < 0)
        places[free] = spare[: len(free)]
        return places

    def forgetful(self) -> "Encoder":
        """The same places and units, with no row counted."""
        none = self.numbers._replace(rows=0, moments=Moments.none(self.numbers.width))
        return self._replace(numbers=none, groups=tuple(g.uncounted() for g in self.groups))

    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        return (*self.numbers.names, *(group.name for group in self.groups))

    def described(self) -> list[dict[str, Any]]:
        """For each column its kind and what was seen of it."""
        return [*self.numbers.described(), *(group.described() for group in self.groups)]

    def fixed(self) -> bool:
        """Whether the width can never change."""
        return all(group.count() is None for group in self.groups)

    def _of_our_kinds(self, table: pa.Table, place: Place) -> pa.Table:
        """The table, if its columns are of the kinds that are known; all-missing ones may be of any."""
        kinds = {**dict(self.numbers.types()), **{g.name: g.type() for g in self.groups}}
        for name, kind in kinds.items():
            column = table[name]
            if column.type == kind or (kind == pa.bool_() and column.type == pa.float64()):
                continue
            if column.null_count < len(column):
                raise BadData(
                    f"{place(0)}: column '{name}' is {column.type} here, but the model knows it as {kind}."
                )
            where = table.column_names.index(name)
            table = table.set_column(where, name, pa.nulls(len(column), kind))
        return table

    def _check_missing(self, table: pa.Table, raw: np.ndarray, place: Place) -> None:
        absent = self.numbers.absent(raw)
        nulls = {g.name: table[g.name].is_null().to_numpy() for g in self.groups}
        columns = {**dict(zip(self.numbers.names, absent.T, strict=True)), **nulls}
        for name, missing in columns.items():
            if missing.any():
                raise BadData(
                    f"{place(int(np.argmax(missing)))}: column '{name}' is missing; fill it in (it is "
                    "empty, or a marker such as ? or NA), drop the column, or have missing values imputed "
                    "and marked (--missing impute)."
                )

    def _parts(self, table: pa.Table) -> list[Any]:
        return [group.parts(table[group.name]) for group in self.groups]

    def _with_levels(self, parts: list[Any]) -> "Encoder":
        """With places for what had none."""
        used, found = self.used, []
        for group, part in zip(self.groups, parts, strict=True):
            found.append(group.with_new(part, used))
            used += (found[-1].count() or 0) - (group.count() or 0)
        if used > self.settings.max_width:
            self._refuse_width(found)
        grown = self._replace(groups=tuple(found), used=used)
        return grown if used <= self.width else grown._replace(width=grown._roomy())

    def _refuse_width(self, found: list[Group]) -> None:
        sizes = {group.name: group.count() or 0 for group in found}
        most = max(sizes, key=lambda name: sizes[name])
        raise BadData(
            f"the columns need more than {self.settings.max_width} places, {sizes[most]} of them for "
            f"'{most}'; drop it (--drop {most}), hash its levels (--hash-bits 18), or raise --max-width."
        )

    def _roomy(self) -> int:
        if self.fixed():
            return self.used
        return -(-int(self.used * (1 + ROOM) + 1) // STEP) * STEP

    def _unseen(self, parts: list[Any]) -> dict[str, dict[str, int]]:
        pairs = zip(self.groups, parts, strict=True)
        return {group.name: new for group, part in pairs if (new := group.unseen(part))}

    def _matrix(self, z: np.ndarray, raw: np.ndarray, parts: list[Any]) -> Any:
        dense = [np.nan_to_num(z, nan=0.0)]
        if self.settings.impute:
            dense.append(self.numbers.absent(raw).astype(float))
        front = np.column_stack(dense)
        if not self.groups:
            return front
        entries = [g.entries(part) for g, part in zip(self.groups, parts, strict=True)]
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

    def _counted(self, z: np.ndarray, raw: np.ndarray, parts: list[Any]) -> "Encoder":
        counted = (g.seen(part, len(z)) for g, part in zip(self.groups, parts, strict=True))
        return self._replace(numbers=self.numbers.seen(z, raw), groups=tuple(counted))


def _begun(name: str, kind: str, bits: int | None, hashing: int, unknown: int) -> Group:
    """A column whose entries have places, before its first rows; hashed ones from `hashing` on."""
    if bits is not None:
        hashed = {"category": Hashed, "text": HashedText, "sparse": HashedSparse}
        return hashed[kind](name, 0, 0, bits, hashing)
    none = np.zeros(0, int)
    if kind == "sparse":
        return Sparse(name, 0, 0, none)
    return {"category": Levels, "text": Text}[kind](name, 0, 0, unknown, (), none, none)


def kinds_of(
    schema: pa.Schema, features: tuple[str, ...], drop: tuple[str, ...], taken: set[str]
) -> dict[str, str]:
    """The kind of each column that is read: those that match `features` (all if none), less `drop`."""
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
    """Whether a column is read: it matches `features` (or there are none), and not `drop`."""
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
    return "sparse" if pa.types.is_list(kind) else KINDS[str(kind)]
