"""The data: example rows with their predictions, a summary of each column, and the files."""

import math

from markupsafe import Markup

from kalvi.tabular.report import figures
from kalvi.tabular.report.axes import Scale, covering
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.formatting import (
    ABSENT,
    LAST_SECOND,
    NBSP,
    count,
    date,
    listing,
    mapping,
    mappings,
    number,
    pairs,
    percent,
    real,
    size,
)
from kalvi.tabular.report.rendering import (
    LEVEL,
    Child,
    LongTable,
    Summary,
    element,
    fold_long_table,
    join,
    named,
)

DAY = 86_400.0
SHOWN_COLUMNS, SHOWN_FILES, SHOWN_FEATURES = 40, 12, 8


def examples(summary: Summary) -> Summary | None:
    """A table of example rows, with what was predicted and what was observed."""
    rows = mappings(summary.get("examples"))
    if not rows:
        return None
    classes = listing(summary.get("classes"))
    scale = Scale(0.0, 1.0) if classes else _example_scale(rows)
    features = list(dict.fromkeys(key for e in rows for key in mapping(e.get("row"))))
    shown, more = features[:SHOWN_FEATURES], len(features[SHOWN_FEATURES:])
    heads: list[Child] = [
        "observed",
        _prediction_head(classes),
        _interval_head(scale, bool(classes)),
        *(named(key, 40) for key in shown),
    ]
    return {
        "caption": f"{count(len(rows), 'row')} of the data",
        "heads": heads,
        "rows": [_example(e, scale, shown, classes) for e in rows],
        "more": count(more, "more column") if more else None,
    }


def _prediction_head(classes: list) -> Child:
    """The heading of predictions: the second of two classes, the likeliest of several, or a number."""
    if len(classes) == 2:
        return join("p_", named(classes[1], 40))
    return "likeliest class" if classes else "predicted"


def _example(e: Summary, scale: Scale, shown: list[str], classes: list) -> list[Child]:
    chance = bool(classes)
    effect = Effect(*(real(e.get(key)) for key in ("predicted", "lower", "upper")))
    say = percent if chance else number
    finite = math.isfinite(effect.mean)
    said = say(effect.mean) if finite else named(e.get("predicted", "–"), 60)
    if len(classes) > 2 and e.get("class") is not None:
        said = join("p_", named(e["class"], 40), " = ", said)
    observed = math.nan if chance else real(e.get("observed"))
    bar = figures.interval(effect, scale, ticks=3, mark=observed, side="up")
    row = mapping(e.get("row"))
    cells = [named(row[key], 60) if key in row else ABSENT for key in shown]
    chip = element("span", named(e.get("observed", ABSENT), 60), class_="chip")
    return [chip, said, bar if finite else None, *cells]


def _interval_head(scale: Scale, chance: bool) -> Child:
    return join(f"{LEVEL} interval", figures.ruler(scale, ticks=3, percent=chance))


def _example_scale(rows: list[Summary]) -> Scale:
    keys = ("predicted", "lower", "upper", "observed")
    return covering(real(e.get(key)) for e in rows for key in keys)


def data_tables(summary: Summary) -> list[LongTable]:
    """Tables of the columns and of the files, if there are any."""
    columns = mappings(summary.get("columns"))
    files = mappings(summary.get("files"))
    parts = []
    if columns:
        total = real(summary.get("rows"))
        heads = ["column", "kind", "missing", "values", ""]
        rows = [_column(c, total) for c in columns]
        parts.append(fold_long_table("column", heads, rows, SHOWN_COLUMNS))
    if files:
        parts.append(_files(files))
    return parts


def _files(files: list[Summary]) -> LongTable:
    sized = any(f.get("bytes") for f in files)
    rows = [[named(f.get("path", "")), *([size(f.get("bytes"))] if sized else [])] for f in files]
    return fold_long_table("file", ["file", *(["size"] if sized else [])], rows, SHOWN_FILES)


def _column(c: Summary, total: float) -> list[Child]:
    missing = real(c.get("missing"))
    share = f" ({percent(missing / total, 2)})" if missing > 0 and total > 0 else ""
    numbers = {key: real(c.get(key)) for key in ("least", "most", "mean", "std")}
    picture = figures.spread(**numbers)
    if levels := _levels(c):
        shares = [n for _, n in levels]
        picture = figures.strip(shares, "rows of the commonest") if len(levels) > 1 else None
    return [
        named(c.get("name", "")),
        named(c.get("kind", ""), 40),
        count(missing) + share,
        _values(c),
        picture,
    ]


def _values(c: Summary) -> Child:
    """A summary of the entries of a column."""
    said, hashed = _of_numbers(c), ", hashed" if c.get("hashed") else ""
    for key in ("words", "levels", "features"):
        if c.get(key) is not None:
            said.append(count(c[key], key[:-1]) + hashed)
    if c.get("width") is not None:
        said.append(count(c["width"], "number") + " wide")
    levels = [join(named(level, 40), NBSP, count(n)) for level, n in _levels(c)[:5]]
    if levels:
        said.append(Markup(", ").join(levels))
    return Markup("; ").join(said)


def _of_numbers(c: Summary) -> list[str]:
    """The mean, the deviation and the range of numbers; for times, as dates."""
    mean, std, least, most = (real(c.get(key)) for key in ("mean", "std", "least", "most"))
    said = []
    if c.get("kind") == "time" and all(abs(t) < LAST_SECOND for t in (mean, least, most)):
        ends = f"from {date(least)} to {date(most)}"
        return [f"{date(mean)} ± {number(std / DAY)} days; {ends}"]
    if math.isfinite(mean):
        said.append(f"mean {number(mean)}, sd {number(std)}")
    if math.isfinite(least):
        said.append(f"from {number(least)} to {number(most)}")
    return said


def _levels(c: Summary) -> list[tuple[object, float]]:
    """The commonest levels of a column, each with its number of rows."""
    return [(level, n) for level, n in pairs(c.get("commonest")) if n >= 0]
