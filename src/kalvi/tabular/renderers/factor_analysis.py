"""Text about a factor analysis."""

from typing import Any

from kalvi.readers.errors import counted
from kalvi.readers.source import Source
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import (
    SHOWN,
    Facts,
    Paint,
    column_line,
    fact_lines,
    input_lines,
    note_lines,
    reason,
    speed_text,
)

STRONGEST = 6
"""The most columns that are named for a factor."""


class FactorRenderer:
    """Text about a factor analysis."""

    def column_lines(self, outline: dict[str, Any], source: Source) -> list[str]:
        said = input_lines(outline, source)
        for name, kind in list(outline["left_out"].items())[:SHOWN]:
            why = reason(source.about[name])
            said.append(column_line(name, f"left out: a {kind} is no number  ({why})"))
        return said

    def progress(self, record: Record) -> str:
        rows, total = record.curve
        return f"log density {total[-1] / rows[-1]:.4f}" if len(rows) else ""

    def fitted_lines(self, summary: dict[str, Any]) -> list[str]:
        return [
            f"{_size(summary)}: {summary['rows']:,} rows, {speed_text(summary)}",
            f"the factors hold {summary['explained']:.1%} of the columns' variance",
        ]

    def summary_lines(self, summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
        said = [f"{summary['name']}: {_size(summary)} ({summary['method']})"]
        said += fact_lines(_facts(summary))
        for factor in summary["factors"]:
            share, sd = f"{factor['share']:.1%} of the variance", f"scores ± {factor['sd']:.3f}"
            strong = (f"{name[:28]} {value:+.2f}" for name, value in factor["loadings"][:STRONGEST])
            said += [f"{factor['name']}: {share}, {sd}", f"  {', '.join(strong)}"]
        if summary["noise"]:
            said.append("share of noise, the largest first")
        said += [f"  {name[:36]:<36} {share:7.1%}" for name, share in summary["noise"][:most]]
        return [*said, *note_lines(summary)]


def _size(summary: dict[str, Any]) -> str:
    """The number of factors and columns, as a phrase."""
    columns = counted(len(summary["columns"]), "column")
    return f"{counted(summary['components'], 'factor')} of {columns}"


def _facts(summary: dict[str, Any]) -> Facts:
    facts = [("rows", f"{summary['rows']:,}")]
    if summary["explained"] is not None:
        facts.append(("explained", f"{summary['explained']:.1%} of the columns' variance"))
    if summary["log_density"] is not None:
        facts.append(("log density", f"{summary['log_density']:.6f} a row, before it was learned"))
    if summary["sample"] is not None:
        low = ", ".join(f"{q:.2f} ({p:.1%})" for p, q in summary["sample"]["quantiles"])
        facts.append(("quantiles", f"{low} of {summary['sample']['rows']:,} rows' log densities"))
    return [*facts, ("seconds", f"{summary['seconds']:.1f}")]
