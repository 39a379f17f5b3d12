"""`kalvi predict`: predictions of the rows of files, with intervals."""

import sys
from pathlib import Path
from typing import Any

import click

from kalvi.cli.console import (
    loading,
    refusing,
    row_bar,
    say_json,
    say_lines,
    say_notes,
    written,
)
from kalvi.cli.options import FORMAT, JSON, MODEL, QUIET, REPLACE_FILE, WRITTEN
from kalvi.cli.outputs import check_table_path, require
from kalvi.readers import files


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
    help="The level of the intervals.",
)
@REPLACE_FILE
@click.option("--as", "written_as", multiple=True, metavar="NAME=TYPE", help=WRITTEN)
@FORMAT
@JSON
@QUIET
def predict(
    model: Path, data: tuple[str, ...], out: Path | None, force: bool, **options: Any
) -> None:
    """Predict the rows of DATA, in their order: CSV on standard output, or --out FILE.

    Labels: the likeliest class and, for each class, its probability p_CLASS with the standard deviation
    sd_CLASS and the interval lower_CLASS, upper_CLASS of that probability. Numbers and counts: mean, sd,
    lower and upper of a new observation. Factors: their scores, and the log density of the row. Matrices of
    kalvi silk need no DATA: the probability of every entry, with a line for each row of the matrix.

    \b
    kalvi predict flights.kalvi july.parquet --keep flight > july.csv
    kalvi predict flights.kalvi july.parquet --out july.parquet --level 0.9
    kalvi predict votes.kalvi > probabilities.csv
    """
    with refusing():
        require(model)
        inputs = files.expand(data) if data else []
        if out is not None:
            check_table_path(out, [model, *inputs], force=force)
        if options["as_json"] and out is None:
            raise ValueError(
                "--json says what was predicted where; give the predictions a file with --out."
            )
        outcome, notes = _predict(model, data, out, options)
    if options["as_json"]:
        say_json(outcome.as_json() | {"out": str(out)})
    elif not options["quiet"]:
        say_lines(outcome.as_lines(), err=True)
        say_notes(notes)
        if out is not None:
            click.echo(f"wrote {out}", err=True)


def _predict(
    path: Path, data: tuple[str, ...], out: Path | None, options: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Write all predictions; return their outcome, and notes on entries of the data."""
    with loading():
        from kalvi.tabular import integrity, learn, sources
        from kalvi.tabular.predictions import PredictOptions
    model = learn.load_model(path)
    types, _ = sources.column_words(None, options["written_as"])
    how = PredictOptions(options["form"], types, options["keep"], options["level"])
    source = model.open_to_predict(data, how)
    silent = options["quiet"] or options["as_json"] or (out is None and sys.stdout.isatty())
    total = source.n_rows if source else None
    with row_bar(silent, total) as bar, integrity.guarded(path):
        outcome = _write(model.predictions(source, how._replace(tell=bar)), out)
    if source is None:
        return outcome, []
    source.close()
    return outcome, list(source.notes())


def _write(pieces: Any, out: Path | None) -> Any:
    """Write the predictions on standard output, or in a file that appears only when complete."""
    with loading():
        from kalvi.tabular import predictions
    if out is None:
        try:
            return predictions.write_predictions(pieces, sys.stdout.buffer, ".csv")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), "standard output") from error
    with written(out) as file:
        return predictions.write_predictions(pieces, file, out.suffix)
