"""Times of rows, between which coefficients drift; they must be in order, and given for all rows or
none."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from kalvi.estimators.linear.fit import LinearFit


def checked_times(time: Any, n: int) -> np.ndarray:
    """The times of n rows, which must not decrease; dates are counted in days."""
    times = _as_numbers(time)
    if times.shape != (n,) or not np.all(np.isfinite(times)):
        raise ValueError(
            f"time must have a finite number or a date for each of the {n} rows; got shape {times.shape}"
            + (" with missing entries." if times.shape == (n,) else ".")
        )
    back = np.flatnonzero(times[1:] < times[:-1])
    if back.size:
        row = int(back[0]) + 1
        raise ValueError(
            f"time must not go back; row {row} has {times[row]:g} after {times[row - 1]:g}. Sort the rows."
        )
    return times


def _as_numbers(time: Any) -> np.ndarray:
    """Numbers unchanged; dates and durations in days, with time zones converted."""
    times = np.asarray(time)
    if times.dtype.kind == "O":
        times = np.array([_moment(entry) for entry in times.ravel()]).reshape(times.shape)
    if times.dtype.kind in "mM":
        start = np.datetime64("1970-01-01") if times.dtype.kind == "M" else np.timedelta64(0)
        days = (times - start) / np.timedelta64(1, "D")
        times = np.where(np.isnat(times), np.nan, days)
    if times.dtype.kind not in "iufb":
        raise ValueError(
            f"time must be numbers, dates or durations; got entries of type {times.dtype.name}."
        )
    return times.astype(np.float64)


def _moment(entry: Any) -> Any:
    """A date of Python or pandas as a NumPy date in UTC; anything else unchanged."""
    if isinstance(entry, datetime):
        entry = entry if entry.tzinfo is None else entry.astimezone(UTC)
        return np.datetime64(entry.replace(tzinfo=None), "us")
    return np.datetime64(entry, "us") if isinstance(entry, date) else entry


def check_clock(fit: LinearFit, times: np.ndarray | None) -> None:
    """Refuse times that have no effect, that are missing, or that are before the last row."""
    if times is None and fit.clock is None:
        return
    if times is None or (fit.clock is None and fit.n_rows):
        raise ValueError("time= must be given for all rows of a stream or for none.")
    if not fit.settings.drifts:
        raise ValueError(
            "time= says how long coefficients drift between rows; give drift= too, such as 0.999, what is "
            "kept of the past in a unit of time."
        )
    known = times if fit.clock is None else np.append(fit.clock, times)
    with np.errstate(over="ignore"):
        gaps = np.diff(known).astype(fit.settings.dtype)
    if not np.all(np.isfinite(gaps)):
        raise ValueError(
            f"the time between two rows must be finite in {np.dtype(fit.settings.dtype).name}; got "
            f"times from {known.min():g} to {known.max():g}. Give them in a larger unit."
        )
    if fit.clock is not None and len(times) and times[0] < fit.clock:
        raise ValueError(
            f"time must not go back; row 0 has {times[0]:g}, and the last row learned {fit.clock:g}."
        )
