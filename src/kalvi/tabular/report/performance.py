"""How well rows were predicted: the learning curve, drift, scores and calibration."""

import math

from kalvi.tabular.report import figures
from kalvi.tabular.report.formatting import (
    count,
    cut,
    listing,
    mapping,
    number,
    percent,
    real,
    reals,
    short,
)
from kalvi.tabular.report.rendering import Summary


def learning(summary: Summary) -> Summary | None:
    """The progressive loss against rows: a figure, the names of its curves, and a sentence on drift."""
    curve = mapping(summary.get("curve"))
    rows = reals(curve.get("rows"))
    series = {
        "all rows so far": reals(curve.get("loss")),
        "rows since the last point": reals(curve.get("recent")),
    }
    series = {key: c for key, c in series.items() if any(map(math.isfinite, c))}
    if len(rows) < 2 or not series:
        return None
    return {
        "keys": list(series),
        "figure": figures.learning_curve(rows, series, loss_name(summary), _axis(summary)),
        "drift": mapping(summary.get("drift")).get("words"),
    }


def learned_settings(summary: Summary) -> Summary | None:
    """A figure of the probability that coefficients change, against rows, and the learned settings."""
    found = mapping(summary.get("learned_settings"))
    words = listing(found.get("words"))
    rows, changing = reals(found.get("rows")), reals(found.get("changing"))
    if not words:
        return None
    figure = None
    if len(rows) > 1 and len(rows) == len(changing):
        series = {"coefficients change": changing}
        figure = figures.learning_curve(rows, series, "probability", "rows")
    return {"words": words, "figure": figure}


def _axis(summary: Summary) -> str:
    """The name of the x axis: rows, or the sum of their weights if they have any."""
    weighted = mapping(summary.get("settings")).get("weight")
    return "sum of weights" if weighted else "rows"


def against_baseline(score: Summary) -> str | None:
    """Whether a score is better or worse than its baseline, or equal to the digits shown."""
    value, base = real(score.get("value")), real(score.get("baseline"))
    better = {"higher": value > base, "lower": value < base}.get(str(score.get("better")))
    if better is None or not math.isfinite(value - base):
        return None
    if number(value) == number(base):
        return "the same"
    return "better" if better else "worse"


def calibration(summary: Summary) -> Summary | None:
    """Calibration: of probabilities if the target has classes, otherwise of intervals."""
    if bins := mapping(summary.get("calibration")):
        return _reliability(bins, summary)
    if held := mapping(summary.get("coverage")):
        return _coverage(held)
    return None


def _reliability(bins: Summary, summary: Summary) -> Summary | None:
    """Calibration of the probability of the second of two classes, or of the likeliest of several."""
    predicted, observed, counts = (
        reals(bins.get(key)) for key in ("predicted", "observed", "count")
    )
    seen = [b for b in zip(predicted, observed, counts, strict=False) if b[2] > 0]
    total = sum(n for *_, n in seen)
    if not total:
        return None
    classes = listing(summary.get("classes"))
    event = classes[1] if len(classes) == 2 else None
    error = sum(n * abs(p - o) for p, o, n in seen) / total
    label = f"Calibration: observed against predicted frequency in {len(seen)} bins"
    bars = figures.strip([n if n > 0 else 0.0 for n in counts], "rows in each bin")
    return {
        "event": event,
        "figure": figures.reliability(
            predicted, observed, counts, label, titles=_axis_titles(event)
        ),
        "bars": bars if len(counts) > 1 else None,
        "error": percent(error),
        "rows": count(total, "row"),
    }


def _axis_titles(event: object) -> tuple[str, str]:
    if event is None:
        return "probability of the likeliest class", "share that was right"
    said = cut(event, 24)
    return f"predicted p_{said}", f"observed share of {said}"


def _coverage(held: Summary) -> Summary | None:
    level, observed = reals(held.get("level")), reals(held.get("observed"))
    pairs = [p for p in zip(level, observed, strict=False) if all(map(math.isfinite, p))]
    if not pairs:
        return None
    n = real(held.get("count"))
    figure = figures.coverage(level, observed, n, "Calibration: observed against nominal coverage")
    rows = [[percent(a), percent(b)] for a, b in pairs]
    return {"figure": figure, "caption": f"Coverage over {count(n, 'row')}", "shares": rows}


def loss_name(summary: Summary) -> str:
    """The name of the progressive loss of this model."""
    return "log loss" if listing(summary.get("classes")) else "minus log density"


def speed(summary: Summary) -> str:
    """The number of rows learned per second; empty for a matrix, which is learned in one piece."""
    n, seconds = real(summary.get("rows")), real(summary.get("seconds"))
    if not seconds > 0 or summary.get("model") == "silk":
        return ""
    return f"{short(float(f'{n / seconds:.2g}'))} a second"
