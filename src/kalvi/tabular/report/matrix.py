"""A factorised binary matrix: size and fill, factors along rows and columns, the ascent of the bound."""

from datetime import date, timedelta

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.axes import Number
from kalvi.tabular.report.cards import LEVEL, Summary, card, note
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.markup import Child, Html, definitions, element, join, name, table

SHOWN_FACTORS, SHOWN_NAMES = 4, 12
ALONG = {"order": "their order in the file", "unordered": "nothing: they have no order"}


def matrix(summary: Summary) -> Html | None:
    """How large the matrix is, how much of it was seen, and what its factors are smooth along."""
    if summary.get("model") != "silk":
        return None
    size = words.real(summary.get("rows")) * words.real(summary.get("cols"))
    seen, ones = words.real(summary.get("observed")), words.real(summary.get("ones"))
    pairs: list[tuple[Child, Child]] = [
        ("size", f"{words.count(summary.get('rows'))} × {words.count(summary.get('cols'))}"),
        ("observed", f"{words.count(seen)} entries, {words.percent(seen / size) if size else ''}"),
        ("ones", f"{words.percent(ones / seen)} of the observed" if seen > 0 else words.ABSENT),
        ("rows along", _along(words.mapping(summary.get("row_axis")))),
        ("columns along", _along(words.mapping(summary.get("col_axis")))),
        ("bound per entry", words.number(summary.get("bound_per_entry"))),
        ("sweeps", words.count(summary.get("sweeps"))),
    ]
    return card("Matrix", definitions(pairs, "settings"))


def _along(axis: Summary) -> Child:
    kind = str(axis.get("kind", ""))
    if kind in ALONG:
        return ALONG[kind]
    return join(
        f"{words.cut(kind, 20)} ", name(axis.get("least"), 40), " to ", name(axis.get("most"), 40)
    )


def smoothness(summary: Summary) -> Html | None:
    """The factors by their share, and how far each is smooth along rows and columns."""
    if summary.get("model") != "silk":
        return None
    factors = [f for f in words.listing(summary.get("factors")) if isinstance(f, dict)]
    sides = [words.mapping(summary.get(f"{side}_axis")) for side in ("row", "col")]
    rows: list[list[Child]] = [
        [
            name(str(f.get("name", "")).replace("_", " "), 40),
            words.percent(f.get("share")),
            figures.share(
                words.real(f.get("share")), f"{words.percent(f.get('share'))} of the logits"
            ),
            _length(f.get("row_length"), sides[0]),
            _length(f.get("col_length"), sides[1]),
        ]
        for f in factors
    ]
    if not rows:
        return None
    told = (
        "The share of a factor is of the mean square of the log odds. Its correlation length is how "
        "far one must go along the rows or the columns until it has become another."
    )
    heads: list[Child] = ["factor", "share", "", "rows", "columns"]
    return card("Factors", note(told), table(words.count(len(rows), "factor"), heads, rows))


def _length(value: object, axis: Summary) -> str:
    if axis.get("kind") == "unordered":
        return "unordered"
    return words.number(value, 3) + (" days" if axis.get("kind") == "dates" else "")


def sides(summary: Summary) -> Html | None:
    """The strongest factors along the rows and the columns, with their uncertainty."""
    found = [
        part
        for side, title in (("row", "Rows"), ("col", "Columns"))
        for part in _side(words.mapping(summary.get(f"{side}_factors")), title)
    ]
    if not found:
        return None
    told = (
        "Mean and two standard deviations where there is an order to be smooth along; otherwise the "
        f"rows or columns farthest from zero, with {LEVEL} intervals."
    )
    return card("Factors along rows and columns", note(told), *found, whole=True)


def _side(side: Summary, title: str) -> list[Child]:
    """The factors of one side: curves along an order, or lists of names."""
    means = [words.reals(m) for m in words.listing(side.get("mean"))][:SHOWN_FACTORS]
    stds = [words.reals(s) for s in words.listing(side.get("std"))][:SHOWN_FACTORS]
    names, position = words.listing(side.get("names")), words.reals(side.get("position"))
    kind, parts = side.get("kind"), []
    for k, (mean, std) in enumerate(zip(means, stds, strict=False)):
        said = f"{title}, factor {k + 1}"
        parts.append(element("h3", said))
        if kind == "unordered":
            parts.append(_listed(names, mean, std))
            continue
        say = _day if kind == "dates" else words.short
        along = {"dates": "date", "order": "place in the file"}.get(str(kind), "location")
        parts.append(figures.band(position, mean, std, said, along=along, say=say))
    return parts


def _listed(names: list, mean: list[float], std: list[float]) -> Html:
    """The names farthest from zero with their intervals."""
    found = [t for t in zip(names, mean, std, strict=False) if t[1] == t[1] and t[2] == t[2]]
    found = sorted(found, key=lambda t: -abs(t[1]))[:SHOWN_NAMES]
    effects = [Effect(m, m - 1.96 * s, m + 1.96 * s) for _, m, s in found]
    scale = figures.effect_scale(effects)
    rows = [
        element(
            "div",
            element("div", name(label, 60), class_="name"),
            element("div", element("b", words.fixed(effect.mean, 2)), class_="value"),
            element("div", figures.interval(effect, scale), class_="cell"),
            class_="row",
        )
        for (label, *_), effect in zip(found, effects, strict=True)
    ]
    foot = element("div", element("div", figures.ruler(scale), class_="cell"), class_="foot")
    return element("div", *rows, foot, class_="intervals")


def ascent(summary: Summary) -> Html | None:
    """How the bound rose, sweep by sweep."""
    history = words.reals(summary.get("history")) if summary.get("model") == "silk" else []
    if len(history) < 2:
        return None
    end = " It had not converged." if summary.get("converged") is False else ""
    below = [history[-1] - value for value in history]
    total = words.real(summary.get("sweeps"))
    step = total / (len(history) - 1) if total > 0 else 1.0
    told = f"How far the bound on the log evidence was below its last value.{end}"
    series = {"nats below": below[:-1]}
    sweeps = [1 + i * step for i in range(len(below) - 1)]
    return card(
        "Ascent",
        note(told),
        figures.learning_curve(sweeps, series, "nats below the last", against="sweeps"),
    )


def _day(days: Number) -> str:
    """A date from the days since 1970."""
    try:
        return (date(1970, 1, 1) + timedelta(days=float(days))).isoformat()
    except (OverflowError, ValueError):
        return words.short(days)
