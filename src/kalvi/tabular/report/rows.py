"""Rows and columns: examples with what was predicted, what each column held, and the files."""

import math

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.axes import Scale, covering
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.rendering import (
    LEVEL,
    Child,
    LongTable,
    Summary,
    join,
    long_table,
    macros,
    named,
)

DAY = 86_400.0
SHOWN_COLUMNS, SHOWN_FILES, SHOWN_FEATURES = 40, 12, 8
FILE_FACTS = {"size": ("bytes", formatting.size), "rows": ("rows", formatting.count)}
CARDS = macros("rows.html")


def examples(summary: Summary) -> Markup | None:
    """Some rows with what was predicted and what came."""
    rows = formatting.mappings(summary.get("examples"))
    if not rows:
        return None
    classes = formatting.listing(summary.get("classes"))
    scale = Scale(0.0, 1.0) if classes else _example_scale(rows)
    features = list(dict.fromkeys(key for e in rows for key in formatting.mapping(e.get("row"))))
    shown, more = features[:SHOWN_FEATURES], len(features[SHOWN_FEATURES:])
    heads: list[Child] = [
        "observed",
        _prediction_head(classes),
        _interval_head(scale, bool(classes)),
        *(named(key, 40) for key in shown),
    ]
    return CARDS.examples(
        f"{formatting.count(len(rows), 'row')} of the data",
        heads,
        [_example(e, scale, shown, classes) for e in rows],
        formatting.count(more, "more column") if more else None,
    )


def _prediction_head(classes: list) -> Child:
    """What is predicted: the probability of the second class of two, or of the likeliest."""
    if len(classes) == 2:
        return CARDS.probability(classes[1])
    return "likeliest class" if classes else "predicted"


def _example(e: Summary, scale: Scale, shown: list[str], classes: list) -> list[Child]:
    chance = bool(classes)
    effect = Effect(*(formatting.real(e.get(key)) for key in ("predicted", "lower", "upper")))
    say = formatting.percent if chance else formatting.number
    finite = math.isfinite(effect.mean)
    said = say(effect.mean) if finite else named(e.get("predicted", "–"), 60)
    if len(classes) > 2 and e.get("class") is not None:
        said = CARDS.probability(e["class"], said)
    observed = math.nan if chance else formatting.real(e.get("observed"))
    bar = figures.interval(effect, scale, ticks=3, mark=observed, side="up")
    row = formatting.mapping(e.get("row"))
    cells = [named(row[key], 60) if key in row else formatting.ABSENT for key in shown]
    return [CARDS.chip(e.get("observed", "–")), said, bar if finite else None, *cells]


def _interval_head(scale: Scale, chance: bool) -> Markup:
    return join(f"{LEVEL} interval", figures.ruler(scale, ticks=3, percent=chance))


def _example_scale(rows: list[Summary]) -> Scale:
    keys = ("predicted", "lower", "upper", "observed")
    return covering(formatting.real(e.get(key)) for e in rows for key in keys)


def data(summary: Summary) -> Markup | None:
    """The columns and the files they came from."""
    columns = formatting.mappings(summary.get("columns"))
    files = formatting.mappings(summary.get("files"))
    parts = []
    if columns:
        total = formatting.real(summary.get("rows"))
        heads = ["column", "kind", "missing", "values", ""]
        rows = [_column(c, total) for c in columns]
        parts.append(long_table("column", heads, rows, SHOWN_COLUMNS))
    if files:
        parts.append(_files(files))
    return CARDS.data(parts) if parts else None


def _files(files: list[Summary]) -> LongTable:
    told = {head: how for head, how in FILE_FACTS.items() if any(f.get(how[0]) for f in files)}
    rows = [
        [named(f.get("path", "")), *(say(f.get(key)) for key, say in told.values())] for f in files
    ]
    return long_table("file", ["file", *told], rows, SHOWN_FILES)


def _column(c: Summary, total: float) -> list[Child]:
    missing = formatting.real(c.get("missing"))
    share = f" ({formatting.percent(missing / total, 2)})" if missing > 0 and total > 0 else ""
    numbers = {key: formatting.real(c.get(key)) for key in ("least", "most", "mean", "std")}
    picture = figures.spread(**numbers)
    if levels := _levels(c):
        shares = [n for _, n in levels]
        picture = figures.strip(shares, "rows of the commonest") if len(levels) > 1 else None
    return [
        named(c.get("name", "")),
        named(c.get("kind", ""), 40),
        formatting.count(missing) + share,
        _values(c),
        picture,
    ]


def _values(c: Summary) -> Markup:
    """What is in a column, in words."""
    said, hashed = _of_numbers(c), ", hashed" if c.get("hashed") else ""
    for key in ("words", "levels"):
        if c.get(key) is not None:
            said.append(formatting.count(c[key], key[:-1]) + hashed)
    if c.get("width") is not None:
        said.append(formatting.count(c["width"], "number") + " wide")
    levels = [(level, formatting.count(n)) for level, n in _levels(c)[:5]]
    return CARDS.values(said, levels)


def _of_numbers(c: Summary) -> list[str]:
    """Mean, deviation and range; those of times as dates."""
    mean, std, least, most = (
        formatting.real(c.get(key)) for key in ("mean", "std", "least", "most")
    )
    said = []
    if c.get("kind") == "time" and all(
        abs(t) < formatting.LAST_SECOND for t in (mean, least, most)
    ):
        ends = f"from {formatting.date(least)} to {formatting.date(most)}"
        return [f"{formatting.date(mean)} ± {formatting.number(std / DAY)} days; {ends}"]
    if math.isfinite(mean):
        said.append(f"mean {formatting.number(mean)}, sd {formatting.number(std)}")
    if math.isfinite(least):
        said.append(f"from {formatting.number(least)} to {formatting.number(most)}")
    return said


def _levels(c: Summary) -> list[tuple[object, float]]:
    pairs = [
        p
        for p in formatting.listing(c.get("commonest"))
        if isinstance(p, (list, tuple)) and len(p) == 2
    ]
    return [(level, formatting.real(n)) for level, n in pairs if formatting.real(n) >= 0]
