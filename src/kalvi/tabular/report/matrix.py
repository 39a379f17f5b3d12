"""A factorised binary matrix: size and fill, factors along rows and columns, the ascent of the bound."""

from datetime import date, timedelta

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.axes import Number
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.rendering import LEVEL, Child, IntervalRow, Summary, macros, named

SHOWN_FACTORS, SHOWN_NAMES = 4, 12
ALONG = {"order": "their order in the file", "unordered": "nothing: they have no order"}
AXES = {"dates": "date", "order": "place in the file"}
CARDS = macros("matrix.html")


def matrix(summary: Summary) -> Markup | None:
    """How large the matrix is, how much of it was seen, and what its factors are smooth along."""
    if summary.get("model") != "silk":
        return None
    sides = [summary.get("rows"), summary.get("cols")]
    size = formatting.real(sides[0]) * formatting.real(sides[1])
    seen, ones = formatting.real(summary.get("observed")), formatting.real(summary.get("ones"))
    filled = formatting.percent(seen / size) if size else ""
    share = f"{formatting.percent(ones / seen)} of the observed" if seen > 0 else formatting.ABSENT
    pairs: list[tuple[Child, Child]] = [
        ("size", " × ".join(map(formatting.count, sides))),
        ("observed", f"{formatting.count(seen)} entries, {filled}"),
        ("ones", share),
        ("rows along", _along(formatting.mapping(summary.get("row_axis")))),
        ("columns along", _along(formatting.mapping(summary.get("col_axis")))),
        ("bound per entry", formatting.number(summary.get("bound_per_entry"))),
        ("sweeps", formatting.count(summary.get("sweeps"))),
    ]
    return CARDS.matrix(pairs)


def _along(axis: Summary) -> Child:
    kind = str(axis.get("kind", ""))
    if kind in ALONG:
        return ALONG[kind]
    return CARDS.extent(formatting.cut(kind, 20), axis.get("least"), axis.get("most"))


def smoothness(summary: Summary) -> Markup | None:
    """The factors by their share, and how far each is smooth along rows and columns."""
    factors = formatting.mappings(summary.get("factors"))
    if summary.get("model") != "silk" or not factors:
        return None
    axes = [formatting.mapping(summary.get(f"{side}_axis")) for side in ("row", "col")]
    rows = [_smoothness_row(factor, *axes) for factor in factors]
    return CARDS.smoothness(formatting.count(len(rows), "factor"), rows)


def _smoothness_row(factor: Summary, row_axis: Summary, col_axis: Summary) -> list[Child]:
    share = formatting.percent(factor.get("share"))
    return [
        named(str(factor.get("name", "")).replace("_", " "), 40),
        share,
        figures.share(formatting.real(factor.get("share")), f"{share} of the logits"),
        _length(factor.get("row_length"), row_axis),
        _length(factor.get("col_length"), col_axis),
    ]


def _length(value: object, axis: Summary) -> str:
    if axis.get("kind") == "unordered":
        return "unordered"
    return formatting.number(value, 3) + (" days" if axis.get("kind") == "dates" else "")


def sides(summary: Summary) -> Markup | None:
    """The strongest factors along the rows and the columns, with their uncertainty."""
    found = [
        factor
        for side, title in (("row", "Rows"), ("col", "Columns"))
        for factor in _side(formatting.mapping(summary.get(f"{side}_factors")), title)
    ]
    return CARDS.sides(LEVEL, found) if found else None


def _side(side: Summary, title: str) -> list[Summary]:
    """The factors of one side: curves along an order, or lists of names."""
    means, stds = (
        [formatting.reals(part) for part in formatting.listing(side.get(key))][:SHOWN_FACTORS]
        for key in ("mean", "std")
    )
    kind, found = str(side.get("kind")), []
    for k, (mean, std) in enumerate(zip(means, stds, strict=False)):
        factor = {"title": f"{title}, factor {k + 1}", "curve": None}
        if kind == "unordered":
            factor |= _strongest(formatting.listing(side.get("names")), mean, std)
        else:
            factor["curve"] = figures.band(
                formatting.reals(side.get("position")),
                mean,
                std,
                str(factor["title"]),
                along=AXES.get(kind, "location"),
                say=_day if kind == "dates" else formatting.short,
            )
        found.append(factor)
    return found


def _strongest(names: list, mean: list[float], std: list[float]) -> Summary:
    """The names farthest from zero with their intervals."""
    found = [t for t in zip(names, mean, std, strict=False) if t[1] == t[1] and t[2] == t[2]]
    found = sorted(found, key=lambda t: -abs(t[1]))[:SHOWN_NAMES]
    effects = [Effect(m, m - 1.96 * s, m + 1.96 * s) for _, m, s in found]
    scale = figures.effect_scale(effects)
    rows = []
    for (label, *_), effect in zip(found, effects, strict=True):
        value, figure = formatting.fixed(effect.mean, 2), figures.interval(effect, scale)
        rows.append(IntervalRow(named(label, 60), value, figure))
    return {"rows": rows, "ruler": figures.ruler(scale)}


def ascent(summary: Summary) -> Markup | None:
    """How the bound rose, sweep by sweep."""
    history = formatting.reals(summary.get("history")) if summary.get("model") == "silk" else []
    if len(history) < 2:
        return None
    below = [history[-1] - value for value in history[:-1]]
    total = formatting.real(summary.get("sweeps"))
    step = total / len(below) if total > 0 else 1.0
    sweeps = [1 + i * step for i in range(len(below))]
    figure = figures.learning_curve(
        sweeps, {"nats below": below}, "nats below the last", against="sweeps"
    )
    return CARDS.ascent(summary.get("converged") is not False, figure)


def _day(days: Number) -> str:
    """A date from the days since 1970."""
    try:
        return (date(1970, 1, 1) + timedelta(days=float(days))).isoformat()
    except (OverflowError, ValueError):
        return formatting.short(days)
