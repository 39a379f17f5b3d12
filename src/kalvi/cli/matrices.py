"""`kalvi factor`, `kalvi silk`: tables without a target."""

import click


@click.command()
def factor() -> None:
    """Factor analysis."""


@click.command()
def silk() -> None:
    """Binary matrices."""
