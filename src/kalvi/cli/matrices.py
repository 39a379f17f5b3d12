"""`kalvi factor`, `kalvi silk`: tables without a target."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli import silk_words
from kalvi.cli.console import compiled_once, module, refusing, say_json, written
from kalvi.cli.learning import (
    AS,
    COLUMNS,
    DATA,
    FORMAT,
    JSON,
    QUIET,
    begin_pass,
    check_new_model,
    check_runs,
    checkpoints,
    settings_of,
)
from kalvi.cli.outputs import check_table, default_out, require
from kalvi.readers import files

OUT = click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The model; DATA.kalvi if not given."
)
TABLE = click.Path(path_type=Path)
FORCE = click.option("--force", is_flag=True, help="Replace a model that is there.")
SET = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any other parameter."
)


@click.command(short_help="Factor analysis of the columns of numbers of DATA.")
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
@AS
@COLUMNS
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
        beside = [options["columns"]] if options["columns"] is not None else []
        check_new_model(out, [*files.expand(data), *beside], force)
        require(*beside)
        check_runs(out, force)
        factors, opening = module("kalvi.tabular.factor"), module("kalvi.tabular.opening")
        types, dropped = opening.words_of(options["columns"], options["as"], (), options["number"])
        choices = factors.FactorChoices(
            components=options["components"],
            method=options["method"],
            features=options["features"],
            drop=(*options["drop"], *dropped),
            missing=options["missing"],
            raw=options["raw"],
            parameters=settings_of(options["settings"]),
        )
        how = {"types": types, "drop": choices.drop, "strays": choices.strays}
        how["advice"] = choices.advice
        source = opening.opened(list(data), format=options["form"], **how)
        model = factors.FactorModel.begin(source, choices)
        begin_pass(model, source, out, data, options)


@click.command(short_help="Smooth factors of a matrix of zeros and ones.")
@click.argument("matrix", nargs=-1, required=True, metavar="MATRIX")
@click.option("--factors", "-k", default="auto", show_default=True, help="How many, or auto.")
@click.option(
    "--layout",
    type=click.Choice(["wide", "long"]),
    default="wide",
    show_default=True,
    help="A line is a row of the matrix, or an entry: row, column, value.",
)
@click.option(
    "--unstored",
    type=click.Choice(["zero", "missing"]),
    help="What a long list or a sparse matrix does not hold; zero if it holds only ones.",
)
@click.option("--row-locations", metavar="FILE|order", help="Where the rows are.")
@click.option("--col-locations", metavar="FILE|order", help="Where the columns are.")
@click.option("--unordered-rows", is_flag=True, help="The rows have no order to be smooth along.")
@click.option("--unordered-cols", is_flag=True, help="The columns have none.")
@OUT
@click.option("--predictions", type=TABLE, help="Also write the probability of every entry.")
@click.option("--row-factors", type=TABLE, help="Also write the factors of the rows.")
@click.option("--col-factors", type=TABLE, help="Also write the factors of the columns.")
@SET
@FORCE
@FORMAT
@JSON
@QUIET
def silk(
    matrix: tuple[str, ...],
    out: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Find smooth factors of the rows and columns of MATRIX, whose entries are 0, 1 or missing.

    Factors vary smoothly along the names of rows and columns where these are numbers or dates, else along
    their order. --row-locations FILE has one location a line in the order of the rows, or names and
    locations; the word order leaves the names aside. Tables are written as CSV, .parquet or .jsonl, factors
    with their standard deviations beside. kalvi predict MODEL writes the probabilities later.

    \b
    kalvi silk votes.csv --unordered-cols --predictions votes_filled.csv
    kalvi silk clicks.parquet --layout long --unstored zero --factors 5 -o clicks.kalvi
    kalvi silk spikes.npz --unordered-cols --row-factors states.csv -o spikes.kalvi
    """
    with refusing():
        out = out or default_out(matrix)
        inputs = [*files.expand(matrix), *_location_files(options)]
        check_new_model(out, inputs, force)
        tables = _tables(options, out, inputs, force)
        check_runs(out, force)
        learning, matrices = module("kalvi.tabular.learn"), module("kalvi.tabular.matrix")
        model = _factorised(matrices, matrix, options, verbose=not (quiet or as_json))
        for path, kind in tables.items():
            _write(matrices, model, path, kind)
        learning.save_model(out, model)
        about = module("kalvi.tabular.summary").summary(model, out.name)
    written_to = {kind: str(path) for path, kind in tables.items()} | {"out": str(out)}
    if as_json:
        say_json(about | written_to)
    elif not quiet:
        silk_words.say_fitted(about, ", ".join(written_to.values()))


def _factorised(
    matrices: Any, data: tuple[str, ...], options: dict[str, Any], *, verbose: bool
) -> Any:
    """The model of a matrix in a file."""
    compiled_once()
    held = module("kalvi.readers.matrix").read_matrix(
        list(data), layout=options["layout"], unstored=options["unstored"], format=options["form"]
    )
    names = zip(("row", "col"), held.entries.shape, held[1:], strict=True)
    sides = [
        matrices.located(
            side, n, names, options[f"{side}_locations"], options[f"unordered_{side}s"]
        )
        for side, n, names in names
    ]
    parameters = {"n_factors": _count(options["factors"])} | settings_of(options["settings"])
    return matrices.fitted(held, *sides, parameters, files=data, verbose=verbose)


def _count(factors: str) -> int | str:
    if factors == "auto":
        return factors
    if not factors.isdecimal() or int(factors) < 1:
        raise ValueError(f"--factors is a number from 1 on, or auto; got '{factors}'.")
    return int(factors)


def _location_files(options: dict[str, Any]) -> list[Path]:
    """The files of locations, each of which must be there."""
    named = (options["row_locations"], options["col_locations"])
    paths = [Path(name) for name in named if name not in (None, "order")]
    require(*paths)
    return paths


def _tables(options: dict[str, Any], out: Path, inputs: list[Any], force: bool) -> dict[Path, str]:
    """The tables to write beside the model, each in a file of its own that can be written."""
    kinds = ("predictions", "row_factors", "col_factors")
    asked = [(options[kind], kind) for kind in kinds if options[kind] is not None]
    if len({path.resolve() for path, _ in asked} | {out.resolve()}) <= len(asked):
        raise ValueError("the model and the tables need a file of their own each.")
    for path, kind in asked:
        check_table(path, inputs, force=force, option=f"--{kind.replace('_', '-')}")
    return dict(asked)


def _write(matrices: Any, model: Any, path: Path, kind: str) -> None:
    """One table, in a file that appears when it is whole."""
    predict = module("kalvi.tabular.predict")
    if kind == "predictions":
        pieces = predict.predictions(model, None)
    else:
        table = matrices.factor_table(model, kind.split("_")[0])
        pieces = iter([(table, predict.Outcome(table.num_rows, (), {}, 0, None, ""))])
    with written(path) as file:
        predict.write(pieces, file, path.suffix)
