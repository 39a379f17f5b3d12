"""Text that the renderers have in common: columns, lists of facts, and notes."""

from collections.abc import Callable
from typing import Any

from kalvi.columns.numbers import describe_moments
from kalvi.readers.errors import counted
from kalvi.readers.source import Source

NAMES = {
    "logistic": "logistic regression",
    "linear": "linear regression",
    "poisson": "Poisson regression",
    "gp": "Gaussian process",
    "neural": "neural network",
}
"""The names of models with a target, for people."""
SHOWN = 12
"""The most columns that are listed."""

Facts = list[tuple[str, str]]
Paint = Callable[[str], str]


def fact_lines(facts: Facts) -> list[str]:
    """A line for each fact."""
    return [f"  {name:<14}{value}" for name, value in facts]


def note_lines(summary: dict[str, Any]) -> list[str]:
    """A line for each warning."""
    return [f"note: {warning}" for warning in summary["warnings"]]


def speed_text(summary: dict[str, Any]) -> str:
    """How long a pass took, and how many rows it learned per second."""
    rows = summary["rows"] / max(summary["seconds"], 1e-9)
    return f"{summary['seconds']:.1f} s ({rows:,.0f} rows/s)"


def column_line(name: str, said: str) -> str:
    """A line with the name of a column and text about it."""
    return f"  {name[:28]:<28} {said}"


NOUNS = {"category": "level", "text": "word", "named": "feature"}
"""The names of the keys of columns that have some."""


def column_text(column: dict[str, Any]) -> str:
    """A short description of a column: its type, its levels or distribution, and what is missing."""
    missing = f", {column['missing']:,} missing" if column.get("missing") else ""
    kind, noun = column["kind"], NOUNS.get(column["kind"])
    if noun is not None:
        if column["hashed"]:
            return f"{kind}, hashed into {2 ** column['bits']:,} places{missing}"
        common = ", ".join(str(level)[:16] for level, _ in column["commonest"][:4])
        n = column[f"{noun}s"]
        return f"{kind}  {counted(n, noun)}: {common}{' ...' if n > 4 else ''}{missing}"
    if kind in ("vector", "sparse"):
        width = column.get("width")
        return f"{kind}" + (f" of {width:,} numbers" if width else "") + missing
    law = ""
    if "centre" in column:
        scale = 0.0 if column.get("constant") else column["scale"]
        ends = column.get("mean", column["centre"]), column.get("std", scale)
        law = f"  {describe_moments(kind, *ends)}"
    return f"{kind}{law}{missing}"


def input_lines(outline: dict[str, Any], source: Source) -> list[str]:
    """A line for each input with the type found in the first rows, and the reason."""
    first = counted(source.sample.num_rows, "row")
    said = [f"{counted(len(source.files), 'file')}, types by the first {first}:"]
    hidden = 0
    for i, column in enumerate(outline["columns"]):
        about = source.about[column["name"]]
        if i < SHOWN or about.notes:
            why = reason(about, learned=bool(outline["rows"]))
            said.append(column_line(column["name"], f"{column_text(column)}  ({why})"))
        else:
            hidden += 1
    return [*said, *([f"  ... and {counted(hidden, 'more column')}"] if hidden else [])]


def reason(about: Any, *, learned: bool = False) -> str:
    """Why a column was given its type; a model that has learned rows keeps the types it knows."""
    known = learned and about.why.startswith("asked for")
    return "; ".join(("as the model knows it" if known else about.why, *about.notes))
