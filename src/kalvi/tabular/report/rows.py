"""Rows and columns: examples with what was predicted, what each column held, and the files."""

import math

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.axes import Scale, covering
from kalvi.tabular.report.cards import LEVEL, Summary, card, long_table, note
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.markup import Child, Html, element, join, name, table

DAY = 86_400.0
SHOWN_COLUMNS, SHOWN_FILES, SHOWN_FEATURES = 40, 12, 8


def examples(summary: Summary) -> Html | None:
    """Some rows with what was predicted and what came."""
    rows = [e for e in words.listing(summary.get("examples")) if isinstance(e, dict)]
    if not rows:
        return None
    classes = words.listing(summary.get("classes"))
    scale = Scale(0.0, 1.0) if classes else _example_scale(rows)
    features = list(dict.fromkeys(key for e in rows for key in words.mapping(e.get("row"))))
    shown = features[:SHOWN_FEATURES]
    heads: list[Child] = [
        "observed",
        _prediction_head(classes),
        _interval_head(scale, bool(classes)),
        *(name(key, 40) for key in shown),
    ]
    body = [_example(e, scale, shown, classes) for e in rows]
    more = len(features) - len(shown)
    told = "Some of the last rows: what was predicted before they were learned, and what came." + (
        f" {words.count(more, 'more column')} not shown." if more else ""
    )
    return card(
        "Predictive examples",
        note(told),
        table(words.count(len(rows), "row") + " of the data", heads, body, class_="examples"),
        whole=True,
    )


def _prediction_head(classes: list) -> Child:
    """What is predicted: the probability of the second class of two, or of the likeliest."""
    if len(classes) == 2:
        return join("p_", name(classes[1], 40))
    return "likeliest class" if classes else "predicted"


def _example(e: Summary, scale: Scale, shown: list[str], classes: list) -> list[Child]:
    chance = bool(classes)
    effect = Effect(*(words.real(e.get(key)) for key in ("predicted", "lower", "upper")))
    say = words.percent if chance else words.number
    said = say(effect.mean) if math.isfinite(effect.mean) else name(e.get("predicted", "–"), 60)
    if len(classes) > 2 and e.get("class") is not None:
        said = join("p_", name(e["class"], 40), f" = {said}")
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
        parts += long_table("column", heads, rows, SHOWN_COLUMNS)
    if files:
        told = {"size": ("bytes", words.size), "rows": ("rows", words.count)}
        told = {head: how for head, how in told.items() if any(f.get(how[0]) for f in files)}
        file_rows: list[list[Child]] = [
            [name(f.get("path", "")), *(say(f.get(key)) for key, say in told.values())]
            for f in files
        ]
        parts += long_table("file", ["file", *told], file_rows, SHOWN_FILES)
    return card("Data", *parts, whole=True)


def _column(c: Summary, total: float) -> list[Child]:
    missing = words.real(c.get("missing"))
    share = f" ({words.percent(missing / total, 2)})" if missing > 0 and total > 0 else ""
    numbers = {key: words.real(c.get(key)) for key in ("least", "most", "mean", "std")}
    picture = figures.spread(**numbers)
    if levels := _levels(c):
        shares = [n for _, n in levels]
        picture = figures.strip(shares, "rows of the commonest") if len(levels) > 1 else None
    return [
        name(c.get("name", "")),
        name(c.get("kind", ""), 40),
        words.count(missing) + share,
        _values(c),
        picture,
    ]


def _values(c: Summary) -> Html:
    """What is in a column, in words."""
    said: list[Child] = _of_numbers(c)
    if c.get("words") is not None:
        said.append(words.count(c["words"], "word") + (", hashed" if c.get("hashed") else ""))
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


def _of_numbers(c: Summary) -> list[Child]:
    """Mean, deviation and range; those of times as dates."""
    mean, std, least, most = (words.real(c.get(key)) for key in ("mean", "std", "least", "most"))
    said: list[Child] = []
    if c.get("kind") == "time" and all(abs(t) < words.LAST_SECOND for t in (mean, least, most)):
        ends = f"from {words.date(least)} to {words.date(most)}"
        return [f"{words.date(mean)} ± {words.number(std / DAY)} days; {ends}"]
    if math.isfinite(mean):
        said.append(f"mean {words.number(mean)}, sd {words.number(std)}")
    if math.isfinite(least):
        said.append(f"from {words.number(least)} to {words.number(most)}")
    return said


def _levels(c: Summary) -> list[tuple[object, float]]:
    pairs = [
        p for p in words.listing(c.get("commonest")) if isinstance(p, (list, tuple)) and len(p) == 2
    ]
    return [(level, words.real(n)) for level, n in pairs if words.real(n) >= 0]
