"""The coefficients of a linear model: a figure with the intervals of the strongest, and a table of all."""

import math
from itertools import groupby
from typing import Any

from kalvi.tabular.report import figures
from kalvi.tabular.report.axes import Scale
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.formatting import (
    ABSENT,
    count,
    decimals,
    fixed,
    mapping,
    mappings,
    number,
    real,
)
from kalvi.tabular.report.rendering import Child, IntervalRow, Summary, named

DRAWN_EFFECTS, LEAST_PER_CLASS, DRAWN_CLASSES = 30, 4, 10
ENDS = ["sd", "2.5 %", "97.5 %"]


def coefficients(summary: Summary) -> Summary | None:
    """The strongest effects with their credible intervals, and a table of all."""
    effects = mappings(summary.get("effects"))
    if not effects:
        return None
    drawn = _drawn(effects)
    n_drawn = sum(len(group) for _, group in drawn)
    total = real(summary.get("effects_total"))
    scale = figures.effect_scale([_effect(e) for _, group in drawn for e in group])
    several = any(e.get("class") is not None for e in effects)
    units = ["mean, standardised", *ENDS, "mean, original units", *ENDS, "per"]
    return {
        "drawn": count(n_drawn),
        "total": count(total) if total > n_drawn else None,
        "groups": [(kind, _interval_rows(group, scale)) for kind, group in drawn],
        "ruler": figures.ruler(scale),
        "intercepts": mappings(summary.get("intercept")),
        "title": count(len(effects), "coefficient"),
        "heads": ["name", *(["class"] if several else []), *units],
        "rows": [_table_row(e, several) for e in effects],
    }


def estimate(e: Summary) -> tuple[str, ...]:
    """The mean of an estimate and the ends of its interval, with as many decimals as are significant."""
    places = decimals(e.get("mean"), e.get("std"))
    return tuple(fixed(e.get(key), places) for key in ("mean", "lower", "upper"))


def _drawn(effects: list[Summary]) -> list[tuple[Any, list[Summary]]]:
    """The effects in the figure, class by class if there are several classes."""
    finite = [e for e in effects if math.isfinite(real(e.get("mean")))]
    kinds = list(dict.fromkeys(str(e.get("class")) for e in finite if e.get("class") is not None))
    if len(kinds) < 2:
        return [(None, finite[:DRAWN_EFFECTS])] if finite else []
    each = max(LEAST_PER_CLASS, DRAWN_EFFECTS // len(kinds))
    finite = sorted(
        (e for e in finite if e.get("class") is not None),
        key=lambda e: kinds.index(str(e["class"])),
    )
    groups = groupby(finite, key=lambda e: str(e["class"]))
    return [(kind, list(group)[:each]) for kind, group in groups][:DRAWN_CLASSES]


def _interval_rows(effects: list[Summary], scale: Scale) -> list[IntervalRow]:
    """Rows of the figure; all have the same number of decimals, or more where these would not suffice."""
    each = [decimals(e.get("mean"), e.get("std")) for e in effects]
    common = sorted(each)[len(each) // 2]
    rows = []
    for e, own in zip(effects, each, strict=True):
        effect = _effect(e)
        mean, lower, upper = (fixed(v, max(common, own - 1)) for v in effect)
        figure = figures.interval(effect, scale)
        line = named(e.get("name", "")), mean, figure, f"{lower} to {upper}", _per_unit(e)
        rows.append(IntervalRow(*line))
    return rows


def _effect(e: Summary) -> Effect:
    return Effect(*(real(e.get(key)) for key in ("mean", "lower", "upper")))


def _unit(e: Summary) -> str | None:
    """The original unit of the column; None if there is no other than the standardised one."""
    return e.get("unit") if e.get("unit") in ("unit", "day") else None


def _per_unit(e: Summary) -> str:
    original = mapping(e.get("original"))
    if _unit(e) is None or not original:
        return ""
    return f"{number(original.get('mean'), 3)} per {_unit(e)}"


def _table_row(e: Summary, several: bool) -> list[Child]:
    kind = [named(e["class"]) if e.get("class") is not None else ""] if several else []
    original = mapping(e.get("original"))
    per = _numbers(original) if _unit(e) else [ABSENT] * 4
    return [named(e.get("name", "")), *kind, *_numbers(e), *per, _unit(e)]


def _numbers(e: Summary) -> list[Child]:
    places = decimals(e.get("mean"), e.get("std"))
    return [fixed(e.get(key), places) for key in ("mean", "std", "lower", "upper")]
