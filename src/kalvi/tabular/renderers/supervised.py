"""Text about a model with a target."""

from typing import Any

from kalvi.readers.errors import counted
from kalvi.readers.source import Source
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import (
    NAMES,
    SHOWN,
    Facts,
    Paint,
    column_line,
    column_text,
    fact_lines,
    input_lines,
    note_lines,
    reason,
    speed_text,
)


class SupervisedRenderer:
    """Text about linear models, Gaussian processes and neural networks."""

    def column_lines(self, outline: dict[str, Any], source: Source) -> list[str]:
        """Lines before a pass: the types found in the first rows, and how each column is used."""
        target, classes = outline["target"], outline["classes"] or []
        more = " ..." if len(classes) > 6 else ""
        named = f" ({', '.join(classes[:6])}{more})" if classes else ""
        why = reason(source.about[target], learned=bool(outline["rows"]))
        said = f"the target: {NAMES[outline['model']]}{named}  ({why})"
        return [*input_lines(outline, source), column_line(target, said)]

    def progress(self, record: Record) -> str:
        """Text beside the progress bar during a pass: how good predictions are so far."""
        rows, total = record.curve
        return f"log loss {-total[-1] / rows[-1]:.4f}" if len(rows) else ""

    def fitted_lines(self, summary: dict[str, Any]) -> list[str]:
        """A few lines about the result of a pass."""
        n, rows = summary["parameters"], counted(summary["rows"], "row")
        size = f"{counted(n, 'parameter')}, " if n else ""
        name = f"{NAMES[summary['model']]} of {summary['target']}"
        said = [f"{name}: {rows}, {size}{speed_text(summary)}"]
        if summary["log_loss"] is not None:
            said.append(f"progressive log loss {summary['log_loss']:.6f} nats a row")
        if summary.get("reached"):
            said.append(f"posterior: {summary['reached']['text']}")
        if summary.get("learned_settings"):
            said += [f"settings: {words}" for words in summary["learned_settings"]["words"]]
        return said

    def summary_lines(self, summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
        """All lines about a model, with at most `most` effects; `paint` colours the verdict on a fit."""
        columns = summary["columns"][:SHOWN]
        return [
            f"{summary['name']}: {NAMES[summary['model']]} of {summary['target']}",
            *fact_lines(_table_facts(summary, paint)),
            "columns",
            *(column_line(column["name"], column_text(column)) for column in columns),
            *_score_lines(summary.get("scores")),
            *_effect_lines(summary, most),
            *note_lines(summary),
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
    """The bound on the log evidence, if the fit maximised it, and how the posterior was found."""
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
    """The strongest effects with their credible intervals, and then the intercept."""
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
