"""What the commands say of factors to a person."""

from typing import Any

import click

from kalvi.cli.console import module
from kalvi.cli.words import SHOWN, say_kinds
from kalvi.cli.words import say_summary as say_summary


def say_columns(model: Any, source: Any) -> None:
    """The types that were found in the first rows, and what is left out."""
    say_kinds(model, source)
    for name, kind in model.left_out[:SHOWN]:
        why = "; ".join((source.about[name].why, *source.about[name].notes))
        click.echo(f"  {name[:28]:<28} left out: a {kind} is no number  ({why})", err=True)


def loss(model: Any) -> str:
    """The progressive log density, for the progress bar."""
    curve = model.record.curve
    return f"log density {curve.total[-1] / curve.rows[-1]:.4f}" if len(curve.rows) else ""


def say_fitted(summary: dict[str, Any], out: str) -> None:
    """What came of a pass."""
    speed = summary["rows"] / max(summary["seconds"], 1e-9)
    size = module("kalvi.tabular.summary_text").factor_size(summary)
    rows = f"{summary['rows']:,} rows, {summary['seconds']:.1f} s ({speed:,.0f} rows/s)"
    click.echo(f"{size}: {rows}")
    click.echo(f"the factors hold {summary['explained']:.1%} of the columns' variance")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")
