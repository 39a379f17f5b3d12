"""Locations of the rows or columns of a matrix as users give them: any order, ties, dates, none."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kalvi.numerics.namespaces import is_jax
from kalvi.rules.silk.locations import (
    DeviceLocations,
    Locations,
    group_locations,
    separate_ties,
    unordered_locations,
)
from kalvi.streams import engines

Layout = tuple[DeviceLocations, DeviceLocations]
"""The locations of rows and of columns, on the device."""
TIES = ("share", "spread")
UNORDERED = "unordered"


class SortedAxis(NamedTuple):
    """The locations of one side of a matrix in increasing order, and the positions of the user's rows."""

    places: Locations  # of the sorted rows
    # the user's rows in the order of the places; None: as they are
    order: Int[np.ndarray, " r"] | None
    groups: np.ndarray | None = None  # the names of the chains of the places; None: one chain

    @property
    def n(self) -> int:
        """The number of rows."""
        spot = self.places.spot
        return len(self.places.locations if spot is None else spot)

    @property
    def location_numbers(self) -> Int[np.ndarray, " r"]:
        """The number of the location of each of the user's rows."""
        spot = np.arange(self.n) if self.places.spot is None else self.places.spot
        if self.order is None:
            return spot
        found = np.empty_like(spot)
        found[self.order] = spot
        return found

    def sort(self, index: Int[np.ndarray, " e"]) -> Int[np.ndarray, " e"]:
        """Indices of the user's rows as indices of the sorted rows."""
        if self.order is None:
            return index
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(self.n)
        return inverse[index]


def on_device(rows: SortedAxis, cols: SortedAxis, dtype: str) -> Layout:
    """The locations of rows and columns in the form that programs take."""
    return rows.places.on_device(dtype), cols.places.on_device(dtype)


def laid_out(axes: tuple[SortedAxis, SortedAxis], dtype: str, observed: Any) -> Layout:
    """The locations in arrays of the same library as the entries."""
    return engines.placed(on_device(*axes, dtype), not is_jax(observed))


def sort_axis(name: str, given: Any, n: int, ties: str, groups: Any = None) -> SortedAxis:
    """The locations of n rows (or columns), `given` as the parameter `name`, in increasing order.

    `groups` has the group of each row; only rows of one group are smooth along their locations.
    """
    unordered = isinstance(given, str) and given == UNORDERED
    if groups is not None and unordered:
        raise ValueError(
            f"{_groups_of(name)} need {name}, numbers or dates or None for the order of the matrix; "
            f"got {given!r}."
        )
    if unordered:
        return SortedAxis(unordered_locations(n), None)
    locations = np.arange(n, dtype=float) if given is None else locations_as_numbers(name, given)
    _check_length(name, "location", len(locations), n)
    names, chains = None, None
    if groups is not None:
        names, chains = np.unique(_group_names(_groups_of(name), groups, n), return_inverse=True)
    order = np.lexsort((locations,) if chains is None else (locations, chains))
    if np.array_equal(order, np.arange(n)):
        order = None
    rising = locations if order is None else locations[order]
    if order is not None and chains is not None:
        chains = chains[order]
    spread = separate_ties(rising, chains) if ties == "spread" else rising
    return SortedAxis(group_locations(spread, chains), order, names)


def group_numbers(parameter: str, given: Any, axis: SortedAxis, n: int) -> Int[np.ndarray, " t"]:
    """The chains of n new locations, by the names of their groups."""
    if (given is None) != (axis.groups is None):
        need = "are needed where those of fit were given, and only there"
        raise ValueError(f"{parameter} {need}.")
    if given is None or axis.groups is None:
        return np.zeros(n, int)
    wanted = _group_names(parameter, given, n)
    found = np.minimum(np.searchsorted(axis.groups, wanted), len(axis.groups) - 1)
    unknown = np.flatnonzero(axis.groups[found] != wanted)
    if unknown.size:
        raise ValueError(
            f"{parameter} must be groups of fit; {wanted[unknown[0]].item()!r} is none of its "
            f"{len(axis.groups)}. For new rows use transform."
        )
    return found


def _group_names(parameter: str, given: Any, n: int) -> np.ndarray:
    """Names of groups, whole numbers or texts."""
    names = np.asarray(given)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)
    if names.ndim != 1 or names.dtype.kind not in "biuU":
        raise ValueError(
            f"{parameter} must be an array of whole numbers or of texts; got {names.dtype} of shape "
            f"{names.shape}."
        )
    _check_length(parameter, "group", len(names), n)
    return names


def _check_length(parameter: str, what: str, found: int, n: int) -> None:
    if found != n:
        side = "rows" if parameter.startswith("row") else "columns"
        raise ValueError(
            f"{parameter} must hold one {what} for each of the {n} {side}; got {found}."
        )


def _groups_of(locations: str) -> str:
    return locations.replace("_locations", "_groups")


def locations_as_numbers(name: str, given: Any) -> Float[np.ndarray, " n"]:
    """Locations as numbers; dates become days since 1970, and times days."""
    if isinstance(given, str):
        raise ValueError(
            f"{name} must be None (the order of the matrix), 'unordered' or an array of locations; "
            f"got {given!r}."
        )
    values = _array(given)
    if values.ndim != 1:
        raise ValueError(f"{name} must be an array of one dimension; got shape {values.shape}.")
    if values.dtype.kind in "mM":
        values = _days(values)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers or dates; got {values.dtype}.")
    values = values.astype(float)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"{name} must be finite; entry {bad[0]} is {values[bad[0]]} ({bad.size} such entries). "
            "Leave out what has no location, or use 'unordered'."
        )
    return values


def _array(given: Any) -> np.ndarray:
    """The value as an array of numbers or dates; masked entries are NaN."""
    if hasattr(given, "to_timestamp") and hasattr(given, "freq"):  # a period of pandas
        given = given.to_timestamp()
    if getattr(getattr(given, "dtype", None), "tz", None) is not None:
        given = given.to_numpy("datetime64[ns]")
    if np.ma.isMaskedArray(given):
        given = np.ma.filled(given.astype(float), np.nan)
    values = np.asarray(given)
    if values.dtype.kind not in "OUS":
        return values
    for kind in (float, "datetime64[us]"):
        try:
            return values.astype(kind)
        except (TypeError, ValueError, OverflowError):
            continue
    return values


def _days(values: np.ndarray) -> np.ndarray:
    """Dates as days since 1970, times as days; NaN if missing."""
    missing = np.isnat(values)
    if values.dtype.kind == "M":
        values = values - np.datetime64(0, "D")
    return np.where(missing, np.nan, values / np.timedelta64(1, "D"))
