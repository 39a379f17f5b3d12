"""What the commands say to a person."""

from typing import Any

import click

from kalvi.cli.console import module

NAMES = {
    "logistic": "logistic regression",
    "linear": "linear regression",
    "poisson": "Poisson regression",
    "gp": "Gaussian process",
    "neural": "neural network",
}
SHOWN = 12
HAS_PAGE = True
VERDICTS = {"good": "green", "usable": "yellow", "poor": "red"}


def say_kinds(model: Any, source: Any) -> None:
    """The types that were found in the first rows."""
    n = source.sample.num_rows
    click.echo(
        f"{_count(len(source.files), 'file')}, types by the first {_count(n, 'row')}:", err=True
    )
    columns, hidden = model.encoder.described(), 0
    for i, column in enumerate(columns):
        about = source.about[column["name"]]
        if i < SHOWN or about.notes:
            said = f"{_kind(column)}  ({_why(about)})"
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
    why = _why(source.about[target])
    click.echo(f"  {target[:28]:<28} the target: {NAMES[model.model]}{named}  ({why})", err=True)


def say_notes(source: Any) -> None:
    """Entries that were not of the kind of their column, if there were some."""
    for note in source.notes() if source is not None else ():
        click.echo(f"note: {note}", err=True)


def reasons(source: Any) -> dict[str, str]:
    """Why each column was taken for what it is, for scripts."""
    return {name: _why(about) for name, about in source.about.items()}


def _why(about: Any) -> str:
    return "; ".join((about.why, *about.notes))


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
        f"{NAMES[summary['model']]} of {summary['target']}: {_count(summary['rows'], 'row')}, "
        f"{_size(summary)}{summary['seconds']:.1f} s ({speed:,.0f} rows/s)"
    )
    if summary["log_loss"] is not None:
        click.echo(f"progressive log loss {summary['log_loss']:.6f} nats a row")
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}", err=True)
    click.echo(f"wrote {out}")


def say_summary(summary: dict[str, Any], most: int = 15) -> None:
    """All about a model, for `kalvi inspect`."""
    click.secho(f"{summary['name']}: {NAMES[summary['model']]} of {summary['target']}", bold=True)
    rank = summary["rank"]
    shape = "full covariance" if rank is None else f"rank {rank}"
    facts = [("rows", f"{summary['rows']:,}")]
    if summary["parameters"]:
        facts.append(("parameters", f"{summary['parameters']:,} ({shape})"))
    if summary["classes"]:
        facts.insert(0, ("classes", ", ".join(summary["classes"])))
    for name, form in (("log_evidence", ",.2f"), ("log_loss", ".6f"), ("noise_scale", ".6g")):
        if summary[name] is not None:
            facts.append((name.replace("_", " "), f"{summary[name]:{form}}"))
    facts.append(("seconds", f"{summary['seconds']:.1f}"))
    if summary["diagnosis"]:
        said = summary["diagnosis"]
        verdict = click.style(said["verdict"], fg=VERDICTS.get(said["verdict"]))
        facts.append(("Pareto k", f"{said['pareto_k']:.2f} ({verdict})"))
    for name, value in facts:
        click.echo(f"  {name:<14}{value}")
    click.echo("columns")
    for column in summary["columns"][:SHOWN]:
        click.echo(f"  {column['name'][:28]:<28} {_kind(column)}")
    say_effects(summary["effects"], most)
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}")


def say_effects(effects: list[dict[str, Any]], most: int = 15) -> None:
    """The strongest effects with their credible intervals."""
    if not effects:
        return
    click.echo(
        "strongest effects, 95 % credible: numbers per deviation, levels against their column's mean"
    )
    for effect in effects[:most]:
        name = effect["name"] if effect["class"] is None else f"{effect['class']}: {effect['name']}"
        click.echo(
            f"  {name[:36]:<36} {effect['mean']:+9.4f}   [{effect['lower']:+.4f}, {effect['upper']:+.4f}]"
        )


def _size(summary: dict[str, Any]) -> str:
    n = summary["parameters"]
    return f"{_count(n, 'parameter')}, " if n else ""


def _kind(column: dict[str, Any]) -> str:
    """A column in a few words."""
    missing = f", {column['missing']:,} missing" if column.get("missing") else ""
    kind, noun = column["kind"], {"category": "level", "text": "word"}.get(column["kind"])
    if noun is not None:
        if column["hashed"]:
            return f"{kind}, hashed into {2 ** column['bits']:,} places{missing}"
        common = ", ".join(str(level)[:16] for level, _ in column["commonest"][:4])
        n = column[f"{noun}s"]
        return f"{kind}  {_count(n, noun)}: {common}{' ...' if n > 4 else ''}{missing}"
    if column["kind"] in ("vector", "sparse"):
        width = column.get("width")
        return f"{column['kind']}" + (f" of {width:,} numbers" if width else "") + missing
    law = ""
    if "centre" in column:
        scale = 0.0 if column.get("constant") else column["scale"]
        ends = column.get("mean", column["centre"]), column.get("std", scale)
        law = f"  {module('kalvi.columns.numbers').in_words(column['kind'], *ends)}"
    return f"{column['kind']}{law}{missing}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
