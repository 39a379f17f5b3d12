"""How well rows were predicted: the learning curve and its drift, scores, calibration."""

import math

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.rendering import LEVEL, Child, Summary, macros, named

CARDS = macros("performance.html")


def learning(summary: Summary) -> Markup | None:
    """Progressive loss against rows."""
    curve = formatting.mapping(summary.get("curve"))
    rows = formatting.reals(curve.get("rows"))
    series = {
        "all rows so far": formatting.reals(curve.get("loss")),
        "rows since the last point": formatting.reals(curve.get("recent")),
    }
    series = {key: c for key, c in series.items() if any(map(math.isfinite, c))}
    if len(rows) < 2 or not series:
        return None
    figure = figures.learning_curve(rows, series, loss_name(summary), _axis(summary))
    return CARDS.learning(
        list(series), figure, formatting.mapping(summary.get("drift")).get("words")
    )


def _axis(summary: Summary) -> str:
    """What the curve is against: rows, or the sum of their weights where they have any."""
    weighted = formatting.mapping(summary.get("settings")).get("weight")
    return "sum of weights" if weighted else "rows"


def scores(summary: Summary) -> Markup | None:
    """Scores of the predictions, each beside a baseline that ignores the columns."""
    found = formatting.mapping(summary.get("scores"))
    measures = formatting.mappings(found.get("measures"))
    if not measures:
        absent = summary.get("scores_absent")
        return CARDS.no_scores(absent) if absent else None
    caption = formatting.count(found.get("rows"), "prediction")
    return CARDS.scores(caption, [_score(m) for m in measures], found.get("in_sample") is True)


def _score(m: Summary) -> list[Child]:
    value, base = formatting.real(m.get("value")), formatting.real(m.get("baseline"))
    better = {"higher": value > base, "lower": value < base}.get(str(m.get("better")))
    verdict = None
    if better is not None and math.isfinite(value - base):
        # Differences that the digits shown do not show are none.
        said = formatting.number(value) != formatting.number(base)
        verdict = CARDS.verdict(("better" if better else "worse") if said else "the same")
    return [
        named(m.get("name", ""), 60),
        formatting.number(value),
        formatting.number(base),
        verdict,
        named(m.get("baseline_is", ""), 120),
    ]


def calibration(summary: Summary) -> Markup | None:
    """Whether probabilities are frequencies, or intervals hold what they say."""
    in_sample = formatting.mapping(summary.get("scores")).get("in_sample") is True
    if bins := formatting.mapping(summary.get("calibration")):
        return _reliability(bins, summary, in_sample)
    if held := formatting.mapping(summary.get("coverage")):
        return _coverage(held, in_sample)
    return None


def _reliability(bins: Summary, summary: Summary, in_sample: bool) -> Markup | None:
    """Of the probability of the second class of two, or of the likeliest."""
    predicted, observed, counts = (
        formatting.reals(bins.get(key)) for key in ("predicted", "observed", "count")
    )
    seen = [b for b in zip(predicted, observed, counts, strict=False) if b[2] > 0]
    total = sum(n for *_, n in seen)
    if not total:
        return None
    classes = formatting.listing(summary.get("classes"))
    event = classes[1] if len(classes) == 2 else None
    error = sum(n * abs(p - o) for p, o, n in seen) / total
    label = f"Calibration: observed against predicted frequency in {len(seen)} bins"
    bars = figures.strip([n if n > 0 else 0.0 for n in counts], "rows in each bin")
    return CARDS.reliability(
        summary.get("target", "the target"),
        event,
        LEVEL,
        in_sample,
        figures.reliability(predicted, observed, counts, label, titles=_axis_titles(event)),
        bars if len(counts) > 1 else None,
        formatting.percent(error),
        formatting.count(total, "row"),
    )


def _axis_titles(event: object) -> tuple[str, str]:
    if event is None:
        return "probability of the likeliest class", "share that was right"
    said = formatting.cut(event, 24)
    return f"predicted p_{said}", f"observed share of {said}"


def _coverage(held: Summary, in_sample: bool) -> Markup | None:
    level, observed = formatting.reals(held.get("level")), formatting.reals(held.get("observed"))
    pairs = [p for p in zip(level, observed, strict=False) if all(map(math.isfinite, p))]
    if not pairs:
        return None
    n = formatting.real(held.get("count"))
    figure = figures.coverage(level, observed, n, "Calibration: observed against nominal coverage")
    rows = [[formatting.percent(a), formatting.percent(b)] for a, b in pairs]
    caption = f"Coverage over {formatting.count(n, 'row')}"
    return CARDS.coverage(in_sample, figure, caption, rows)


def loss_name(summary: Summary) -> str:
    """What the progressive loss is called for this model."""
    return "log loss" if formatting.listing(summary.get("classes")) else "minus log density"
