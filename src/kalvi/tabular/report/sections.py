"""The parts of the page: each a card made of the summary, or nothing where it has nothing to say."""

import json
import math
from itertools import groupby
from typing import Any

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.axes import Scale, covering
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.markup import Child, Html, definitions, element, join, name, table

Summary = dict[str, Any]
LEVEL = words.percent(0.95)
DRAWN_EFFECTS, LEAST_PER_CLASS, DRAWN_CLASSES = 30, 4, 10
SHOWN_COLUMNS, SHOWN_FILES, SHOWN_FEATURES = 40, 12, 8
VERDICTS = {
    "good": "The Gaussian is a faithful stand-in for the exact posterior.",
    "usable": "The Gaussian is usable; intervals may be somewhat off, averages can be corrected.",
    "poor": "The Gaussian misses part of the exact posterior: trust the predictions checked above "
    "more than the intervals of the coefficients.",
}


def learning(summary: Summary) -> Html | None:
    """Progressive loss against rows."""
    curve = words.mapping(summary.get("curve"))
    rows = words.reals(curve.get("rows"))
    series = {
        "all rows so far": words.reals(curve.get("loss")),
        "rows since the last point": words.reals(curve.get("recent")),
    }
    series = {key: c for key, c in series.items() if any(map(math.isfinite, c))}
    if not rows or not series:
        return None
    keys = [element("span", key, class_=f"key s{i}") for i, key in enumerate(series)]
    note = "Every row is predicted before it is learned from, " + (
        "though after the first pass not for the first time."
        if words.real(summary.get("passes")) > 1
        else "so this is the loss on new data."
    )
    return card(
        "Learning curve",
        element("p", note, class_="note"),
        element("p", *keys, class_="note keys"),
        figures.learning_curve(rows, series, loss_name(summary)),
    )


def calibration(summary: Summary) -> Html | None:
    """Whether probabilities are frequencies, or intervals hold what they say."""
    if bins := words.mapping(summary.get("calibration")):
        return _reliability(bins, _event(summary))
    if held := words.mapping(summary.get("coverage")):
        return _coverage(held)
    return None


def _event(summary: Summary) -> Html:
    """What the probabilities are of: with two classes the second, else that the likeliest is right."""
    classes = words.listing(summary.get("classes"))
    if len(classes) != 2:
        return join("the likeliest class is right")
    target, event = summary.get("target", "the target"), classes[1]
    return join(element("em", name(target, 60)), " is ", element("em", name(event, 60)))


def _reliability(bins: Summary, event: Html) -> Html | None:
    predicted, observed, counts = (
        words.reals(bins.get(key)) for key in ("predicted", "observed", "count")
    )
    seen = [b for b in zip(predicted, observed, counts, strict=False) if b[2] > 0]
    total = sum(n for *_, n in seen)
    if not total:
        return None
    error = sum(n * abs(p - o) for p, o, n in seen) / total
    note = join(
        "How often ",
        event,
        ", against how often the model expected it before it saw the rows. On the dashed line they "
        f"agree; lines are {LEVEL} intervals, dots grow with their rows.",
    )
    label = f"Calibration: observed against predicted frequency in {len(seen)} bins"
    said = f"Expected calibration error {words.percent(error)} over {words.count(total, 'row')}."
    bars = figures.strip([n if n > 0 else 0.0 for n in counts], "rows in each bin")
    return card(
        "Calibration",
        element("p", note, class_="note"),
        figures.reliability(predicted, observed, counts, label),
        element("div", bars, class_="figure-strip") if len(counts) > 1 else None,
        element("p", said, class_="end-note"),
    )


def _coverage(held: Summary) -> Html | None:
    level, observed = words.reals(held.get("level")), words.reals(held.get("observed"))
    pairs = [p for p in zip(level, observed, strict=False) if all(map(math.isfinite, p))]
    if not pairs:
        return None
    n = words.real(held.get("count"))
    rows: list[list[Child]] = [[words.percent(a), words.percent(b)] for a, b in pairs]
    note = (
        "How many rows fell into the interval predicted for them beforehand, against how many "
        "should. On the dashed line they agree."
    )
    return card(
        "Calibration",
        element("p", note, class_="note"),
        figures.coverage(level, observed, n, "Calibration: observed against nominal coverage"),
        table(f"Coverage over {words.count(n, 'row')}", ["interval", "held"], rows),
    )


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
    n_drawn = sum(len(group) for _, group in drawn)
    note = (
        f"The strongest {words.count(n_drawn)} of {words.count(summary.get('parameters'))}: "
        if words.real(summary.get("parameters")) > n_drawn
        else ""
    ) + f"mean and {LEVEL} credible interval. Grey intervals hold zero."
    return card(
        "Coefficients",
        element("p", note[0].upper() + note[1:], class_="note"),
        element("figure", *parts, aria_label=f"Coefficients with {LEVEL} credible intervals"),
        _effects_table(effects) if len(effects) > n_drawn else None,
        whole=True,
    )


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


def _value(e: Summary, common: int) -> tuple[Child, Child]:
    """Mean and interval with the decimals of the figure, or more where these would say nothing."""
    decimals = max(common, words.decimals(e.get("mean"), e.get("std")) - 1)
    mean, lower, upper = (words.fixed(v, decimals) for v in _effect(e))
    return element("b", mean), element("span", f"{lower} to {upper}")


def _effects_table(effects: list[Summary]) -> Html:
    several = any(e.get("class") is not None for e in effects)
    rows: list[list[Child]] = []
    for e in effects:
        decimals = words.decimals(e.get("mean"), e.get("std"))
        numbers = [words.fixed(e.get(key), decimals) for key in ("mean", "std", "lower", "upper")]
        kind = [name(e["class"]) if e.get("class") is not None else ""] if several else []
        rows.append([name(e.get("name", "")), *kind, *numbers])
    heads = ["name", *(["class"] if several else []), "mean", "sd", "2.5 %", "97.5 %"]
    said = words.count(len(effects), "coefficient")
    return _folded(f"Table of {said}", table(f"{said}, strongest first", heads, rows))


def examples(summary: Summary) -> Html | None:
    """Some rows with what was predicted and what came."""
    rows = [e for e in words.listing(summary.get("examples")) if isinstance(e, dict)]
    if not rows:
        return None
    classes = words.listing(summary.get("classes"))
    scale = Scale(0.0, 1.0) if classes else _example_scale(rows)
    features = list(dict.fromkeys(key for e in rows for key in words.mapping(e.get("row"))))
    shown = features[:SHOWN_FEATURES]
    chance = join("chance of ", name(classes[1], 40)) if len(classes) == 2 else "predicted"
    heads: list[Child] = [
        "observed",
        chance,
        _interval_head(scale, bool(classes)),
        *(name(key, 40) for key in shown),
    ]
    body = [_example(e, scale, shown, bool(classes)) for e in rows]
    more = len(features) - len(shown)
    note = "Some rows: what was predicted, and what came." + (
        f" {words.count(more, 'more column')} not shown." if more else ""
    )
    return card(
        "Predictive examples",
        element("p", note, class_="note"),
        table(words.count(len(rows), "row") + " of the data", heads, body, class_="examples"),
        whole=True,
    )


def _example(e: Summary, scale: Scale, shown: list[str], chance: bool) -> list[Child]:
    effect = Effect(*(words.real(e.get(key)) for key in ("predicted", "lower", "upper")))
    say = words.percent if chance else words.number
    said = say(effect.mean) if math.isfinite(effect.mean) else name(e.get("predicted", "–"), 60)
    observed = math.nan if chance else words.real(e.get("observed"))
    bar = figures.interval(effect, scale, ticks=3, mark=observed, side="up")
    row = words.mapping(e.get("row"))
    cells = [name(row[key], 60) if key in row else words.ABSENT for key in shown]
    outcome = element("span", name(e.get("observed", "–"), 60), class_="chip")
    return [outcome, said, bar if math.isfinite(effect.mean) else None, *cells]


def _interval_head(scale: Scale, chance: bool) -> Html:
    return join(f"{LEVEL} interval", figures.ruler(scale, ticks=3, percent=chance))


def _example_scale(rows: list[Summary]) -> Scale:
    keys = ("predicted", "lower", "upper", "observed")
    return covering(words.real(e.get(key)) for e in rows for key in keys)


def data(summary: Summary) -> Html | None:
    """The columns and the files they came from."""
    columns = [c for c in words.listing(summary.get("columns")) if isinstance(c, dict)]
    files = [f for f in words.listing(summary.get("files")) if isinstance(f, dict)]
    if not columns and not files:
        return None
    total = words.real(summary.get("rows"))
    parts: list[Child] = []
    if columns:
        heads: list[Child] = ["column", "kind", "missing", "values", ""]
        rows = [_column(c, total) for c in columns]
        parts += _long("column", heads, rows, SHOWN_COLUMNS)
    if files:
        file_rows: list[list[Child]] = [
            [name(f.get("path", "")), words.size(f.get("bytes")), words.count(f.get("rows"))]
            for f in files
        ]
        parts += _long("file", ["file", "size", "rows"], file_rows, SHOWN_FILES)
    return card("Data", *parts, whole=True)


def _column(c: Summary, total: float) -> list[Child]:
    missing = words.real(c.get("missing"))
    share = f" ({words.percent(missing / total, 2)})" if missing > 0 and total > 0 else ""
    numbers = {key: words.real(c.get(key)) for key in ("least", "most", "mean", "std")}
    picture = figures.spread(**numbers)
    if levels := _levels(c):
        shares = [n for _, n in levels]
        picture = figures.strip(shares, "rows of the commonest levels") if len(levels) > 1 else None
    return [
        name(c.get("name", "")),
        name(c.get("kind", ""), 40),
        words.count(missing) + share,
        _values(c),
        picture,
    ]


def _values(c: Summary) -> Html:
    """What is in a column, in words."""
    said: list[Child] = []
    if math.isfinite(words.real(c.get("mean"))):
        said.append(f"mean {words.number(c['mean'])}, sd {words.number(c.get('std'))}")
    if math.isfinite(words.real(c.get("least"))):
        said.append(f"from {words.number(c['least'])} to {words.number(c.get('most'))}")
    if c.get("levels") is not None:
        said.append(words.count(c["levels"], "level") + (", hashed" if c.get("hashed") else ""))
    if c.get("width") is not None:
        said.append(words.count(c["width"], "number") + " wide")
    if levels := _levels(c)[:5]:
        said.append(
            join(
                *(
                    join(", " if i else None, name(v, 40), f"{words.NBSP}{words.count(n)}")
                    for i, (v, n) in enumerate(levels)
                )
            )
        )
    return join(*(join("; " if i else None, part) for i, part in enumerate(said)))


def _levels(c: Summary) -> list[tuple[object, float]]:
    pairs = [
        p for p in words.listing(c.get("commonest")) if isinstance(p, (list, tuple)) and len(p) == 2
    ]
    return [(level, words.real(n)) for level, n in pairs if words.real(n) >= 0]


def quality(summary: Summary) -> Html | None:
    """How well the Gaussian stands for the exact posterior."""
    found = words.mapping(summary.get("diagnosis"))
    if not found:
        return None
    verdict = str(found.get("verdict", ""))
    k, draws = found.get("pareto_k"), found.get("draws")
    said = [f"{words.count(draws, 'draw')}" if draws is not None else None]
    said += [f"{words.count(found['rows'], 'row')}" if found.get("rows") is not None else None]
    said += [
        f"effective size {words.number(found['ess'], 3)}" if found.get("ess") is not None else None
    ]
    return card(
        "Fit quality",
        element(
            "p",
            "Pareto k says how heavy the tail of the ratio of exact posterior to Gaussian is: "
            "below 0.5 light, above 0.7 too heavy to correct.",
            class_="note",
        ),
        element("div", figures.gauge(words.real(k)), class_="gauge-box"),
        element("p", f"Pareto k {words.number(k, 2)}. ", VERDICTS.get(verdict) or name(verdict)),
        element("p", ", ".join(s for s in said if s), class_="note"),
    )


def settings(summary: Summary) -> Html | None:
    """The settings of the fit."""
    chosen = words.mapping(summary.get("settings"))
    pairs = [(name(str(key).replace("_", " ")), _setting(value)) for key, value in chosen.items()]
    return card("Settings", definitions(pairs, "settings")) if pairs else None


def card(title: str, *children: Child, whole: bool = False) -> Html:
    """A section under its heading; `whole` takes the width of the page."""
    anchor = title.lower().replace(" ", "-")
    return element(
        "section",
        element("h2", title, id=anchor),
        *children,
        aria_labelledby=anchor,
        class_="whole" if whole else "half",
    )


def loss_name(summary: Summary) -> str:
    """What the progressive loss is called for this model."""
    return "log loss" if words.listing(summary.get("classes")) else "minus log density"


def _long(noun: str, heads: list[Child], rows: list[list[Child]], most: int) -> list[Child]:
    """A table whose rows beyond `most` are folded away."""
    first = table(words.count(len(rows), noun), heads, rows[:most])
    rest = rows[most:]
    said = words.count(len(rest), f"more {noun}")
    return [first, _folded(said, table(said, heads, rest)) if rest else None]


def _folded(title: str, inside: Html) -> Html:
    return element("details", element("summary", title), inside)


def _setting(value: object) -> Child:
    if value is None:
        return words.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return words.number(value, 6)
    return name(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
