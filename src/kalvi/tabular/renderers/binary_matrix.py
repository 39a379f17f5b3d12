"""Text about a factorised binary matrix."""

from typing import Any

from kalvi.readers.errors import counted
from kalvi.tabular.renderers.text import Facts, Paint, fact_lines, note_lines


class MatrixRenderer:
    """Text about the factors of a matrix, which is learned in one piece."""

    def fitted_lines(self, summary: dict[str, Any]) -> list[str]:
        return [
            f"{_size(summary)}, {summary['sweeps']} sweeps, {summary['seconds']:.1f} s",
            f"bound on the log evidence {summary['bound']:.3f}",
        ]

    def summary_lines(self, summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
        head = "factors: share of the logits' mean square, correlation lengths of rows and columns"
        said = [f"{summary['name']}: {_size(summary)}", *fact_lines(_facts(summary)), head]
        for factor in summary["factors"][:most]:
            rows, cols = (
                _length(factor[f"{side}_length"], summary[f"{side}_axis"])
                for side in ("row", "col")
            )
            lengths = f"rows {rows}, columns {cols}"
            said.append(f"  {factor['name']:<12} {factor['share']:7.1%}   {lengths}")
        return [*said, *note_lines(summary)]


def _size(summary: dict[str, Any]) -> str:
    """The number of factors and the size of the matrix, as a phrase."""
    shape = f"{summary['rows']:,} × {summary['cols']:,} matrix"
    return f"{counted(summary['n_factors'], 'factor')} of a {shape}"


def _facts(summary: dict[str, Any]) -> Facts:
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
