"""How well the Gaussian stands for the exact posterior, and the settings of the fit."""

from markupsafe import Markup

from kalvi.tabular.report import figures, formatting
from kalvi.tabular.report.rendering import Summary, macros, named, value_of

VERDICTS = {
    "good": "The Gaussian is a faithful stand-in for the exact posterior.",
    "usable": "The Gaussian is usable; intervals may be somewhat off, averages can be corrected.",
    "poor": "The Gaussian misses part of the exact posterior: trust the predictions checked above "
    "more than the intervals of the coefficients.",
}
CARDS = macros("fit.html")


def quality(summary: Summary) -> Markup | None:
    """Where the fit ended, and how well the Gaussian stands for the exact posterior."""
    found = formatting.mapping(summary.get("diagnosis"))
    reached = formatting.mapping(summary.get("reached")).get("text")
    absent = None if found else summary.get("diagnosis_absent")
    if not (found or reached or absent):
        return None
    return CARDS.quality(reached, absent, _diagnosis(found) if found else None)


def _diagnosis(found: Summary) -> Summary:
    verdict, k = str(found.get("verdict", "")), found.get("pareto_k")
    basis = [
        formatting.count(found[key], key[:-1]) for key in ("draws", "rows") if _has(found, key)
    ]
    if _has(found, "ess"):
        basis.append(f"effective size {formatting.number(found['ess'], 3)}")
    return {
        "gauge": figures.gauge(formatting.real(k)),
        "k": formatting.number(k, 2),
        "verdict": VERDICTS.get(verdict) or named(verdict),
        "basis": ", ".join(basis),
    }


def _has(found: Summary, key: str) -> bool:
    return found.get(key) is not None


def settings(summary: Summary) -> Markup | None:
    """The settings of the fit."""
    chosen = formatting.mapping(summary.get("settings"))
    pairs = [(named(str(key).replace("_", " ")), value_of(value)) for key, value in chosen.items()]
    return CARDS.settings(pairs) if pairs else None
