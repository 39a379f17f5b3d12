"""`kalvi factor`, `kalvi silk`: tables without a target."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli.console import module, refusing
from kalvi.cli.learning import (
    DATA,
    FORMAT,
    JSON,
    QUIET,
    check_out,
    checkpoints,
    default_out,
    run_pass,
    settings_of,
)

OUT = click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The model; DATA.kalvi if not given."
)
FORCE = click.option("--force", is_flag=True, help="Replace a model that is there.")
SET = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any other parameter."
)


@click.command()
@DATA
@click.option("--components", "-k", required=True, type=click.IntRange(1), help="How many factors.")
@click.option(
    "--method",
    type=click.Choice(["eigen", "recursive_em", "online_em", "incremental_em", "sga", "batch_em"]),
    default="eigen",
    show_default=True,
    help="batch_em goes on to the maximum likelihood with all rows in memory; the others need one pass.",
)
@OUT
@click.option("--features", "-f", multiple=True, help="Columns to use: names or patterns (x*).")
@click.option("--drop", "-d", multiple=True, help="Columns to leave out: names or patterns.")
@click.option("--number", multiple=True, help="Columns that are numbers whatever they look like.")
@click.option(
    "--raw", is_flag=True, help="Keep the columns' own units; else the first rows' units."
)
@click.option(
    "--missing",
    type=click.Choice(["error", "impute"]),
    default="error",
    show_default=True,
    help="Missing values end the run, or are the centre of the first rows.",
)
@SET
@FORCE
@FORMAT
@checkpoints
@JSON
@QUIET
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
    with refusing():
        out = out or default_out(data)
        learning, factors = module("kalvi.tabular.learn"), module("kalvi.tabular.factor")
        check_out(learning, out, force)
        source = module("kalvi.readers").open_data(
            list(data),
            format=options["form"],
            types=dict.fromkeys(options["number"], "number"),
            sample_rows=module("kalvi.tabular.model").SAMPLED,
        )
        choices = factors.FactorChoices(
            components=options["components"],
            method=options["method"],
            features=options["features"],
            drop=options["drop"],
            missing=options["missing"],
            raw=options["raw"],
            parameters=settings_of(options["settings"]),
        )
        model = factors.FactorModel.begin(source, choices)
        job = learning.new_job(
            model,
            source,
            out,
            data=data,
            format=options["form"],
            every_rows=options["checkpoint_rows"],
            every_seconds=options["checkpoint_seconds"],
        )
        run_pass(learning, model, source, job, options)


@click.command()
def silk() -> None:
    """Binary matrices."""
