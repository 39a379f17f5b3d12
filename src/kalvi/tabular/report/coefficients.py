"""The coefficients of a linear model: drawn with their intervals, and all of them in a table."""

import math
from itertools import groupby
from typing import Any

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.axes import Scale
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.rendering import LEVEL, Child, IntervalRow, Summary, macros, named

DRAWN_EFFECTS, LEAST_PER_CLASS, DRAWN_CLASSES = 30, 4, 10
ENDS = ["sd", "2.5 %", "97.5 %"]
CARDS = macros("coefficients.html")


def coefficients(summary: Summary) -> Markup | None:
    """The strongest effects with their credible intervals; all of them in a table."""
    effects = formatting.mappings(summary.get("effects"))
    if not effects:
        return None
    drawn = _drawn(effects)
    n_drawn = sum(len(group) for _, group in drawn)
    total = formatting.real(summary.get("effects_total"))
    scale = figures.effect_scale([_effect(e) for _, group in drawn for e in group])
    several = any(e.get("class") is not None for e in effects)
    units = ["mean, standardised", *ENDS, "mean, original units", *ENDS, "per"]
    return CARDS.coefficients(
        of=summary.get("effects_of"),
        drawn=formatting.count(n_drawn),
        total=formatting.count(total) if total > n_drawn else None,
        level=LEVEL,
        groups=[(kind, _interval_rows(group, scale)) for kind, group in drawn],
        ruler=figures.ruler(scale),
        intercepts=[_intercept(e) for e in formatting.mappings(summary.get("intercept"))],
        title=formatting.count(len(effects), "coefficient"),
        heads=["name", *(["class"] if several else []), *units],
        rows=[_table_row(e, several) for e in effects],
    )


def _intercept(e: Summary) -> list[Child]:
    """An intercept, which is no effect and has no place on their axis."""
    kind = named(e["class"], 60) if e.get("class") is not None else "intercept"
    return [kind, _with_interval(e), _with_interval(formatting.mapping(e.get("original")))]


def _with_interval(e: Summary) -> Child:
    if not e:
        return formatting.ABSENT
    decimals = formatting.decimals(e.get("mean"), e.get("std"))
    return CARDS.estimate(
        *(formatting.fixed(e.get(key), decimals) for key in ("mean", "lower", "upper"))
    )


def _drawn(effects: list[Summary]) -> list[tuple[Any, list[Summary]]]:
    """The effects of the figure, class by class where there are several."""
    finite = [e for e in effects if math.isfinite(formatting.real(e.get("mean")))]
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
    """Means and intervals with the decimals of the figure, or more where these would say nothing."""
    each = [formatting.decimals(e.get("mean"), e.get("std")) for e in effects]
    common = sorted(each)[len(each) // 2]
    rows = []
    for e, own in zip(effects, each, strict=True):
        effect = _effect(e)
        mean, lower, upper = (formatting.fixed(v, max(common, own - 1)) for v in effect)
        figure = figures.interval(effect, scale)
        line = named(e.get("name", "")), mean, figure, f"{lower} to {upper}", _per_unit(e)
        rows.append(IntervalRow(*line))
    return rows


def _effect(e: Summary) -> Effect:
    return Effect(*(formatting.real(e.get(key)) for key in ("mean", "lower", "upper")))


def _unit(e: Summary) -> str | None:
    """The unit of the column as it came; none where that is no other."""
    return e.get("unit") if e.get("unit") in ("unit", "day") else None


def _per_unit(e: Summary) -> str:
    original = formatting.mapping(e.get("original"))
    if _unit(e) is None or not original:
        return ""
    return f"{formatting.number(original.get('mean'), 3)} per {_unit(e)}"


def _table_row(e: Summary, several: bool) -> list[Child]:
    kind = [named(e["class"]) if e.get("class") is not None else ""] if several else []
    original = formatting.mapping(e.get("original"))
    per = _numbers(original) if _unit(e) else [formatting.ABSENT] * 4
    return [named(e.get("name", "")), *kind, *_numbers(e), *per, _unit(e)]


def _numbers(e: Summary) -> list[Child]:
    decimals = formatting.decimals(e.get("mean"), e.get("std"))
    return [formatting.fixed(e.get(key), decimals) for key in ("mean", "std", "lower", "upper")]
