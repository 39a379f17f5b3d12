"""What the commands say of a factorised matrix to a person."""

from typing import Any

import click


def say_fitted(summary: dict[str, Any], out: str) -> None:
    """What came of a fit."""
    click.echo(f"{_size(summary)}, {summary['sweeps']} sweeps, {summary['seconds']:.1f} s")
    click.echo(f"bound on the log evidence {summary['bound']:.3f}")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")


def say_summary(summary: dict[str, Any], most: int = 15) -> None:
    """All about a factorised matrix, for `kalvi inspect`."""
    click.secho(f"{summary['name']}: {_size(summary)}", bold=True)
    share = summary["observed"] / max(summary["rows"] * summary["cols"], 1)
    converged = "" if summary["converged"] else ", not converged"
    for name, value in (
        ("entries", f"{summary['observed']:,} observed ({share:.1%})"),
        ("ones", f"{summary['ones'] / max(summary['observed'], 1):.1%}"),
        ("rows along", _along(summary["row_axis"])),
        ("columns along", _along(summary["col_axis"])),
        ("bound", f"{summary['bound']:.3f} ({summary['bound_per_entry']:.6f} an entry)"),
        ("sweeps", f"{summary['sweeps']}{converged}"),
        ("seconds", f"{summary['seconds']:.1f}"),
    ):
        click.echo(f"  {name:<14}{value}")
    click.echo("factors: share of the logits' mean square, correlation lengths of rows and columns")
    for factor in summary["factors"][:most]:
        rows, cols = (
            _length(factor[f"{side}_length"], summary[f"{side}_axis"]) for side in ("row", "col")
        )
        click.echo(f"  {factor['name']:<12} {factor['share']:7.1%}   rows {rows}, columns {cols}")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}")


def _size(summary: dict[str, Any]) -> str:
    n = summary["n_factors"]
    shape = f"{summary['rows']:,} × {summary['cols']:,} matrix"
    return f"{n} factor{'' if n == 1 else 's'} of a {shape}"


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
