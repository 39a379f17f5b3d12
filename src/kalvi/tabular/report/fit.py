"""How well the Gaussian stands for the exact posterior, and the settings of the fit."""

from kalvi.tabular.report import figures, words
from kalvi.tabular.report.cards import Summary, card, note, value_of
from kalvi.tabular.report.markup import Html, definitions, element, name

VERDICTS = {
    "good": "The Gaussian is a faithful stand-in for the exact posterior.",
    "usable": "The Gaussian is usable; intervals may be somewhat off, averages can be corrected.",
    "poor": "The Gaussian misses part of the exact posterior: trust the predictions checked above "
    "more than the intervals of the coefficients.",
}


def quality(summary: Summary) -> Html | None:
    """Where the fit ended, and how well the Gaussian stands for the exact posterior."""
    found = words.mapping(summary.get("diagnosis"))
    where = words.mapping(summary.get("reached")).get("text")
    ended = [element("p", "How the posterior was found: ", name(where, 300), ".")] if where else []
    if not found:
        absent = summary.get("diagnosis_absent")
        said = [*ended, *([element("p", name(absent, 400))] if absent else [])]
        return card("Fit quality", *said) if said else None
    verdict = str(found.get("verdict", ""))
    k, draws = found.get("pareto_k"), found.get("draws")
    said = [f"{words.count(draws, 'draw')}" if draws is not None else None]
    said += [f"{words.count(found['rows'], 'row')}" if found.get("rows") is not None else None]
    said += [
        f"effective size {words.number(found['ess'], 3)}" if found.get("ess") is not None else None
    ]
    return card(
        "Fit quality",
        *ended,
        note(
            "Pareto k says how heavy the tail of the ratio of exact posterior to Gaussian is: "
            "below 0.5 light, above 0.7 too heavy to correct."
        ),
        element("div", figures.gauge(words.real(k)), class_="gauge-box"),
        element("p", f"Pareto k {words.number(k, 2)}. ", VERDICTS.get(verdict) or name(verdict)),
        note(", ".join(s for s in said if s)),
    )


def settings(summary: Summary) -> Html | None:
    """The settings of the fit."""
    chosen = words.mapping(summary.get("settings"))
    pairs = [(name(str(key).replace("_", " ")), value_of(value)) for key, value in chosen.items()]
    return card("Settings", definitions(pairs, "settings")) if pairs else None
