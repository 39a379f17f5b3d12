"""`kalvi factor`: factor analysis of the columns of numbers of a table."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli import console, outputs, parameters
from kalvi.readers import files


@click.command(short_help="Factor analysis of the columns of numbers of DATA.")
@parameters.DATA
@click.option("--components", "-k", required=True, type=click.IntRange(1), help="How many factors.")
@click.option(
    "--method",
    type=click.Choice(["eigen", "recursive_em", "online_em", "incremental_em", "sga", "batch_em"]),
    default="eigen",
    show_default=True,
    help="batch_em goes on to the maximum likelihood with all rows in memory; the others need one pass.",
)
@parameters.OUT
@click.option("--features", "-f", multiple=True, help="Columns to use: names or patterns (x*).")
@click.option("--drop", "-d", multiple=True, help="Columns to leave out: names or patterns.")
@click.option("--number", multiple=True, help="Columns that are numbers whatever they look like.")
@parameters.AS
@parameters.COLUMNS
@click.option(
    "--raw", is_flag=True, help="Keep the original units; otherwise columns are standardised."
)
@click.option(
    "--missing",
    type=click.Choice(["error", "impute"]),
    default="error",
    show_default=True,
    help="End the run at a missing value, or replace it by the mean of the first rows.",
)
@parameters.SET
@parameters.REPLACE_MODEL
@parameters.FORMAT
@parameters.checkpoints
@parameters.JSON
@parameters.QUIET
def factor(data: tuple[str, ...], out: Path | None, force: bool, **options: Any) -> None:
    """Find the factors that the columns of numbers of DATA have in common, in one pass.

    A row is a Gaussian: factors times loadings, and noise of each column. DATA is whatever kalvi fit
    takes. kalvi update, resume, predict (scores, and log densities to find outliers) and inspect
    (loadings, shares of noise) go on from there.

    \b
    kalvi factor sensors.parquet --components 5
    kalvi factor 'days/*.csv.gz' -k 3 -f 'x*' --missing impute -o days.kalvi
    kalvi predict days.kalvi today.csv --keep time > scores.csv
    """
    with console.errors_as_sentences():
        out = out or outputs.default_out(data)
        beside = [options["columns"]] if options["columns"] is not None else []
        outputs.check_new_model_path(out, [*files.expand(data), *beside], force)
        outputs.require(*beside)
        with console.late_imports():
            from kalvi.cli import passes
            from kalvi.tabular import factor_analysis, sources
        passes.check_runs(out, force)
        types, dropped = sources.column_words(
            options["columns"], options["as"], (), options["number"]
        )
        choices = factor_analysis.FactorChoices(
            components=options["components"],
            method=options["method"],
            features=options["features"],
            drop=(*options["drop"], *dropped),
            missing=options["missing"],
            raw=options["raw"],
            parameters=parameters.settings_of(options["settings"]),
        )
        source = sources.open_source(data, choices, options["form"], types)
        model = factor_analysis.FactorModel.begin(source, choices)
        passes.begin_pass(model, source, out, data, options)
