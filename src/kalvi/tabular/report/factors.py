"""A factor analysis: what the factors are made of, and what of each column they leave unexplained."""

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.axes import Scale
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.rendering import IntervalRow, Summary, long_table, macros, named

SHOWN_FACTORS, SHOWN_LOADINGS, SHOWN_NOISE = 12, 10, 20
CORRELATIONS = Scale(-1.0, 1.0)
CARDS = macros("factors.html")


def loadings(summary: Summary) -> Markup | None:
    """The strongest columns of each factor, as correlations."""
    factors = formatting.mappings(summary.get("factors"))
    if summary.get("model") != "factor" or not factors:
        return None
    told = [_factor(factor) for factor in factors[:SHOWN_FACTORS]]
    return CARDS.loadings(
        formatting.percent(summary.get("explained")),
        [factor for factor in told if factor["rows"]],
        figures.ruler(CORRELATIONS),
    )


def _factor(factor: Summary) -> Summary:
    pairs = _pairs(factor.get("loadings"))[:SHOWN_LOADINGS]
    return {
        "name": str(factor.get("name", "")).replace("_", " "),
        "share": formatting.percent(factor.get("share")),
        "sd": formatting.number(factor.get("sd"), 2),
        "rows": [_loading(column, value) for column, value in pairs],
    }


def _loading(column: object, value: float) -> IntervalRow:
    """A loading as an interval from zero."""
    bar, side = Effect(value, min(value, 0.0), max(value, 0.0)), "up" if value > 0 else "down"
    figure = figures.interval(bar, CORRELATIONS, side=side)
    return IntervalRow(named(column), formatting.fixed(value, 2), figure)


def noise(summary: Summary) -> Markup | None:
    """The share of each column that no factor explains."""
    pairs = _pairs(summary.get("noise")) if summary.get("model") == "factor" else []
    if not pairs:
        return None
    rows = []
    for column, share in pairs:
        said = formatting.percent(share)
        rows.append([named(column), said, figures.share(share, f"{said} noise")])
    return CARDS.noise(long_table("column", ["column", "noise", ""], rows, SHOWN_NOISE))


def outliers(summary: Summary) -> Markup | None:
    """Quantiles of the rows' log densities: what an outlier is."""
    sample = formatting.mapping(summary.get("sample")) if summary.get("model") == "factor" else {}
    pairs = _pairs(sample.get("quantiles"))
    if not pairs:
        return None
    rows = [[formatting.percent(share), formatting.number(value)] for share, value in pairs]
    return CARDS.outliers(f"Log densities of {formatting.count(sample.get('rows'), 'row')}", rows)


def _pairs(found: object) -> list[tuple[object, float]]:
    pairs = [p for p in formatting.listing(found) if isinstance(p, (list, tuple)) and len(p) == 2]
    return [(a, formatting.real(b)) for a, b in pairs if formatting.real(b) == formatting.real(b)]
