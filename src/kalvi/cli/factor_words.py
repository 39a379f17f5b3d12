"""What the commands say of factors to a person."""

from typing import Any

import click

from kalvi.cli.words import SHOWN, say_kinds

STRONGEST = 6
"""Columns named of a factor."""


def say_columns(model: Any, source: Any) -> None:
    """The types that were found in the first rows, and what is left out."""
    say_kinds(model, source)
    for name, kind in model.left_out[:SHOWN]:
        click.echo(f"  {name[:28]:<28} left out: a {kind} is no number", err=True)


def loss(model: Any) -> str:
    """The progressive log density, for the progress bar."""
    curve = model.record.curve
    return f"log density {curve.total[-1] / curve.rows[-1]:.4f}" if len(curve.rows) else ""


def say_fitted(summary: dict[str, Any], out: str) -> None:
    """What came of a pass."""
    speed = summary["rows"] / max(summary["seconds"], 1e-9)
    click.echo(
        f"{_size(summary)}: {summary['rows']:,} rows, {summary['seconds']:.1f} s ({speed:,.0f} rows/s)"
    )
    click.echo(f"the factors hold {summary['explained']:.1%} of the columns' variance")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")


def say_summary(summary: dict[str, Any], most: int = 15) -> None:
    """All about a factor analysis, for `kalvi inspect`."""
    click.secho(f"{summary['name']}: {_size(summary)} ({summary['method']})", bold=True)
    for name, value in _facts(summary):
        click.echo(f"  {name:<14}{value}")
    for factor in summary["factors"]:
        click.echo(
            f"{factor['name']}: {factor['share']:.1%} of the variance, scores ± {factor['sd']:.3f}"
        )
        strong = (f"{name[:28]} {value:+.2f}" for name, value in factor["loadings"][:STRONGEST])
        click.echo(f"  {', '.join(strong)}")
    if summary["noise"]:
        click.echo("share of noise, the largest first")
    for name, share in summary["noise"][:most]:
        click.echo(f"  {name[:36]:<36} {share:7.1%}")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}")


def _size(summary: dict[str, Any]) -> str:
    many = ("factor", summary["components"]), ("column", len(summary["columns"]))
    return " of ".join(f"{n} {noun}{'' if n == 1 else 's'}" for noun, n in many)


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("rows", f"{summary['rows']:,}")]
    if summary["explained"] is not None:
        facts.append(("explained", f"{summary['explained']:.1%} of the columns' variance"))
    if summary["log_density"] is not None:
        facts.append(("log density", f"{summary['log_density']:.6f} a row, before it was learned"))
    if summary["sample"] is not None:
        low = ", ".join(f"{q:.2f} ({p:.1%})" for p, q in summary["sample"]["quantiles"])
        facts.append(("quantiles", f"{low} of {summary['sample']['rows']:,} rows' log densities"))
    return [*facts, ("seconds", f"{summary['seconds']:.1f}")]
