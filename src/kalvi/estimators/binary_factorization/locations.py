"""Locations of the rows or columns of a matrix as users give them: any order, ties, dates, none."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from kalvi.rules.silk.locations import (
    DeviceLocations,
    Locations,
    group_locations,
    separate_ties,
    unordered_locations,
)

Layout = tuple[DeviceLocations, DeviceLocations]
"""The locations of rows and of columns, on the device."""
TIES = ("share", "spread")
UNORDERED = "unordered"


class SortedAxis(NamedTuple):
    """The locations of one side of a matrix in rising order, and where the user's rows are among them."""

    places: Locations  # of the sorted rows
    # the user's rows in the order of the places; None: as they are
    order: Int[np.ndarray, " r"] | None

    @property
    def n(self) -> int:
        """How many rows there are."""
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
        """Numbers of the user's rows as numbers of the sorted ones."""
        if self.order is None:
            return index
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(self.n)
        return inverse[index]


def on_device(rows: SortedAxis, cols: SortedAxis, dtype: str) -> Layout:
    """The locations of rows and columns as programs take them."""
    return rows.places.on_device(dtype), cols.places.on_device(dtype)


def sort_axis(name: str, given: Any, n: int, ties: str) -> SortedAxis:
    """The locations of n rows (or columns), `given` as the parameter `name`, in rising order."""
    if given is None:
        return SortedAxis(group_locations(np.arange(n, dtype=float)), None)
    if isinstance(given, str) and given == UNORDERED:
        return SortedAxis(unordered_locations(n), None)
    locations = locations_as_numbers(name, given)
    if len(locations) != n:
        what = name.split("_")[0] + ("s" if name.startswith("row") else "umns")
        raise ValueError(
            f"{name} must hold one location for each of the {n} {what}; got {len(locations)}."
        )
    order = np.argsort(locations, kind="stable")
    if np.array_equal(order, np.arange(n)):
        order = None
    rising = locations if order is None else locations[order]
    return SortedAxis(group_locations(separate_ties(rising) if ties == "spread" else rising), order)


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
    """The value as an array of numbers or NumPy's dates, if it is one; masked entries are NaN."""
    if hasattr(given, "to_timestamp") and hasattr(given, "freq"):  # periods of pandas
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
    """Dates as days since 1970, times as days; NaN where there is none."""
    missing = np.isnat(values)
    if values.dtype.kind == "M":
        values = values - np.datetime64(0, "D")
    return np.where(missing, np.nan, values / np.timedelta64(1, "D"))
