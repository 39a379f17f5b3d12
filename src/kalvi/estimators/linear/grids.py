"""The settings that copies of a stream may have: prior scales, and what a row keeps of the past."""

from typing import Any

import numpy as np

from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.rules.drifts import Geometric
from kalvi.rules.side_by_side import Grid

FIXED, LEARNED = "grid", "stream"
"""How settings are found: on a grid whose copies all learn all rows, or on the way."""
KEEPS = (1.0, 0.9999, 0.9997, 0.999, 0.997, 0.99, 0.97)
"""What a row keeps of the past: memories of all rows, 10,000, and so on down to 33."""
LEAST_LEFT = 0.45
"""A block leaves at least so much of what was known before it: no memory is much shorter than a block."""
FIRST_PAIRS = ((-2, 0), (-1, 0), (0, 0), (2, 0), (-1, 3), (0, 3), (1, 3), (0, 5))
"""The points that begin awake: steps from the middle scale, and places among `KEEPS`."""


def make_grid(settings: LinearSettings, family: Family, block: int, learned: bool) -> Grid:
    """The grid of a stream whose blocks have so many rows."""
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
    """How settings that are not given are found: "" if all are.

    Copies can go on from one another's posterior where drift is geometric or none.
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
