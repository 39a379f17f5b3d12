"""The page: what the model is in a sentence, its figures, its cards, and nothing from elsewhere."""

import base64
import hashlib
import math
from datetime import datetime

from kalvi.tabular.report import (
    coefficients,
    factors,
    fit,
    matrix,
    performance,
    rows,
    shapes,
    words,
)
from kalvi.tabular.report.cards import Summary
from kalvi.tabular.report.markup import Child, Html, definitions, element, join, name
from kalvi.tabular.report.style import CSS

MODELS = {
    "logistic": "Bayesian logistic regression",
    "linear": "Bayesian linear regression",
    "poisson": "Bayesian Poisson regression",
    "gp": "Gaussian process",
    "neural": "Bayesian neural network",
    "factor": "Factor analysis",
    "silk": "Smooth factors",
}
LONGEST_WARNING = 2000
HEADLINES = ("accuracy", "AUC", "R²", "RMSE")
"""Scores that stand at the top of the page."""
NUMERALS: dict[float, str] = {1: "one pass", 2: "two passes", 3: "three passes"}
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
CARDS = (
    performance.learning,
    performance.calibration,
    performance.scores,
    shapes.shape,
    coefficients.coefficients,
    factors.loadings,
    factors.noise,
    factors.outliers,
    matrix.matrix,
    matrix.smoothness,
    matrix.sides,
    matrix.ascent,
    rows.examples,
    rows.data,
    fit.quality,
    fit.settings,
)


def page(summary: dict) -> str:
    """The summary as one HTML page, everything in it escaped; parts that are absent are left out."""
    title = str(summary.get("name") or "kalvi")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        # Nothing may be loaded or run; of styles only the one whose digest is given.
        element("meta", http_equiv="Content-Security-Policy", content=_policy(CSS)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – report"),
        element("style", Html(CSS)),
    )
    cards = [made for make in CARDS if (made := make(summary)) is not None]
    main = element("main", *(cards or [element("p", "There is nothing to draw yet.")]))
    body = element("body", _header(summary, title), main, _footer(summary))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _header(summary: Summary, title: str) -> Html:
    date = _date(summary.get("created"))
    warnings = [
        element("li", name(w, LONGEST_WARNING)) for w in words.listing(summary.get("warnings"))
    ]
    return element(
        "header",
        element("p", join("Model report", f" · {date}" if date else None), class_="over"),
        element("h1", name(title)),
        element("p", *sentence(summary), class_="lead"),
        definitions(_key_figures(summary), "figures"),
        element("ul", *warnings, class_="warnings", role="list") if warnings else None,
    )


def sentence(summary: Summary) -> list[Child]:
    """What the model is, in words: "Bayesian logistic regression of late on 5 columns, …"."""
    model = str(summary.get("model") or "model")
    said: list[Child] = [MODELS.get(model) or name(model), *_of_what(summary, model)]
    if math.isfinite(words.real(summary.get("rows"))) and model != "silk":
        so_far = " so far" if summary.get("finished") is False else ""
        said += [f", learned{so_far} from {words.count(summary['rows'], 'row')}"]
    if (passes := words.real(summary.get("passes"))) > 0:
        said += [f" in {NUMERALS.get(passes) or words.count(passes, 'pass')}"]
    if math.isfinite(words.real(summary.get("seconds"))):
        said += [f" in {words.duration(summary['seconds'])}"]
    return [*said, "."]


def _of_what(summary: Summary, model: str) -> list[Child]:
    """What a model is of: a target on columns, columns alone, or a matrix."""
    columns = [words.mapping(c).get("name") for c in words.listing(summary.get("columns"))]
    columns = [column for column in columns if column != summary.get("target")]
    if model == "silk":
        sides = words.count(summary.get("rows")), words.count(summary.get("cols"))
        return [f" of a binary matrix of {' × '.join(sides)}, {_factors(summary.get('n_factors'))}"]
    if model == "factor":
        return [f" of {words.count(len(columns), 'column')}: {_factors(summary.get('components'))}"]
    said: list[Child] = []
    if summary.get("target") is not None:
        said += [" of ", element("em", name(summary["target"]))]
    if (n_classes := len(words.listing(summary.get("classes")))) > 2:
        said += [f" ({words.count(n_classes, 'class')})"]
    if columns:
        said += [f" on {words.count(len(columns), 'column')}"]
    if math.isfinite(words.real(summary.get("rank"))):
        said += [f" with a covariance of rank {words.count(summary['rank'])}"]
    return said


def _factors(n: object) -> str:
    return words.count(n, "factor")


def _key_figures(summary: Summary) -> list[tuple[Child, Child]]:
    """The numbers to see first; those that are absent are left out."""
    n, seconds = words.real(summary.get("rows")), words.real(summary.get("seconds"))
    timed = seconds > 0 and summary.get("model") != "silk"
    speed = f"{words.short(float(f'{n / seconds:.2g}'))} a second" if timed else ""
    diagnosis = words.mapping(summary.get("diagnosis"))
    verdict = str(diagnosis.get("verdict") or "")
    known = verdict if verdict in fit.VERDICTS else None
    loss = performance.loss_name(summary)
    figures = [
        ("rows", words.count(n), speed),
        ("columns", words.count(summary.get("cols")), ""),
        ("parameters", words.count(summary.get("parameters") or None), ""),
        *_best_scores(summary),
        (loss, words.number(summary.get("log_loss")), "a row, progressive"),
        ("log evidence", words.number(summary.get("log_evidence"), 5), "nats"),
        ("log density", words.number(summary.get("log_density")), "a row, before it was learned"),
        ("explained", words.percent(summary.get("explained")), "of the columns' variance"),
        ("bound", words.number(_bound(summary), 5), "on the log evidence, nats"),
        ("noise", words.number(summary.get("noise_scale"), 3), "standard deviation"),
        ("Pareto k", words.number(diagnosis.get("pareto_k"), 2), verdict),
    ]
    return [
        (what, join(value, element("small", name(note), class_=known if note == verdict else None)))
        for what, value, note in figures
        if value != words.ABSENT
    ]


def _bound(summary: Summary) -> object:
    """The bound on the log evidence, of a matrix, a process or a network."""
    return summary.get("bound") or words.mapping(summary.get("shape")).get("bound")


def _best_scores(summary: Summary) -> list[tuple[str, str, str]]:
    """The scores to see first, each with its baseline."""
    found = words.mapping(summary.get("scores"))
    told = []
    for m in words.listing(found.get("measures")):
        if isinstance(m, dict) and m.get("name") in HEADLINES:
            note = f"baseline {words.number(m.get('baseline'), 3)}"
            if found.get("in_sample") is True:
                note += ", in-sample"
            told.append((str(m["name"]), words.number(m.get("value"), 3), note))
    return told


def _date(created: object) -> str:
    """A date in words; what is no date is left out."""
    try:
        day = datetime.fromisoformat(str(created))
    except ValueError:
        return ""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}, {day:%H:%M} {day.tzname() or ''}".strip()


def _footer(summary: Summary) -> Html:
    version = summary.get("kalvi")
    made = join("Made by kalvi ", name(version) if version else None)
    return element("footer", element("p", made, ". This page loads nothing and runs nothing."))
