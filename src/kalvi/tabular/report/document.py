"""The page: what the model is in a sentence, its figures, its cards, and nothing from elsewhere."""

import base64
import hashlib
import math
from collections.abc import Callable
from datetime import datetime

from markupsafe import Markup

from kalvi.tabular.report import (
    coefficients,
    factors,
    fit,
    formatting,
    matrix,
    performance,
    rows,
    shapes,
)
from kalvi.tabular.report.rendering import ENVIRONMENT, TEMPLATES, Summary

CSS = (TEMPLATES / "page.css").read_text("utf-8")
MODELS = {
    "logistic": "Bayesian logistic regression",
    "linear": "Bayesian linear regression",
    "poisson": "Bayesian Poisson regression",
    "gp": "Gaussian process",
    "neural": "Bayesian neural network",
    "factor": "Factor analysis",
    "silk": "Smooth factors",
}
N_FACTORS = {"silk": "n_factors", "factor": "components"}
"""Where a summary has the number of its factors."""
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
    verdict = formatting.mapping(summary.get("diagnosis")).get("verdict")
    return ENVIRONMENT.get_template("page.html").render(
        title=str(summary.get("name") or "kalvi"),
        policy=_policy(CSS),
        style=Markup(CSS),
        date=_date(summary.get("created")),
        about=model_facts(summary),
        figures=[figure for figure in _key_figures(summary) if figure[1] != formatting.ABSENT],
        verdict=verdict if verdict in fit.VERDICTS else None,
        warnings=formatting.listing(summary.get("warnings")),
        longest_warning=LONGEST_WARNING,
        cards=[made for make in CARDS if (made := make(summary)) is not None],
        version=summary.get("kalvi"),
    )


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def model_facts(summary: Summary) -> Summary:
    """What the sentence at the top of the page says; what is not known is None."""
    model = str(summary.get("model") or "model")
    columns = [column.get("name") for column in formatting.mappings(summary.get("columns"))]
    n_columns = len([column for column in columns if column != summary.get("target")])
    classes = len(formatting.listing(summary.get("classes")))
    matrix_sides = [formatting.count(summary.get(side)) for side in ("rows", "cols")]
    passes = formatting.real(summary.get("passes"))
    return {
        "model": model,
        "kind": MODELS.get(model),
        "size": " × ".join(matrix_sides),
        "factors": formatting.count(
            summary.get("n_factors" if model == "silk" else "components"), "factor"
        ),
        "target": summary.get("target"),
        "classes": formatting.count(classes, "class") if classes > 2 else None,
        "columns": formatting.count(n_columns, "column"),
        "has_columns": n_columns > 0,
        "rank": _known(summary.get("rank"), formatting.count),
        "rows": _known(summary.get("rows"), lambda n: formatting.count(n, "row")),
        "so_far": summary.get("finished") is False,
        "passes": (NUMERALS.get(passes) or formatting.count(passes, "pass"))
        if passes > 0
        else None,
        "duration": _known(summary.get("seconds"), formatting.duration),
    }


def _known(value: object, say: Callable[[object], str]) -> str | None:
    """A number in words, None where there is no number."""
    return say(value) if math.isfinite(formatting.real(value)) else None


def _key_figures(summary: Summary) -> list[tuple[str, str, str]]:
    """The numbers to see first, each with a note; some are absent."""
    n, seconds = formatting.real(summary.get("rows")), formatting.real(summary.get("seconds"))
    timed = seconds > 0 and summary.get("model") != "silk"
    speed = f"{formatting.short(float(f'{n / seconds:.2g}'))} a second" if timed else ""
    diagnosis = formatting.mapping(summary.get("diagnosis"))
    return [
        ("rows", formatting.count(n), speed),
        ("columns", formatting.count(summary.get("cols")), ""),
        ("parameters", formatting.count(summary.get("parameters") or None), ""),
        *_best_scores(summary),
        (
            performance.loss_name(summary),
            formatting.number(summary.get("log_loss")),
            "a row, progressive",
        ),
        ("log evidence", formatting.number(summary.get("log_evidence"), 5), "nats"),
        (
            "log density",
            formatting.number(summary.get("log_density")),
            "a row, before it was learned",
        ),
        ("explained", formatting.percent(summary.get("explained")), "of the columns' variance"),
        ("bound", formatting.number(_bound(summary), 5), "on the log evidence, nats"),
        ("noise", formatting.number(summary.get("noise_scale"), 3), "standard deviation"),
        ("Pareto k", formatting.number(diagnosis.get("pareto_k"), 2), _verdict(diagnosis)),
    ]


def _verdict(diagnosis: Summary) -> str:
    return str(diagnosis.get("verdict") or "")


def _bound(summary: Summary) -> object:
    """The bound on the log evidence, of a matrix, a process or a network."""
    return summary.get("bound") or formatting.mapping(summary.get("shape")).get("bound")


def _best_scores(summary: Summary) -> list[tuple[str, str, str]]:
    """The scores to see first, each with its baseline."""
    found = formatting.mapping(summary.get("scores"))
    told = []
    for m in formatting.mappings(found.get("measures")):
        if m.get("name") in HEADLINES:
            note = f"baseline {formatting.number(m.get('baseline'), 3)}"
            if found.get("in_sample") is True:
                note += ", in-sample"
            told.append((str(m["name"]), formatting.number(m.get("value"), 3), note))
    return told


def _date(created: object) -> str:
    """A date in words; what is no date is left out."""
    try:
        day = datetime.fromisoformat(str(created))
    except ValueError:
        return ""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}, {day:%H:%M} {day.tzname() or ''}".strip()
