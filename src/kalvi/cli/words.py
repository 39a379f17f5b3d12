"""What the commands say to a person."""

from typing import Any

import click

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
    click.echo(f"{_count(len(source.files), 'file')}, types by the first {n:,} rows:", err=True)
    columns = model.encoder.described()
    for column in columns[:SHOWN]:
        click.echo(f"  {column['name'][:28]:<28} {_kind(column)}", err=True)
    if len(columns) > SHOWN:
        click.echo(f"  ... and {len(columns) - SHOWN} columns more", err=True)


def say_columns(model: Any, source: Any) -> None:
    """The types that were found in the first rows, and what is made of them."""
    say_kinds(model, source)
    target = model.target.name
    classes = model.choices.classes or getattr(model.target, "labels", ())
    named = f" ({', '.join(classes[:6])}{' ...' if len(classes) > 6 else ''})" if classes else ""
    click.echo(f"  {target[:28]:<28} the target: {NAMES[model.model]}{named}", err=True)


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
        f"{NAMES[summary['model']]} of {summary['target']}: {summary['rows']:,} rows, "
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
    click.secho(f"{summary['name']}: {NAMES[summary['model']]} of {summary['target']}", bold=True)
    rank = summary["rank"]
    shape = "full covariance" if rank is None else f"rank {rank}"
    facts = [("rows", f"{summary['rows']:,}")]
    if summary["parameters"]:
        facts.append(("parameters", f"{summary['parameters']:,} ({shape})"))
    if summary["classes"]:
        facts.insert(0, ("classes", ", ".join(summary["classes"])))
    named = {"log_evidence": "log evidence", "log_loss": "log loss", "noise_scale": "noise scale"}
    for name, form in (("log_evidence", ",.2f"), ("log_loss", ".6f"), ("noise_scale", ".6g")):
        if summary[name] is not None:
            progressive = " (progressive: each row predicted before it is learned)"
            said = progressive if name == "log_loss" else ""
            facts.append((named[name], f"{summary[name]:{form}}{said}"))
    facts += [*_reached(summary.get("reached")), ("seconds", f"{summary['seconds']:.1f}")]
    if summary["diagnosis"]:
        said = summary["diagnosis"]
        verdict = click.style(said["verdict"], fg=VERDICTS.get(said["verdict"]))
        off = f", means up to {said['shift']:.2g} sd off" if "shift" in said else ""
        facts.append(("Pareto k", f"{said['pareto_k']:.2f} ({verdict}){off}"))
        if said.get("one_pass"):
            facts.append(("one pass", said["one_pass"]["text"]))
    for name, value in facts:
        click.echo(f"  {name:<14}{value}")
    click.echo("columns")
    for column in summary["columns"][:SHOWN]:
        click.echo(f"  {column['name'][:28]:<28} {_kind(column)}")
    say_effects(summary["effects"], most)
    for warning in summary["warnings"]:
        click.echo(f"note: {warning}")


def _reached(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The bound on the log evidence, if it was climbed, and where the posterior is."""
    if not found:
        return []
    bound = [("bound", f"{found['bound']:,.2f} on the log evidence")] if "bound" in found else []
    return [*bound, ("posterior", found["text"])]


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
    return f"{summary['parameters']:,} parameters, " if summary["parameters"] else ""


def _kind(column: dict[str, Any]) -> str:
    """A column in a few words."""
    missing = f", {column['missing']:,} missing" if column.get("missing") else ""
    if column["kind"] == "category":
        if column["hashed"]:
            return f"category, hashed into {2 ** column['bits']:,} places{missing}"
        common = ", ".join(str(level)[:16] for level, _ in column["commonest"][:4])
        more = " ..." if column["levels"] > 4 else ""
        return f"category  {_count(column['levels'], 'level')}: {common}{more}{missing}"
    if column["kind"] in ("vector", "sparse"):
        width = column.get("width")
        return f"{column['kind']}" + (f" of {width:,} numbers" if width else "") + missing
    centre, scale = column.get("mean", column.get("centre")), column.get("std", column.get("scale"))
    law = "" if centre is None else f"  {centre:.4g} ± {scale:.3g}"
    return f"{column['kind']}{law}{missing}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
