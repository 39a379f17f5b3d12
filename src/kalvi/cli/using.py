"""`kalvi predict`, `kalvi merge`, `kalvi inspect`, `kalvi report`: what models are for."""

import sys
from pathlib import Path
from typing import Any

import click

from kalvi.cli import words
from kalvi.cli.console import compiled_once, module, refusing, row_bar, say_json, written
from kalvi.cli.learning import AGAIN, FORMAT, JSON, QUIET, WRITTEN
from kalvi.cli.outputs import check_model, check_page, check_table, require
from kalvi.cli.voices import voice
from kalvi.readers import files

FORCE = click.option("--force", is_flag=True, help="Replace a file that is there.")
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
@FORCE
@click.option("--as", "written_as", multiple=True, metavar="NAME=TYPE", help=WRITTEN)
@FORMAT
@JSON
@QUIET
def predict(
    model: Path,
    data: tuple[str, ...],
    out: Path | None,
    keep: tuple[str, ...],
    level: float,
    force: bool,
    written_as: tuple[str, ...],
    form: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the rows of DATA, in their order: CSV on standard output, or --out FILE.

    Labels: the class predicted, and for each class its probability, p_CLASS, with the standard deviation
    and the interval of that probability, sd_CLASS, lower_CLASS, upper_CLASS. Numbers and counts: mean, sd,
    lower, upper of a new observation. Factors: the score of each, and the log density of the row. Matrices
    of kalvi silk need no DATA: the probability of every entry, a line for each row of the matrix.

    \b
    kalvi predict flights.kalvi july.parquet --keep flight > july.csv
    kalvi predict flights.kalvi july.parquet --out july.parquet --level 0.9
    kalvi predict votes.kalvi > probabilities.csv
    """
    with refusing():
        require(model)
        inputs = files.expand(data) if data else []
        if out is not None:
            check_table(out, [model, *inputs], force=force)
        if as_json and out is None:
            raise ValueError(
                "--json says what was predicted where; give the predictions a file with --out."
            )
        compiled_once()
        tables = module("kalvi.tabular.predict")
        held = module("kalvi.tabular.learn").load_model(model)
        types, _ = module("kalvi.tabular.opening").words_of(None, written_as)
        source = tables.opened(held, data, form, types, keep)
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
        words.say_notes(source)
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
@AGAIN
@JSON
@QUIET
def merge(
    models: tuple[Path, ...], out: Path, force: bool, again: bool, as_json: bool, quiet: bool
) -> None:
    """Combine models of shards of the data into one of all.

    The shards need the same units: fit the first, and the others like it. Models that have learned the
    same file are refused: its rows would count twice.

    \b
    kalvi fit a.csv -t y -o a.kalvi
    kalvi fit b.csv -t y --like a.kalvi -o b.kalvi
    kalvi merge a.kalvi b.kalvi -o all.kalvi
    """
    with refusing():
        require(*models)
        check_model(out, models, force=force)
        learning = module("kalvi.tabular.learn")
        held = [learning.load_model(path) for path in models]
        names = [str(path) for path in models]
        merged = module("kalvi.tabular.merge").merged(held, names, again=again)
        learning.save_model(out, merged)
        summary = module("kalvi.tabular.summary").summary(merged, out.name)
    if as_json:
        say_json(summary | {"out": str(out)})
    elif not quiet:
        counted = module("kalvi.tabular.summary_text").counted
        click.echo(f"{counted(len(held), 'model')}, {counted(summary['rows'], 'row')}")
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
        require(model)
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
@FORCE
@JSON
@QUIET
def report(
    model: Path, out: Path | None, no_diagnosis: bool, force: bool, as_json: bool, quiet: bool
) -> None:
    """Write one HTML page about MODEL, complete in itself.

    Learning curve, calibration, scores beside baselines, coefficients, data, fit quality, settings; of
    Gaussian processes the kernel, of networks the layers, of factors the loadings, of a matrix its factors.
    Rows of the data are shown only of a model that was fitted with --keep-rows.
    """
    with refusing():
        require(model)
        out = out or model.with_suffix(".html")
        check_page(out, [model], force=force)
        about = _summary(model, not no_diagnosis)
        page = module("kalvi.tabular.report").page(about)
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
        try:
            return tables.write(pieces, sys.stdout.buffer, ".csv")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), "standard output") from error
    with written(out) as file:
        return tables.write(pieces, file, out.suffix)
