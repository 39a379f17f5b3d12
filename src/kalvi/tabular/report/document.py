"""The page: what the model is in a sentence, its figures, its cards, and nothing from elsewhere."""

import base64
import hashlib
import math
from datetime import datetime

from kalvi.tabular.report import sections, words
from kalvi.tabular.report.markup import Child, Html, definitions, element, join, name
from kalvi.tabular.report.sections import Summary
from kalvi.tabular.report.style import CSS

MODELS = {
    "logistic": "Bayesian logistic regression",
    "linear": "Bayesian linear regression",
    "poisson": "Bayesian Poisson regression",
    "gp": "Gaussian process",
    "neural": "Bayesian neural network",
}
LONGEST_WARNING = 2000
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
    sections.learning,
    sections.calibration,
    sections.coefficients,
    sections.examples,
    sections.data,
    sections.quality,
    sections.settings,
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
    said: list[Child] = [MODELS.get(model) or name(model)]
    if summary.get("target") is not None:
        said += [" of ", element("em", name(summary["target"]))]
    if (n_classes := len(words.listing(summary.get("classes")))) > 2:
        said += [f" ({words.count(n_classes, 'class')})"]
    columns = [words.mapping(c).get("name") for c in words.listing(summary.get("columns"))]
    columns = [column for column in columns if column != summary.get("target")]
    if columns:
        said += [f" on {words.count(len(columns), 'column')}"]
    if summary.get("rank") is not None:
        said += [f" with a covariance of rank {words.count(summary['rank'])}"]
    if math.isfinite(words.real(summary.get("rows"))):
        so_far = " so far" if summary.get("finished") is False else ""
        said += [f", learned{so_far} from {words.count(summary['rows'], 'row')}"]
    if (passes := words.real(summary.get("passes"))) > 0:
        said += [f" in {NUMERALS.get(passes) or words.count(passes, 'pass')}"]
    if math.isfinite(words.real(summary.get("seconds"))):
        said += [f" in {words.duration(summary['seconds'])}"]
    return [*said, "."]


def _key_figures(summary: Summary) -> list[tuple[Child, Child]]:
    """The numbers to see first; those that are absent are left out."""
    rows, seconds = words.real(summary.get("rows")), words.real(summary.get("seconds"))
    speed = f"{words.short(float(f'{rows / seconds:.2g}'))} a second" if seconds > 0 else ""
    diagnosis = words.mapping(summary.get("diagnosis"))
    verdict = str(diagnosis.get("verdict") or "")
    known = verdict if verdict in sections.VERDICTS else None
    figures = [
        ("rows", words.count(rows), speed),
        ("parameters", words.count(summary.get("parameters")), ""),
        (sections.loss_name(summary), words.number(summary.get("log_loss")), "a row, progressive"),
        ("log evidence", words.number(summary.get("log_evidence"), 5), "nats"),
        ("noise", words.number(summary.get("noise_scale"), 3), "standard deviation"),
        ("Pareto k", words.number(diagnosis.get("pareto_k"), 2), verdict),
    ]
    return [
        (what, join(value, element("small", name(note), class_=known if note == verdict else None)))
        for what, value, note in figures
        if value != words.ABSENT
    ]


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
