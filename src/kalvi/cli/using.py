"""`kalvi predict`, `kalvi merge`, `kalvi inspect`, `kalvi report`: what models are for."""

import sys
from pathlib import Path
from typing import Any

import click

from kalvi.cli.console import compiled_once, module, refusing, row_bar, say_json, written
from kalvi.cli.learning import FORMAT, JSON, QUIET, check_place
from kalvi.cli.voices import voice

MODEL = click.argument("model", type=click.Path(path_type=Path))


@click.command(short_help="Predict the rows of DATA, with intervals.")
@MODEL
@click.argument("data", nargs=-1, metavar="[DATA]...")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="CSV, .parquet or .jsonl file.")
@click.option("--keep", "-k", multiple=True, help="Columns of DATA to carry over.")
@click.option(
    "--level",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Of the intervals.",
)
@FORMAT
@JSON
@QUIET
def predict(
    model: Path,
    data: tuple[str, ...],
    out: Path | None,
    keep: tuple[str, ...],
    level: float,
    form: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the rows of DATA, in their order: CSV on standard output, or --out FILE.

    Labels: predicted, probability, sd, lower, upper, and a column for each class if there are several; the
    interval is of the probability. Numbers and counts: mean, sd, lower, upper of a new observation.
    Factors: the score of each, and the log density of the row. Matrices of kalvi silk need no DATA: the
    probability of every entry, a line for each row of the matrix.

    \b
    kalvi predict flights.kalvi july.parquet --keep flight > july.csv
    kalvi predict flights.kalvi july.parquet --out july.parquet --level 0.9
    kalvi predict votes.kalvi > probabilities.csv
    """
    with refusing():
        if out is not None:
            check_place(out)
        if as_json and out is None:
            raise ValueError(
                "--json says what was predicted where; give the predictions a file with --out."
            )
        compiled_once()
        tables = module("kalvi.tabular.predict")
        held = module("kalvi.tabular.learn").load_model(model)
        source = tables.opened(held, data, form)
        silent = quiet or as_json or (out is None and sys.stdout.isatty())
        total, guarded = source.n_rows if source else None, module("kalvi.tabular.valid").guarded
        with row_bar(silent, total) as bar, guarded(model):
            pieces = tables.predictions(held, source, keep=keep, level=level, tell=bar)
            outcome = _write(tables, pieces, out)
        if source is not None:
            source.close()
    if as_json:
        say_json(outcome.told() | {"out": str(out)})
    elif not quiet:
        for line in outcome.lines():
            click.echo(line, err=True)
        if out is not None:
            click.echo(f"wrote {out}", err=True)


@click.command()
@click.argument(
    "models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL..."
)
@click.option(
    "--out", "-o", required=True, type=click.Path(path_type=Path), help="The merged model."
)
@click.option("--force", is_flag=True, help="Replace a model that is there.")
@JSON
@QUIET
def merge(models: tuple[Path, ...], out: Path, force: bool, as_json: bool, quiet: bool) -> None:
    """Combine models of shards of the data into one of all.

    The shards need the same units: fit the first, and the others like it.

    \b
    kalvi fit a.csv -t y -o a.kalvi
    kalvi fit b.csv -t y --like a.kalvi -o b.kalvi
    kalvi merge a.kalvi b.kalvi -o all.kalvi
    """
    with refusing():
        check_place(out)
        if out.exists() and not force:
            raise ValueError(f"{out} exists; choose another name, or replace it with --force.")
        learning = module("kalvi.tabular.learn")
        held = [learning.load_model(path) for path in models]
        merged = module("kalvi.tabular.merge").merged(held, [str(path) for path in models])
        learning.save_model(out, merged)
        summary = module("kalvi.tabular.summary").summary(merged, out.name)
    if as_json:
        say_json(summary | {"out": str(out)})
    elif not quiet:
        click.echo(f"{len(held)} models, {summary['rows']:,} rows")
        click.echo(f"wrote {out}")


@click.command(short_help="What MODEL is, in the terminal or as JSON.")
@MODEL
@click.option(
    "--diagnose",
    is_flag=True,
    help="Also how far the Gaussian is from the posterior (PSIS): as the fit found, or from kept rows.",
)
@click.option(
    "--effects", default=15, show_default=True, type=click.IntRange(0), help="How many to list."
)
@JSON
def inspect(model: Path, diagnose: bool, effects: int, as_json: bool) -> None:
    """What MODEL is: columns, rows, evidence, the strongest effects with credible intervals.

    Of factors: their strongest columns, and the noise in each; of a matrix: how smooth its factors are.
    """
    with refusing():
        about = _summary(model, diagnose)
    if diagnose and about.get("diagnosis_absent"):
        about["warnings"].append(about["diagnosis_absent"])
    if as_json:
        say_json(about)
    else:
        voice(about["model"]).say_summary(about, effects)


@click.command()
@MODEL
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The page; MODEL.html if not given."
)
@click.option(
    "--no-diagnosis", is_flag=True, help="Make no diagnosis from kept rows, which takes seconds."
)
@JSON
@QUIET
def report(model: Path, out: Path | None, no_diagnosis: bool, as_json: bool, quiet: bool) -> None:
    """Write one HTML page about MODEL, complete in itself.

    Learning curve, calibration, scores beside baselines, coefficients, data, fit quality, settings; of
    Gaussian processes the kernel, of networks the layers, of factors the loadings, of a matrix its factors.
    Rows of the data are shown only of a model that was fitted with --keep-rows.
    """
    with refusing():
        check_place(out or model)
        about = _summary(model, not no_diagnosis)
        page = module("kalvi.tabular.report").page(about)
        out = out or model.with_suffix(".html")
        with written(out, "w") as file:
            file.write(page)
    if as_json:
        say_json({"out": str(out)})
    elif not quiet:
        click.echo(f"wrote {out}")


def _summary(path: Path, diagnose: bool) -> dict[str, Any]:
    learning, summaries = module("kalvi.tabular.learn"), module("kalvi.tabular.summary")
    held = learning.load_model(path)
    unfinished = learning.unfinished(path)
    compiled_once()
    with module("kalvi.tabular.valid").guarded(path):
        found = summaries.summary(held, path.name, summaries.diagnosed(held) if diagnose else None)
    if unfinished is not None:
        note = f"a run over more rows is not finished: kalvi resume {path}"
        found["warnings"].append(note)
    return found


def _write(tables: Any, pieces: Any, out: Path | None) -> Any:
    """The predictions on standard output, or in a file that appears when it is whole."""
    if out is None:
        return tables.write(pieces, sys.stdout.buffer, ".csv")
    with written(out) as file:
        return tables.write(pieces, file, out.suffix)
