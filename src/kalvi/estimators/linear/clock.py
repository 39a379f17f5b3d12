"""Times of rows, between which coefficients drift: in order, and given for all rows or for none."""

from typing import Any

import numpy as np

from kalvi.estimators.linear.fit import LinearFit


def checked_times(time: Any, n: int) -> np.ndarray:
    """The time of each of n rows, none before that of the row before it; dates are counted in days."""
    times = np.asarray(time)
    if times.dtype.kind == "M":
        missing = np.isnat(times)
        days = (times - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
        times = np.where(missing, np.nan, days)
    times = np.asarray(times, np.float64)
    if times.shape != (n,) or not np.all(np.isfinite(times)):
        raise ValueError(
            f"time must have a finite number or a date for each of the {n} rows; got shape {times.shape}"
            + (" with missing entries." if times.shape == (n,) else ".")
        )
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size:
        row = int(back[0]) + 1
        raise ValueError(
            f"time must not go back; row {row} has {times[row]:g} after {times[row - 1]:g}. Sort the rows."
        )
    return times


def check_clock(fit: LinearFit, times: np.ndarray | None) -> None:
    """Refuse times that say nothing, that are missing, or that are before the last row."""
    if times is None and fit.clock is None:
        return
    if times is None or (fit.clock is None and fit.n_rows):
        raise ValueError("time= must be given for all rows of a stream or for none.")
    if not fit.settings.drifts:
        raise ValueError(
            "time= says how long coefficients drift between rows; give drift= too, such as 0.999, what is "
            "kept of the past in a unit of time."
        )
    if fit.clock is not None and len(times) and times[0] < fit.clock:
        raise ValueError(
            f"time must not go back; row 0 has {times[0]:g}, and the last row learned {fit.clock:g}."
        )
