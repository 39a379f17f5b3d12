"""`kalvi silk`: factorisation of a binary matrix with smooth factors."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli import console, outputs, parameters
from kalvi.readers import files

TABLE = click.Path(path_type=Path)


@click.command(short_help="Smooth factors of a matrix of zeros and ones.")
@click.argument("matrix", nargs=-1, required=True, metavar="MATRIX")
@click.option(
    "--factors", "-k", default="auto", show_default=True, help="How many factors, or auto."
)
@click.option(
    "--layout",
    type=click.Choice(["wide", "long"]),
    default="wide",
    show_default=True,
    help="Wide: a line is a row of the matrix. Long: a line is an entry: row, column, value.",
)
@click.option(
    "--unstored",
    type=click.Choice(["zero", "missing"]),
    help="The entries that a long list or a sparse matrix leaves out; zero if it holds only ones.",
)
@click.option("--row-locations", metavar="FILE|order", help="The locations of the rows.")
@click.option("--col-locations", metavar="FILE|order", help="The locations of the columns.")
@click.option("--unordered-rows", is_flag=True, help="The factors of the rows are not smooth.")
@click.option("--unordered-cols", is_flag=True, help="The factors of the columns are not smooth.")
@parameters.OUT
@click.option("--predictions", type=TABLE, help="Also write the probability of every entry.")
@click.option("--row-factors", type=TABLE, help="Also write the factors of the rows.")
@click.option("--col-factors", type=TABLE, help="Also write the factors of the columns.")
@parameters.SET
@parameters.REPLACE_MODEL
@parameters.FORMAT
@parameters.JSON
@parameters.QUIET
def silk(matrix: tuple[str, ...], out: Path | None, force: bool, **options: Any) -> None:
    """Find smooth factors of the rows and columns of MATRIX, whose entries are 0, 1 or missing.

    Factors vary smoothly along the names of rows and columns if these are numbers or dates, otherwise along
    their order in the file. --row-locations FILE has a location on each line, in the order of the rows, or
    names and locations; with the word order, names are ignored. Tables are written as CSV, .parquet or
    .jsonl, factors with their standard deviations. kalvi predict MODEL writes the probabilities later.

    \b
    kalvi silk votes.csv --unordered-cols --predictions votes_filled.csv
    kalvi silk clicks.parquet --layout long --unstored zero --factors 5 -o clicks.kalvi
    kalvi silk spikes.npz --unordered-cols --row-factors states.csv -o spikes.kalvi
    """
    with console.errors_as_sentences():
        out = out or outputs.default_out(matrix)
        inputs = [*files.expand(matrix), *_location_files(options)]
        outputs.check_new_model_path(out, inputs, force)
        tables = _tables(options, out, inputs, force)
        with console.late_imports():
            from kalvi.cli import passes
            from kalvi.tabular import learn
            from kalvi.tabular.renderers import renderer_of
        passes.check_runs(out, force)
        silent = options["quiet"] or options["as_json"]
        model = _fit_matrix(matrix, options, verbose=not silent)
        for path, kind in tables.items():
            _write(model, path, kind)
        learn.save_model(out, model)
        about = model.describe(out.name)
    written_to = {kind: str(path) for path, kind in tables.items()} | {"out": str(out)}
    if options["as_json"]:
        console.print_json(about | written_to)
    elif not silent:
        console.print_lines(renderer_of(model.model).fitted_lines(about))
        console.print_notes(about["warnings"])
        click.echo(f"wrote {', '.join(written_to.values())}")


def _fit_matrix(data: tuple[str, ...], options: dict[str, Any], *, verbose: bool) -> Any:
    """Read a matrix and fit it."""
    with console.late_imports():
        from kalvi.readers.matrix import read_matrix
        from kalvi.tabular import binary_matrix
    held = read_matrix(
        list(data), layout=options["layout"], unstored=options["unstored"], format=options["form"]
    )
    row, col = (
        binary_matrix.locate_side(
            side, n, names, options[f"{side}_locations"], options[f"unordered_{side}s"]
        )
        for side, n, names in zip(("row", "col"), held.entries.shape, held[1:], strict=True)
    )
    own = {"n_factors": _count(options["factors"])} | parameters.settings_of(options["settings"])
    return binary_matrix.fit_matrix(held, row, col, own, files=data, verbose=verbose)


def _count(factors: str) -> int | str:
    if factors == "auto":
        return factors
    if not factors.isdecimal() or int(factors) < 1:
        raise ValueError(f"--factors must be auto or a whole number of 1 or more; got '{factors}'.")
    return int(factors)


def _location_files(options: dict[str, Any]) -> list[Path]:
    """The files of locations; one that does not exist is refused."""
    named = (options["row_locations"], options["col_locations"])
    paths = [Path(name) for name in named if name not in (None, "order")]
    outputs.require(*paths)
    return paths


def _tables(options: dict[str, Any], out: Path, inputs: list[Any], force: bool) -> dict[Path, str]:
    """The tables to write beside the model, by path; refused unless each has a writable file of its own."""
    kinds = ("predictions", "row_factors", "col_factors")
    asked = [(options[kind], kind) for kind in kinds if options[kind] is not None]
    if len({path.resolve() for path, _ in asked} | {out.resolve()}) <= len(asked):
        raise ValueError("the model and the tables need different files.")
    for path, kind in asked:
        outputs.check_table_path(path, inputs, force=force, option=f"--{kind.replace('_', '-')}")
    return dict(asked)


def _write(model: Any, path: Path, kind: str) -> None:
    """Write one table; the file appears only once it is complete."""
    with console.late_imports():
        from kalvi.tabular import predictions
    if kind == "predictions":
        pieces = model.predictions(None)
    else:
        table = model.factor_table(kind.split("_")[0])
        outcome = predictions.PredictionOutcome(table.num_rows, (), {}, 0, None, "")
        pieces = iter([predictions.PredictedPiece(table, outcome)])
    with console.complete_file(path) as file:
        predictions.write_predictions(pieces, file, path.suffix)
