"""What the commands say to a person."""

from typing import Any

import click

from kalvi.cli.console import module

SHOWN = 12
VERDICTS = {"good": "green", "usable": "yellow", "poor": "red"}


def say_kinds(model: Any, source: Any) -> None:
    """The types that were found in the first rows."""
    n = source.sample.num_rows
    files, first = _count(len(source.files), "file"), _count(n, "row")
    click.echo(f"{files}, types by the first {first}:", err=True)
    columns, hidden = model.encoder.described(), 0
    for i, column in enumerate(columns):
        about = source.about[column["name"]]
        if i < SHOWN or about.notes:
            said = f"{_text().column_text(column)}  ({_why(about, model)})"
            click.echo(f"  {column['name'][:28]:<28} {said}", err=True)
        else:
            hidden += 1
    if hidden:
        click.echo(f"  ... and {_count(hidden, 'more column')}", err=True)


def say_columns(model: Any, source: Any) -> None:
    """The types that were found in the first rows, and what is made of them."""
    say_kinds(model, source)
    target = model.target.name
    classes = model.choices.classes or getattr(model.target, "labels", ())
    named = f" ({', '.join(classes[:6])}{' ...' if len(classes) > 6 else ''})" if classes else ""
    why = _why(source.about[target], model)
    kind = _text().NAMES[model.model]
    click.echo(f"  {target[:28]:<28} the target: {kind}{named}  ({why})", err=True)


def say_notes(source: Any) -> None:
    """Entries that were not of the kind of their column, if there were some."""
    for note in source.notes() if source is not None else ():
        click.echo(f"note: {note}", err=True)


def reasons(source: Any) -> dict[str, str]:
    """Why each column was taken for what it is, for scripts."""
    return {name: _why(about) for name, about in source.about.items()}


def _why(about: Any, model: Any = None) -> str:
    asked = about.why.startswith("asked for")
    known = model is not None and model.record.rows and asked  # what a model has learned stays so
    return "; ".join(("as the model knows it" if known else about.why, *about.notes))


def loss(model: Any) -> str:
    """The progressive log loss, for the progress bar."""
    curve = model.record.curve
    if not len(curve.rows):
        return ""
    return f"log loss {-curve.total[-1] / curve.rows[-1]:.4f}"


def say_fitted(summary: dict[str, Any], out: str) -> None:
    """What came of a pass."""
    speed = summary["rows"] / max(summary["seconds"], 1e-9)
    click.echo(
        f"{_text().NAMES[summary['model']]} of {summary['target']}: {_count(summary['rows'], 'row')}, "
        f"{_size(summary)}{summary['seconds']:.1f} s ({speed:,.0f} rows/s)"
    )
    if summary["log_loss"] is not None:
        click.echo(f"progressive log loss {summary['log_loss']:.6f} nats a row")
    if summary.get("reached"):
        click.echo(f"posterior: {summary['reached']['text']}")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")


def say_summary(summary: dict[str, Any], most: int = 15) -> None:
    """All about a model, for `kalvi inspect`."""
    first, *others = _text().lines(summary, most, _painted)
    click.secho(first, bold=True)
    for line in others:
        click.echo(line)


def _painted(verdict: str) -> str:
    return click.style(verdict, fg=VERDICTS.get(verdict))


def _text() -> Any:
    return module("kalvi.tabular.summary_text")


def _size(summary: dict[str, Any]) -> str:
    n = summary["parameters"]
    return f"{_count(n, 'parameter')}, " if n else ""


def _count(n: int, noun: str) -> str:
    return _text().counted(n, noun)
