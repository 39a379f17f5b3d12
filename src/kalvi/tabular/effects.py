"""The coefficients of a linear model of a table, standardised and in the units of the columns.

The model learns from z = (x − centre)/scale, with the mean and the standard deviation of the first rows. A
coefficient of z is the effect of one standard deviation, so coefficients can be compared; divided by the
scale it is the effect of one unit of the column (for times, of one day). The effect of a level is relative
to the mean over the rows of its column. The intercept is given twice: for a row that is average in every
column, and for a row in which every number is 0.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kalvi.columns.encoder import FREE, Encoder
from kalvi.columns.keyed import NEW_LEVEL
from kalvi.columns.targets import Classes, Target
from kalvi.estimators.linear.predictions import predict_rows
from kalvi.evaluation.intervals import normal
from kalvi.likelihoods import Normal

MOST_EFFECTS, LEVEL = 200, 0.95
MOST_CONTRASTS = 2000
"""In columns with more levels than this, effects are not relative to the mean of the column."""
DAY = 86_400.0
STANDARDISED = "mean, std, lower, upper: for one standard deviation of the column in the first rows"
ORIGINAL = "original: for one unit of the column, or one day of a time"


class Combinations(NamedTuple):
    """Linear combinations of coefficients: their names, the combinations as rows, and their units."""

    names: list[str]
    rows: Any
    scale: np.ndarray
    unit: list[str | None]


def effects(estimator: Any, encoder: Encoder, target: Target) -> list[dict[str, Any]]:
    """Coefficients with their intervals, ordered by how far the interval is from zero."""
    sums = contrasts(encoder, bool(estimator.fit_intercept))
    mean, std = _moments(estimator, target, sums.rows)
    _, lower, upper = normal(mean, std, LEVEL)
    n, groups = len(sums.names), _classes(target)
    found = []
    for i in np.argsort(-np.maximum(lower, -upper), kind="stable")[:MOST_EFFECTS]:
        j = i % n
        found.append(
            {
                "name": sums.names[j],
                "class": groups[i // n],
                **_interval(mean[i], std[i]),
                "original": _interval(mean[i] / sums.scale[j], std[i] / sums.scale[j]),
                "unit": sums.unit[j],
            }
        )
    return found


def count_effects(encoder: Encoder, target: Target) -> int:
    """The number of effects, including those that `effects` leaves out."""
    return len(contrasts(encoder, False).names) * len(_classes(target))


def intercepts(estimator: Any, encoder: Encoder, target: Target) -> list[dict[str, Any]]:
    """The intercept of each class, for an average row and for one with 0 in every number."""
    if not estimator.fit_intercept:
        return []
    zero, _ = target.in_original_units(np.array([0.0, 1.0]))
    mean, std = _moments(estimator, target, _intercept_rows(encoder))
    pairs = (mean + zero).reshape(-1, 2), std.reshape(-1, 2)
    return [
        {"class": group, **_interval(m[0], s[0]), "original": _interval(m[1], s[1])}
        for group, m, s in zip(_classes(target), *pairs, strict=True)
    ]


def contrasts(encoder: Encoder, intercept: bool) -> Combinations:
    """Each effect as a linear combination of the coefficients."""
    names, scale, unit = encoder.names(), *_units(encoder)
    hidden = _never_occurred(encoder)
    kept = np.array(
        [
            i
            for i, name in enumerate(names)
            if name != FREE and not name.endswith(NEW_LEVEL) and i not in hidden
        ],
        int,
    )
    rows = sp.lil_array((len(kept), encoder.width + intercept))
    rows[np.arange(len(kept)), kept] = 1.0
    for group in encoder.groups:
        slots, share = group.shares()
        if len(slots) <= MOST_CONTRASTS:
            which = np.flatnonzero(np.isin(kept, slots))
            rows[np.ix_(which, slots)] = (kept[which][:, None] == slots) - share
    chosen = [names[i] for i in kept], sp.csr_array(rows), scale[kept], [unit[i] for i in kept]
    return Combinations(*chosen)


def _intercept_rows(encoder: Encoder) -> Any:
    """The features of two rows: an average one, and one with 0 in every number."""
    rows = np.zeros((2, encoder.width + 1))
    rows[:, -1] = 1.0
    for group in encoder.groups:
        slots, share = group.shares()
        if len(slots) <= MOST_CONTRASTS:
            rows[:, slots] = share
    numbers = encoder.numbers
    kinds = np.array(numbers.kinds, object).repeat(numbers.widths)
    moved = np.isfinite(numbers.scale) & (kinds != "time")
    rows[1, : numbers.width][moved] = -numbers.centre[moved] / numbers.scale[moved]
    return sp.csr_array(rows)


def _units(encoder: Encoder) -> tuple[np.ndarray, list[str | None]]:
    """For each feature, the number of units of its column that it stands for, and the name of the unit."""
    numbers = encoder.numbers
    scale = np.ones(encoder.width)
    unit: list[str | None] = [None] * encoder.width
    kinds = np.array(numbers.kinds, object).repeat(numbers.widths)
    for i, kind in enumerate(kinds):
        if kind != "flag" and np.isfinite(numbers.scale[i]):
            scale[i] = numbers.scale[i] / (DAY if kind == "time" else 1.0)
            unit[i] = "day" if kind == "time" else "unit"
    return scale, unit


def _never_occurred(encoder: Encoder) -> set[int]:
    """Features that have no effect: columns that never varied, indicators of what was never missing."""
    numbers = encoder.numbers
    still = set(np.flatnonzero(np.isnan(numbers.scale)).tolist())
    for group in encoder.groups:
        slots, _ = group.shares()
        still |= set(slots.tolist()) if len(slots) == 1 else set()
    if not encoder.settings.impute:
        return still
    ends = zip(numbers.starts(), numbers.widths, strict=True)
    least = [numbers.moments.count[s : s + width].min(initial=numbers.rows) for s, width in ends]
    return still | {numbers.width + k for k, n in enumerate(least) if n >= numbers.rows}


def _classes(target: Target) -> list[Any]:
    """The class of each vector of coefficients; [None] if there is only one vector."""
    labels = list(target.labels) if isinstance(target, Classes) else []
    return labels if len(labels) > 2 else [None]


def _moments(estimator: Any, target: Target, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of linear combinations of the coefficients, class by class."""
    q, width = estimator.fit_.on_host.posterior, rows.shape[1]
    layout = {"intercept": False, "dtype": estimator.dtype}
    means, stds, noiseless = [], [], Normal(np.zeros((), estimator.dtype))
    for k in range(estimator.fit_.family.likelihood.outputs):
        wide = sp.csr_array(
            (rows.data, rows.indices + k * width, rows.indptr), shape=(rows.shape[0], q.dim)
        )
        mean, variance, _ = predict_rows(noiseless, q, wide, layout)
        means.append(mean)
        stds.append(np.sqrt(variance))
    zero, one = target.in_original_units(np.array([0.0, 1.0]))
    return np.concatenate(means) * (one - zero), np.concatenate(stds) * (one - zero)


def _interval(mean: Any, std: Any) -> dict[str, float]:
    """Mean, standard deviation and credible interval of a Gaussian."""
    _, lower, upper = normal(np.asarray(mean), np.asarray(std), LEVEL)
    return {
        "mean": float(mean),
        "std": float(std),
        "lower": float(lower),
        "upper": float(upper),
    }
