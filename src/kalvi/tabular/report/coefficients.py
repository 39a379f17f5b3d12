"""The coefficients of a linear model: drawn with their intervals, and all of them in a table."""

import math
from itertools import groupby
from typing import Any

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.axes import Scale
from kalvi.tabular.report.cards import LEVEL, Summary, card, folded, note
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.markup import Child, Html, element, join, name, table

DRAWN_EFFECTS, LEAST_PER_CLASS, DRAWN_CLASSES = 30, 4, 10


def coefficients(summary: Summary) -> Html | None:
    """The strongest effects with their credible intervals; all of them in a table."""
    effects = [e for e in words.listing(summary.get("effects")) if isinstance(e, dict)]
    if not effects:
        return None
    drawn = _drawn(effects)
    scale = figures.effect_scale([_effect(e) for _, group in drawn for e in group])
    parts: list[Child] = []
    for kind, group in drawn:
        parts.append(None if kind is None else element("h3", "For ", name(kind)))
        parts.append(element("div", *_rows_of(group, scale), class_="intervals"))
    return card(
        "Coefficients",
        note(*_what_they_are(summary, sum(len(group) for _, group in drawn))),
        element("figure", *parts, aria_label=f"Coefficients with {LEVEL} credible intervals"),
        _intercepts(summary),
        _effects_table(effects),
        whole=True,
    )


def _what_they_are(summary: Summary, n_drawn: int) -> list[Child]:
    """Which coefficients are drawn, and in which units."""
    of, said = summary.get("effects_of"), []
    total = words.real(summary.get("effects_total"))
    if total > n_drawn:
        said.append(f"The strongest {words.count(n_drawn)} of {words.count(total)}: ")
    parts: list[Child] = [*said, f"mean and {LEVEL} credible interval of what is added to "]
    if not said:
        parts[0] = f"Mean and {LEVEL} credible interval of what is added to "
    parts += [element("em", name(of, 200)) if of else "the predictor"]
    return [
        *parts,
        " by one standard deviation of a number in the first rows, so that all are comparable, or by a "
        "level against the mean of its column. In small print: by one unit of the column as it came "
        "(one day of a time). Grey intervals hold zero.",
    ]


def _intercepts(summary: Summary) -> Html | None:
    """The intercepts, which are no effects and have no place on their axis."""
    found = [e for e in words.listing(summary.get("intercept")) if isinstance(e, dict)]
    rows = []
    for e in found:
        kind = name(e["class"], 60) if e.get("class") is not None else "intercept"
        rows.append([kind, _with_interval(e), _with_interval(words.mapping(e.get("original")))])
    heads: list[Child] = ["", "of an average row", "where every number is 0"]
    return table("Intercept", heads, rows) if rows else None


def _with_interval(e: Summary) -> Child:
    if not e:
        return words.ABSENT
    decimals = words.decimals(e.get("mean"), e.get("std"))
    mean, lower, upper = (words.fixed(e.get(key), decimals) for key in ("mean", "lower", "upper"))
    return join(mean, element("span", f" ({lower} to {upper})", class_="quiet"))


def _drawn(effects: list[Summary]) -> list[tuple[Any, list[Summary]]]:
    """The effects of the figure, class by class where there are several."""
    finite = [e for e in effects if math.isfinite(words.real(e.get("mean")))]
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


def _rows_of(effects: list[Summary], scale: Scale) -> list[Html]:
    common = sorted(words.decimals(e.get("mean"), e.get("std")) for e in effects)[len(effects) // 2]
    rows = [
        element(
            "div",
            element("div", name(e.get("name", "")), class_="name"),
            element("div", *_value(e, common), class_="value"),
            element("div", figures.interval(_effect(e), scale), class_="cell"),
            class_="row",
        )
        for e in effects
    ]
    return [*rows, _foot(scale)]


def _foot(scale: Scale) -> Html:
    return element("div", element("div", figures.ruler(scale), class_="cell"), class_="foot")


def _effect(e: Summary) -> Effect:
    return Effect(*(words.real(e.get(key)) for key in ("mean", "lower", "upper")))


def _value(e: Summary, common: int) -> tuple[Child, ...]:
    """Mean and interval with the decimals of the figure, or more where these would say nothing."""
    decimals = max(common, words.decimals(e.get("mean"), e.get("std")) - 1)
    mean, lower, upper = (words.fixed(v, decimals) for v in _effect(e))
    return element("b", mean), element("span", f"{lower} to {upper}"), _per_unit(e)


def _per_unit(e: Summary) -> Html | None:
    """The mean for one unit of the column as it came; nothing where that is the same."""
    original = words.mapping(e.get("original"))
    if e.get("unit") not in ("unit", "day") or not original:
        return None
    return element("small", f"{words.number(original.get('mean'), 3)} per {e['unit']}")


def _effects_table(effects: list[Summary]) -> Html:
    several = any(e.get("class") is not None for e in effects)
    rows: list[list[Child]] = []
    for e in effects:
        kind = [name(e["class"]) if e.get("class") is not None else ""] if several else []
        original = words.mapping(e.get("original"))
        unit = e.get("unit") if e.get("unit") in ("unit", "day") else None
        per = _numbers(original) if unit else [words.ABSENT] * 4
        rows.append([name(e.get("name", "")), *kind, *_numbers(e), *per, unit])
    ends = ["sd", "2.5 %", "97.5 %"]
    units = ["mean, standardised", *ends, "mean, original units", *ends, "per"]
    heads = ["name", *(["class"] if several else []), *units]
    said = words.count(len(effects), "coefficient")
    return folded(f"Table of {said}", table(f"{said}, strongest first", heads, rows))


def _numbers(e: Summary) -> list[Child]:
    decimals = words.decimals(e.get("mean"), e.get("std"))
    return [words.fixed(e.get(key), decimals) for key in ("mean", "std", "lower", "upper")]
