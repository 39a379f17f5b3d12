"""The summary of a model as lines of text: what `kalvi inspect` prints, and `summary()` in Python."""

from collections.abc import Callable
from typing import Any

from kalvi.columns.numbers import in_words

NAMES = {
    "logistic": "logistic regression",
    "linear": "linear regression",
    "poisson": "Poisson regression",
    "gp": "Gaussian process",
    "neural": "neural network",
}
"""Models of tables in words."""
SHOWN = 12
"""So many columns are listed."""
STRONGEST = 6
"""So many columns of a factor are named."""

Facts = list[tuple[str, str]]
Paint = Callable[[str], str]


class Summary(dict):
    """What a model is, as a dict; printed as `kalvi inspect` prints it."""

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def lines(summary: dict[str, Any], most: int = 15, paint: Paint = str) -> list[str]:
    """The summary of any model; `most` effects are listed, and `paint` colours the verdict of a fit."""
    if summary["model"] == "factor":
        return _factor_lines(summary, most)
    if summary["model"] == "silk":
        return _matrix_lines(summary, most)
    return _table_lines(summary, most, paint)


def counted(n: int, noun: str) -> str:
    """A number of things, such as "1 row" or "2 rows"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def column_text(column: dict[str, Any]) -> str:
    """A column in a few words: its kind, its levels or its law, what is missing."""
    missing = f", {column['missing']:,} missing" if column.get("missing") else ""
    kind, noun = column["kind"], {"category": "level", "text": "word"}.get(column["kind"])
    if noun is not None:
        if column["hashed"]:
            return f"{kind}, hashed into {2 ** column['bits']:,} places{missing}"
        common = ", ".join(str(level)[:16] for level, _ in column["commonest"][:4])
        n = column[f"{noun}s"]
        return f"{kind}  {counted(n, noun)}: {common}{' ...' if n > 4 else ''}{missing}"
    if column["kind"] in ("vector", "sparse"):
        width = column.get("width")
        return f"{column['kind']}" + (f" of {width:,} numbers" if width else "") + missing
    law = ""
    if "centre" in column:
        scale = 0.0 if column.get("constant") else column["scale"]
        ends = column.get("mean", column["centre"]), column.get("std", scale)
        law = f"  {in_words(column['kind'], *ends)}"
    return f"{column['kind']}{law}{missing}"


def factor_size(summary: dict[str, Any]) -> str:
    """How many factors there are of how many columns."""
    columns = counted(len(summary["columns"]), "column")
    return f"{counted(summary['components'], 'factor')} of {columns}"


def matrix_size(summary: dict[str, Any]) -> str:
    """How many factors there are of how large a matrix."""
    shape = f"{summary['rows']:,} × {summary['cols']:,} matrix"
    return f"{counted(summary['n_factors'], 'factor')} of a {shape}"


def _table_lines(summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
    columns = summary["columns"][:SHOWN]
    return [
        f"{summary['name']}: {NAMES[summary['model']]} of {summary['target']}",
        *_listed(_table_facts(summary, paint)),
        "columns",
        *(f"  {column['name'][:28]:<28} {column_text(column)}" for column in columns),
        *_score_lines(summary.get("scores")),
        *_effect_lines(summary, most),
        *_notes(summary),
    ]


def _table_facts(summary: dict[str, Any], paint: Paint) -> Facts:
    rank = summary["rank"]
    shape = "full covariance" if rank is None else f"rank {rank}"
    facts = [("classes", ", ".join(summary["classes"]))] if summary["classes"] else []
    facts.append(("rows", f"{summary['rows']:,}"))
    if summary["parameters"]:
        facts.append(("parameters", f"{summary['parameters']:,} ({shape})"))
    named = {"log_evidence": "log evidence", "log_loss": "log loss", "noise_scale": "noise scale"}
    for name, form in (("log_evidence", ",.2f"), ("log_loss", ".6f"), ("noise_scale", ".6g")):
        if summary[name] is not None:
            progressive = " (progressive: each row predicted before it is learned)"
            said = progressive if name == "log_loss" else ""
            facts.append((named[name], f"{summary[name]:{form}}{said}"))
    facts += [*_reached(summary.get("reached")), ("seconds", f"{summary['seconds']:.1f}")]
    if summary["diagnosis"]:
        said = summary["diagnosis"]
        off = f", means up to {said['shift']:.2g} sd off" if "shift" in said else ""
        facts.append(("Pareto k", f"{said['pareto_k']:.2f} ({paint(said['verdict'])}){off}"))
        if said.get("one_pass"):
            facts.append(("one pass", said["one_pass"]["text"]))
    return facts


def _reached(found: dict[str, Any] | None) -> Facts:
    """The bound on the log evidence, if it was climbed, and where the posterior is."""
    if not found:
        return []
    bound = [("bound", f"{found['bound']:,.2f} on the log evidence")] if "bound" in found else []
    return [*bound, ("posterior", found["text"])]


def _score_lines(scores: dict[str, Any] | None) -> list[str]:
    """The scores beside their baselines."""
    if not scores:
        return []
    when = "learned before: in-sample" if scores["in_sample"] else "each before it was learned"
    found = [f"scores of {scores['rows']:,} rows ({when})"]
    for one in scores["measures"]:
        against = f"{one['baseline']:.4g} ({one['baseline_is']})"
        found.append(f"  {one['name']:<28} {one['value']:<10.4g} baseline {against}")
    return found


def _effect_lines(summary: dict[str, Any], most: int) -> list[str]:
    """The strongest effects with their credible intervals, and the intercept apart from them."""
    effects = summary["effects"][:most]
    if not effects:
        return []
    found = [
        f"strongest effects on {summary['effects_of']}, 95 % credible: numbers per standard deviation "
        "(and per unit), levels against their column's mean"
    ]
    for effect in effects:
        per = f"   {effect['original']['mean']:+.4g} per {effect['unit']}" if effect["unit"] else ""
        found.append(f"{_interval(effect['name'], effect)}{per}")
    return found + [
        f"{_interval('intercept', one)}   of an average row" for one in summary["intercept"]
    ]


def _interval(name: str, effect: dict[str, Any]) -> str:
    name = name if effect["class"] is None else f"{effect['class']}: {name}"
    ends = f"[{effect['lower']:+.4f}, {effect['upper']:+.4f}]"
    return f"  {name[:36]:<36} {effect['mean']:+9.4f}   {ends}"


def _factor_lines(summary: dict[str, Any], most: int) -> list[str]:
    said = [f"{summary['name']}: {factor_size(summary)} ({summary['method']})"]
    said += _listed(_factor_facts(summary))
    for factor in summary["factors"]:
        share, sd = f"{factor['share']:.1%} of the variance", f"scores ± {factor['sd']:.3f}"
        strong = (f"{name[:28]} {value:+.2f}" for name, value in factor["loadings"][:STRONGEST])
        said += [f"{factor['name']}: {share}, {sd}", f"  {', '.join(strong)}"]
    if summary["noise"]:
        said.append("share of noise, the largest first")
    said += [f"  {name[:36]:<36} {share:7.1%}" for name, share in summary["noise"][:most]]
    return [*said, *_notes(summary)]


def _factor_facts(summary: dict[str, Any]) -> Facts:
    facts = [("rows", f"{summary['rows']:,}")]
    if summary["explained"] is not None:
        facts.append(("explained", f"{summary['explained']:.1%} of the columns' variance"))
    if summary["log_density"] is not None:
        facts.append(("log density", f"{summary['log_density']:.6f} a row, before it was learned"))
    if summary["sample"] is not None:
        low = ", ".join(f"{q:.2f} ({p:.1%})" for p, q in summary["sample"]["quantiles"])
        facts.append(("quantiles", f"{low} of {summary['sample']['rows']:,} rows' log densities"))
    return [*facts, ("seconds", f"{summary['seconds']:.1f}")]


def _matrix_lines(summary: dict[str, Any], most: int) -> list[str]:
    head = "factors: share of the logits' mean square, correlation lengths of rows and columns"
    said = [f"{summary['name']}: {matrix_size(summary)}", *_listed(_matrix_facts(summary)), head]
    for factor in summary["factors"][:most]:
        rows, cols = (
            _length(factor[f"{side}_length"], summary[f"{side}_axis"]) for side in ("row", "col")
        )
        lengths = f"rows {rows}, columns {cols}"
        said.append(f"  {factor['name']:<12} {factor['share']:7.1%}   {lengths}")
    return [*said, *_notes(summary)]


def _matrix_facts(summary: dict[str, Any]) -> Facts:
    share = summary["observed"] / max(summary["rows"] * summary["cols"], 1)
    converged = "" if summary["converged"] else ", not converged"
    return [
        ("entries", f"{summary['observed']:,} observed ({share:.1%})"),
        ("ones", f"{summary['ones'] / max(summary['observed'], 1):.1%}"),
        ("rows along", _along(summary["row_axis"])),
        ("columns along", _along(summary["col_axis"])),
        ("bound", f"{summary['bound']:.3f} ({summary['bound_per_entry']:.6f} an entry)"),
        ("sweeps", f"{summary['sweeps']}{converged}"),
        ("seconds", f"{summary['seconds']:.1f}"),
    ]


def _along(axis: dict[str, Any]) -> str:
    if axis["kind"] == "order":
        return "their order in the file"
    if axis["kind"] == "unordered":
        return "nothing: unordered"
    return f"{axis['kind']} {axis['least']} to {axis['most']}"


def _length(value: float, axis: dict[str, Any]) -> str:
    if axis["kind"] == "unordered":
        return "unordered"
    return f"{value:.4g}" + (" days" if axis["kind"] == "dates" else "")


def _listed(facts: Facts) -> list[str]:
    return [f"  {name:<14}{value}" for name, value in facts]


def _notes(summary: dict[str, Any]) -> list[str]:
    return [f"note: {warning}" for warning in summary["warnings"]]
