"""`kalvi inspect`, `kalvi report` and `kalvi merge`: descriptions of a model, and one model of several."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli import console, outputs, parameters

VERDICTS = {"good": "green", "usable": "yellow", "poor": "red"}
"""The colour of each verdict on a fit."""


@click.command()
@click.argument(
    "models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL..."
)
@click.option(
    "--out", "-o", required=True, type=click.Path(path_type=Path), help="The merged model."
)
@parameters.REPLACE_MODEL
@parameters.AGAIN
@parameters.JSON
@parameters.QUIET
def merge(
    models: tuple[Path, ...], out: Path, force: bool, again: bool, as_json: bool, quiet: bool
) -> None:
    """Merge models that were fitted to shards of the data into one model of all rows.

    The shards need the same units: fit the first, and the others like it. Models that have learned the
    same file are refused: its rows would count twice.

    \b
    kalvi fit a.csv -t y -o a.kalvi
    kalvi fit b.csv -t y --like a.kalvi -o b.kalvi
    kalvi merge a.kalvi b.kalvi -o all.kalvi
    """
    with console.errors_as_sentences():
        outputs.require(*models)
        outputs.check_model_path(out, models, force=force)
        with console.late_imports():
            from kalvi.readers.errors import counted
            from kalvi.tabular import learn
            from kalvi.tabular.merge import merge_table_models
        held = [learn.load_model(path) for path in models]
        whole = merge_table_models(held, [str(path) for path in models], again=again)
        learn.save_model(out, whole)
        summary = whole.describe(out.name)
    if as_json:
        console.print_json(summary | {"out": str(out)})
    elif not quiet:
        click.echo(f"{counted(len(held), 'model')}, {counted(summary['rows'], 'row')}")
        click.echo(f"wrote {out}")


@click.command(short_help="Describe MODEL, in the terminal or as JSON.")
@parameters.MODEL
@click.option(
    "--diagnose",
    is_flag=True,
    help="Also say how far the Gaussian is from the posterior (PSIS), found by the fit or from kept rows.",
)
@click.option(
    "--effects", default=15, show_default=True, type=click.IntRange(0), help="How many to list."
)
@parameters.JSON
def inspect(model: Path, diagnose: bool, effects: int, as_json: bool) -> None:
    """Describe MODEL: columns, rows, evidence, the strongest effects with credible intervals.

    For factors: their strongest columns, and the noise in each. For a matrix: how smooth its factors are.
    """
    with console.errors_as_sentences():
        outputs.require(model)
        about = _summary(model, diagnose)
    if diagnose and about.get("diagnosis_absent"):
        about["warnings"].append(about["diagnosis_absent"])
    if as_json:
        console.print_json(about)
    else:
        with console.late_imports():
            from kalvi.tabular.renderers import renderer_of
        first, *others = renderer_of(about["model"]).summary_lines(about, effects, _painted)
        click.secho(first, bold=True)
        console.print_lines(others)


@click.command()
@parameters.MODEL
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The page; MODEL.html if not given."
)
@click.option(
    "--no-diagnosis",
    is_flag=True,
    help="Skip the diagnosis from kept rows, which takes some seconds.",
)
@parameters.REPLACE_FILE
@parameters.JSON
@parameters.QUIET
def report(
    model: Path, out: Path | None, no_diagnosis: bool, force: bool, as_json: bool, quiet: bool
) -> None:
    """Write a self-contained HTML page about MODEL.

    It has the learning curve, calibration, scores beside baselines, coefficients, data, the quality of the
    fit and the settings; the kernel of a Gaussian process, the layers of a network, the loadings of a
    factor analysis, and the factors of a matrix. Rows of the data are shown only if the model was fitted
    with --keep-rows.
    """
    with console.errors_as_sentences():
        outputs.require(model)
        out = out or model.with_suffix(".html")
        outputs.check_page_path(out, [model], force=force)
        about = _summary(model, not no_diagnosis)
        with console.late_imports():
            from kalvi.tabular.report import page
        with console.complete_file(out, "w") as file:
            file.write(page(about))
    if as_json:
        console.print_json({"out": str(out)})
    elif not quiet:
        click.echo(f"wrote {out}")


def _summary(path: Path, diagnose: bool) -> dict[str, Any]:
    with console.late_imports():
        from kalvi.tabular import integrity, learn
    held = learn.load_model(path)
    unfinished = learn.find_unfinished_run(path)
    with integrity.errors_as_damage(path):
        found = held.describe(path.name, diagnose=diagnose)
    if unfinished is not None:
        note = f"a run over more rows is not finished: kalvi resume {path}"
        found["warnings"].append(note)
    return found


def _painted(verdict: str) -> str:
    return click.style(verdict, fg=VERDICTS.get(verdict))
