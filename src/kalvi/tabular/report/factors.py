"""A factor analysis: what the factors are made of, and what of each column they leave unexplained."""

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.axes import Scale
from kalvi.tabular.report.cards import Summary, card, long_table, note
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.markup import Child, Html, element, join, name, table

SHOWN_FACTORS, SHOWN_LOADINGS, SHOWN_NOISE = 12, 10, 20


def loadings(summary: Summary) -> Html | None:
    """The strongest columns of each factor, as correlations."""
    if summary.get("model") != "factor":
        return None
    factors = [f for f in words.listing(summary.get("factors")) if isinstance(f, dict)]
    if not factors:
        return None
    explained = words.percent(summary.get("explained"))
    told = (
        f"The factors hold {explained} of the columns' variance. A loading is the correlation of a "
        "column with a factor, from −1 to 1."
    )
    parts = [part for factor in factors[:SHOWN_FACTORS] for part in _factor(factor)]
    return card("Loadings", note(told), element("figure", *parts), whole=True)


def _factor(factor: Summary) -> list[Child]:
    scale = Scale(-1.0, 1.0)
    pairs = _pairs(factor.get("loadings"))[:SHOWN_LOADINGS]
    rows = [
        element(
            "div",
            element("div", name(column), class_="name"),
            element("div", element("b", words.fixed(value, 2)), class_="value"),
            element(
                "div",
                figures.interval(_bar(value), scale, side="up" if value > 0 else "down"),
                class_="cell",
            ),
            class_="row",
        )
        for column, value in pairs
    ]
    foot = element("div", element("div", figures.ruler(scale), class_="cell"), class_="foot")
    share = words.percent(factor.get("share"))
    said = f": {share} of the variance, scores known to ± {words.number(factor.get('sd'), 2)}"
    title = element("h3", join(name(str(factor.get("name", "")).replace("_", " "), 40), said))
    return [title, element("div", *rows, foot, class_="intervals")] if rows else []


def _bar(value: float) -> Effect:
    """A loading as an interval from zero."""
    return Effect(value, min(value, 0.0), max(value, 0.0))


def noise(summary: Summary) -> Html | None:
    """The share of each column that no factor explains."""
    pairs = _pairs(summary.get("noise")) if summary.get("model") == "factor" else []
    if not pairs:
        return None
    rows: list[list[Child]] = [
        [name(column), words.percent(share), figures.share(share, f"{words.percent(share)} noise")]
        for column, share in pairs
    ]
    told = "What no factor explains of each column, the largest share first."
    heads: list[Child] = ["column", "noise", ""]
    return card("Noise", note(told), *long_table("column", heads, rows, SHOWN_NOISE))


def outliers(summary: Summary) -> Html | None:
    """Quantiles of the rows' log densities: what an outlier is."""
    sample = words.mapping(summary.get("sample")) if summary.get("model") == "factor" else {}
    pairs = _pairs(sample.get("quantiles"))
    if not pairs:
        return None
    rows: list[list[Child]] = [
        [words.percent(words.real(share)), words.number(value)] for share, value in pairs
    ]
    told = (
        "Of a sample of the rows, such a share had a log density below. A new row far below the "
        "smallest is an outlier; kalvi predict writes the log density of each."
    )
    caption = f"Log densities of {words.count(sample.get('rows'), 'row')}"
    return card("Outliers", note(told), table(caption, ["share of rows", "log density"], rows))


def _pairs(found: object) -> list[tuple[object, float]]:
    pairs = [p for p in words.listing(found) if isinstance(p, (list, tuple)) and len(p) == 2]
    return [(a, words.real(b)) for a, b in pairs if words.real(b) == words.real(b)]
