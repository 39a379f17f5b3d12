"""`kalvi predict`: predictions of the rows of files, with intervals."""

import sys
from pathlib import Path
from typing import Any

import click

from kalvi.cli import console, outputs, parameters
from kalvi.readers import files


@click.command(short_help="Predict the rows of DATA, with intervals.")
@parameters.MODEL
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
@parameters.REPLACE_FILE
@click.option("--as", "written_as", multiple=True, metavar="NAME=TYPE", help=parameters.WRITTEN)
@parameters.FORMAT
@parameters.JSON
@parameters.QUIET
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
    with console.errors_as_sentences():
        outputs.require(model)
        inputs = files.expand(data) if data else []
        if out is not None:
            outputs.check_table_path(out, [model, *inputs], force=force)
        if options["as_json"] and out is None:
            raise ValueError(
                "--json says what was predicted where; give the predictions a file with --out."
            )
        outcome, notes = _predict(model, data, out, options)
    if options["as_json"]:
        console.print_json(outcome.as_json() | {"out": str(out)})
    elif not options["quiet"]:
        console.print_lines(outcome.as_lines(), err=True)
        console.print_notes(notes)
        if out is not None:
            click.echo(f"wrote {out}", err=True)


def _predict(
    path: Path, data: tuple[str, ...], out: Path | None, options: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Write all predictions; return their outcome, and notes on entries of the data."""
    with console.late_imports():
        from kalvi.tabular import integrity, learn, sources
        from kalvi.tabular.predictions import PredictOptions
    model = learn.load_model(path)
    types, _ = sources.column_words(None, options["written_as"])
    how = PredictOptions(options["form"], types, options["keep"], options["level"])
    source = model.open_to_predict(data, how)
    silent = options["quiet"] or options["as_json"] or (out is None and sys.stdout.isatty())
    total = source.n_rows if source else None
    with console.row_bar(silent, total) as bar, integrity.errors_as_damage(path):
        outcome = _write(model.predictions(source, how._replace(tell=bar)), out)
    if source is None:
        return outcome, []
    source.close()
    return outcome, list(source.notes())


def _write(pieces: Any, out: Path | None) -> Any:
    """Write the predictions on standard output, or in a file that appears only when complete."""
    with console.late_imports():
        from kalvi.tabular import predictions
    if out is None:
        try:
            return predictions.write_predictions(pieces, sys.stdout.buffer, ".csv")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), "standard output") from error
    with console.complete_file(out) as file:
        return predictions.write_predictions(pieces, file, out.suffix)
