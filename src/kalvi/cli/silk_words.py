"""What the commands say of a factorised matrix to a person."""

from typing import Any

import click

from kalvi.cli.console import module
from kalvi.cli.words import say_summary as say_summary


def say_fitted(summary: dict[str, Any], out: str) -> None:
    """What came of a fit."""
    size = module("kalvi.tabular.summary_text").matrix_size(summary)
    click.echo(f"{size}, {summary['sweeps']} sweeps, {summary['seconds']:.1f} s")
    click.echo(f"bound on the log evidence {summary['bound']:.3f}")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")
