"""The settings of the copies of a stream: prior scales, and shares of the past that a row keeps."""

from typing import Any

import numpy as np

from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.rules.drifts import Geometric
from kalvi.rules.side_by_side import Grid

FIXED, LEARNED = "grid", "stream"
"""The ways to find settings: on a grid whose copies all learn all rows, or during the stream."""
KEEPS = (1.0, 0.9999, 0.9997, 0.999, 0.997, 0.99, 0.97)
"""The shares of the past that a row keeps: memories of all rows, 10,000 rows, and so on down to 33."""
LEAST_LEFT = 0.37
"""A block keeps at least this share of the earlier information, so no memory is shorter than a block. A
full covariance has the same memories for any number of features, because a model may be widened."""
FIRST_PAIRS = ((-2, 0), (-1, 0), (0, 0), (2, 0), (-1, 3), (0, 3), (1, 3), (0, 5))
"""The points that begin awake, as steps from the middle scale and places in `KEEPS`."""


def make_grid(settings: LinearSettings, family: Family, block: int, learned: bool) -> Grid:
    """The grid of a stream with blocks of `block` rows."""
    scales = tuple(map(float, family.scales)) if settings.seeks_scale else (1.0,)
    if not learned:
        return Grid(scales)
    keeps = (_given_keep(settings),)
    if settings.seeks_drift:
        keeps = tuple(keep for keep in KEEPS if keep**block >= LEAST_LEFT)
    middle = int(np.argmin(np.abs(np.log(np.array(scales) / family.usual_scale))))
    awake = dict.fromkeys(
        _clip(middle + down, scales) * len(keeps) + _clip(right, keeps)
        for down, right in FIRST_PAIRS
    )
    return Grid(scales, keeps, tuple(awake), turns=True)


def how_sought(settings: LinearSettings, streaming: bool) -> str:
    """The way to find the settings that are not given; "" if all are given.

    Copies can continue from each other's posterior only with geometric drift or none.
    """
    geometric = len(settings.drifts) < 2 and all(isinstance(d, Geometric) for d in settings.drifts)
    if streaming and geometric and (settings.seeks_scale or settings.seeks_drift):
        return LEARNED
    return FIXED if settings.seeks_scale else ""


def _given_keep(settings: LinearSettings) -> float:
    kept = [float(drift.keep) for drift in settings.drifts if isinstance(drift, Geometric)]
    return kept[0] if kept else 1.0


def _clip(place: int, values: Any) -> int:
    return min(max(place, 0), len(values) - 1)
