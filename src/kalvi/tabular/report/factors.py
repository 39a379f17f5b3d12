"""Figures and tables of factors, those of the columns of a table and those of a matrix."""

from datetime import date, timedelta

from kalvi.tabular.report import figures
from kalvi.tabular.report.axes import Number
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.formatting import (
    fixed,
    listing,
    mapping,
    pairs,
    percent,
    real,
    reals,
    short,
)
from kalvi.tabular.report.rendering import IntervalRow, LongTable, Summary, fold_long_table, named

MOST_FACTORS, MOST_NAMES, MOST_NOISE = 4, 12, 20
AXES = {"dates": "date", "order": "place in the file"}


def loading_row(pair: tuple[object, float]) -> IntervalRow:
    """The row of a column and its loading on a factor, drawn as an interval from zero."""
    column, value = pair
    bar, side = Effect(value, min(value, 0.0), max(value, 0.0)), "up" if value > 0 else "down"
    figure = figures.interval(bar, figures.CORRELATIONS, side=side)
    return IntervalRow(named(column), fixed(value, 2), figure)


def noise_table(summary: Summary) -> LongTable | None:
    """The noise share of each column; None if there are none."""
    rows = []
    for column, share in pairs(summary.get("noise")) if summary.get("model") == "factor" else []:
        said = percent(share)
        rows.append([named(column), said, figures.share(share, f"{said} noise")])
    return fold_long_table("column", ["column", "noise", ""], rows, MOST_NOISE) if rows else None


def matrix_factors(summary: Summary) -> list[Summary]:
    """The strongest factors along the rows and the columns of a matrix, with their uncertainty."""
    return [
        factor
        for side, title in (("row", "Rows"), ("col", "Columns"))
        for factor in _factors_of_side(mapping(summary.get(f"{side}_factors")), title)
    ]


def _factors_of_side(side: Summary, title: str) -> list[Summary]:
    """The factors of one side: curves if the side is ordered, otherwise lists of names."""
    means, stds = (
        [reals(part) for part in listing(side.get(key))][:MOST_FACTORS] for key in ("mean", "std")
    )
    kind, found = str(side.get("kind")), []
    for k, (mean, std) in enumerate(zip(means, stds, strict=False)):
        factor = {"title": f"{title}, factor {k + 1}", "curve": None}
        if kind == "unordered":
            factor |= _strongest(listing(side.get("names")), mean, std)
        else:
            factor["curve"] = figures.band(
                reals(side.get("position")),
                mean,
                std,
                str(factor["title"]),
                along=AXES.get(kind, "location"),
                say=_day if kind == "dates" else short,
            )
        found.append(factor)
    return found


def _strongest(names: list, mean: list[float], std: list[float]) -> Summary:
    """The names with the largest factors, and their intervals."""
    found = [t for t in zip(names, mean, std, strict=False) if t[1] == t[1] and t[2] == t[2]]
    found = sorted(found, key=lambda t: -abs(t[1]))[:MOST_NAMES]
    effects = [Effect(m, m - 1.96 * s, m + 1.96 * s) for _, m, s in found]
    scale = figures.effect_scale(effects)
    rows = [
        IntervalRow(named(name, 60), fixed(effect.mean, 2), figures.interval(effect, scale))
        for (name, *_), effect in zip(found, effects, strict=True)
    ]
    return {"rows": rows, "ruler": figures.ruler(scale)}


def ascent_curve(summary: Summary) -> str | None:
    """A curve of how far the bound was below its last value, sweep by sweep."""
    history = reals(summary.get("history")) if summary.get("model") == "silk" else []
    if len(history) < 2:
        return None
    below = [history[-1] - value for value in history[:-1]]
    total = real(summary.get("sweeps"))
    step = total / len(below) if total > 0 else 1.0
    sweeps = [1 + i * step for i in range(len(below))]
    series = {"nats below": below}
    return figures.learning_curve(sweeps, series, "nats below the last", against="sweeps")


def _day(days: Number) -> str:
    """The date of a number of days since 1970."""
    try:
        return (date(1970, 1, 1) + timedelta(days=float(days))).isoformat()
    except (OverflowError, ValueError):
        return short(days)
