"""How well rows were predicted: the learning curve and its drift, scores, calibration."""

import math

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.cards import LEVEL, Summary, card, note
from kalvi.tabular.report.markup import Child, Html, element, join, name, table


def learning(summary: Summary) -> Html | None:
    """Progressive loss against rows."""
    curve = words.mapping(summary.get("curve"))
    rows = words.reals(curve.get("rows"))
    series = {
        "all rows so far": words.reals(curve.get("loss")),
        "rows since the last point": words.reals(curve.get("recent")),
    }
    series = {key: c for key, c in series.items() if any(map(math.isfinite, c))}
    if len(rows) < 2 or not series:
        return None
    keys = [element("span", key, class_=f"key s{i}") for i, key in enumerate(series)]
    said = "Every row is predicted before it is learned from, so this is the loss on new data."
    moved = words.mapping(summary.get("drift")).get("words")
    return card(
        "Learning curve",
        note(said),
        element("p", *keys, class_="note keys"),
        figures.learning_curve(rows, series, loss_name(summary), _axis(summary)),
        element("p", name(moved, 400), class_="end-note") if moved else None,
    )


def _axis(summary: Summary) -> str:
    """What the curve is against: rows, or the sum of their weights where they have any."""
    weighted = words.mapping(summary.get("settings")).get("weight")
    return "sum of weights" if weighted else "rows"


def scores(summary: Summary) -> Html | None:
    """Scores of the predictions, each beside a baseline that ignores the columns."""
    found = words.mapping(summary.get("scores"))
    measures = [m for m in words.listing(found.get("measures")) if isinstance(m, dict)]
    if not measures:
        absent = summary.get("scores_absent")
        return card("Scores", element("p", name(absent, 400)), whole=True) if absent else None
    rows = [_score(m) for m in measures]
    heads: list[Child] = ["score", "model", "baseline", "", "the baseline is"]
    caption = words.count(found.get("rows"), "prediction")
    return card("Scores", note(_scored_how(found)), table(caption, heads, rows), whole=True)


def _scored_how(found: Summary) -> str:
    if found.get("in_sample") is True:
        return (
            "In-sample: this model learns all rows at once, so these are scores of rows that it had "
            "learned. New rows will be predicted less well; hold some back and score them with "
            "kalvi predict."
        )
    return (
        "Each row was predicted before it was learned from, so these are scores of new data. The first "
        "rows, from which the model knows too little, are left out. Rows are predicted a block at a "
        "time; the learning curve predicts each after the one before, and may be a little better."
    )


def _score(m: Summary) -> list[Child]:
    value, base = words.real(m.get("value")), words.real(m.get("baseline"))
    better = {"higher": value > base, "lower": value < base}.get(str(m.get("better")))
    gain = abs(value - base)
    verdict = None
    if better is not None and math.isfinite(gain):
        # Differences that the digits shown do not show are none.
        said = words.number(value) != words.number(base)
        verdict = ("better" if better else "worse") if said else "the same"
    mark = element("span", verdict, class_={"better": "good", "worse": "poor"}.get(verdict or ""))
    what = name(m.get("baseline_is", ""), 120)
    return [
        name(m.get("name", ""), 60),
        words.number(value),
        words.number(base),
        mark if verdict else None,
        what,
    ]


def calibration(summary: Summary) -> Html | None:
    """Whether probabilities are frequencies, or intervals hold what they say."""
    in_sample = words.mapping(summary.get("scores")).get("in_sample") is True
    if bins := words.mapping(summary.get("calibration")):
        return _reliability(bins, summary, in_sample)
    if held := words.mapping(summary.get("coverage")):
        return _coverage(held, in_sample)
    return None


def _event(summary: Summary) -> Html:
    """What the probabilities are of: with two classes the second, else that the likeliest is right."""
    classes = words.listing(summary.get("classes"))
    if len(classes) != 2:
        return join("the likeliest class is right")
    target, event = summary.get("target", "the target"), classes[1]
    return join(element("em", name(target, 60)), " is ", element("em", name(event, 60)))


def _reliability(bins: Summary, summary: Summary, in_sample: bool) -> Html | None:
    predicted, observed, counts = (
        words.reals(bins.get(key)) for key in ("predicted", "observed", "count")
    )
    seen = [b for b in zip(predicted, observed, counts, strict=False) if b[2] > 0]
    total = sum(n for *_, n in seen)
    if not total:
        return None
    error = sum(n * abs(p - o) for p, o, n in seen) / total
    when = "having learned them" if in_sample else "before it saw the rows"
    told = join(
        "How often ",
        _event(summary),
        f", against how often the model expected it {when}. On the dashed line they "
        f"agree; lines are {LEVEL} intervals, dots grow with their rows.",
    )
    label = f"Calibration: observed against predicted frequency in {len(seen)} bins"
    said = f"Expected calibration error {words.percent(error)} over {words.count(total, 'row')}."
    bars = figures.strip([n if n > 0 else 0.0 for n in counts], "rows in each bin")
    return card(
        "Calibration",
        note(told),
        figures.reliability(predicted, observed, counts, label, titles=_axis_titles(summary)),
        element("div", bars, class_="figure-strip") if len(counts) > 1 else None,
        element("p", said, class_="end-note"),
    )


def _axis_titles(summary: Summary) -> tuple[str, str]:
    """What the axes are of: the probability of the second class of two, or of the likeliest."""
    classes = words.listing(summary.get("classes"))
    if len(classes) != 2:
        return "probability of the likeliest class", "share that was right"
    event = words.cut(classes[1], 24)
    return f"predicted p_{event}", f"observed share of {event}"


def _coverage(held: Summary, in_sample: bool) -> Html | None:
    level, observed = words.reals(held.get("level")), words.reals(held.get("observed"))
    pairs = [p for p in zip(level, observed, strict=False) if all(map(math.isfinite, p))]
    if not pairs:
        return None
    n = words.real(held.get("count"))
    rows: list[list[Child]] = [[words.percent(a), words.percent(b)] for a, b in pairs]
    when = "when they had been learned" if in_sample else "beforehand"
    told = (
        f"How many rows fell into the interval predicted for them {when}, against how many "
        "should. On the dashed line they agree."
    )
    return card(
        "Calibration",
        note(told),
        figures.coverage(level, observed, n, "Calibration: observed against nominal coverage"),
        table(f"Coverage over {words.count(n, 'row')}", ["interval", "held"], rows),
    )


def loss_name(summary: Summary) -> str:
    """What the progressive loss is called for this model."""
    return "log loss" if words.listing(summary.get("classes")) else "minus log density"
