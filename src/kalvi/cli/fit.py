"""`kalvi fit`, `kalvi update` and `kalvi resume`: learn a model from rows; any run can be interrupted."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kalvi.cli import console, outputs, parameters
from kalvi.readers import files, formats

BESIDE_LIKE = {"data", "target", "like", "out", "force", "form", "keep_rows", "diagnose"}
BESIDE_LIKE |= {"checkpoint_rows", "checkpoint_seconds", "as_json", "quiet"}
"""The options that may be given with --like."""


@click.command()
@parameters.DATA
@click.option("--target", "-t", required=True, help="The column to predict.")
@click.option(
    "--model",
    "-m",
    type=click.Choice(["logistic", "linear", "poisson", "gp", "neural"]),
    help="Without it: logistic for labels and for two values, linear for other numbers.",
)
@parameters.OUT
@click.option(
    "--rank",
    type=click.IntRange(0),
    help="Rank of the precision; by default full if there is room.",
)
@click.option(
    "--features", "-f", multiple=True, help="Columns to learn from: names or patterns (x*)."
)
@click.option("--drop", "-d", multiple=True, help="Columns to leave out: names or patterns.")
@click.option("--category", "-c", multiple=True, help="Columns of numbers that are categories.")
@click.option("--number", multiple=True, help="Columns that are numbers whatever they look like.")
@parameters.AS
@parameters.COLUMNS
@click.option("--weight", "-w", help="A column of weights, 0 or more.")
@click.option("--time", help="A column of times, numbers or dates, between which the model drifts.")
@click.option("--classes", help="All labels, with commas, where the first rows lack some.")
@click.option(
    "--missing",
    type=click.Choice(["error", "impute"]),
    default="error",
    show_default=True,
    help="End the run at a missing value, or impute it and add an indicator.",
)
@click.option("--skip-unlabelled", is_flag=True, help="Leave out rows without a target.")
@click.option("--hash-bits", type=click.IntRange(1, 26), help="Hash levels into 2^BITS features.")
@click.option(
    "--max-width",
    default=2**20,
    show_default=True,
    type=click.IntRange(1),
    help="The most features of a row.",
)
@click.option(
    "--one-pass",
    is_flag=True,
    help="Stream: do not go on to the optimum, as tables that fit in memory do.",
)
@parameters.SET
@click.option(
    "--keep-rows",
    is_flag=True,
    help="Keep some rows in the model: examples for the report, a sample for a later diagnosis.",
)
@click.option(
    "--diagnose",
    is_flag=True,
    help="Also measure how far the Gaussian is from the posterior (PSIS).",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    help="A model whose columns, units and settings are used.",
)
@parameters.REPLACE_MODEL
@parameters.FORMAT
@parameters.checkpoints
@parameters.JSON
@parameters.QUIET
def fit(
    data: tuple[str, ...], out: Path | None, like: Path | None, force: bool, **options: Any
) -> None:
    """Learn a model from the rows of DATA.

    DATA is a file, several, a directory, a pattern in quotes, or - for standard input. Files may be
    FORMATS.

    Rows are learned as they come, in one pass. Where they fit in memory (2 GiB as dense numbers), the model
    goes on from there to the optimum of the variational bound; --one-pass leaves that out.

    \b
    kalvi fit flights.parquet --target late
    kalvi fit 'days/*.csv.gz' -t delay -m linear -c hour -c weekday -o delays.kalvi
    zcat clicks.tsv.gz | kalvi fit - --format tsv -t clicked --hash-bits 18 --rank 20 -o clicks.kalvi
    """
    with console.errors_as_sentences():
        out = out or outputs.default_out(data)
        beside = [path for path in (like, options["columns"]) if path is not None]
        outputs.check_new_model_path(out, [*files.expand(data), *beside], force)
        outputs.require(*beside)
        with console.late_imports():
            from kalvi.cli import passes
        passes.check_runs(out, force)
        if like is not None:
            source, model = _begin_like(like, data, options)
        else:
            source, model = _begin(data, options)
        passes.begin_pass(model, source, out, data, options)


fit.help = (fit.help or "").replace("FORMATS", formats.list_formats())


@click.command()
@parameters.MODEL
@parameters.DATA
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="Another file for the new model."
)
@click.option("--force", is_flag=True, help="Replace another model that is at --out.")
@parameters.AGAIN
@click.option("--as", multiple=True, metavar="NAME=TYPE", help=parameters.WRITTEN)
@parameters.FORMAT
@parameters.checkpoints
@parameters.JSON
@parameters.QUIET
def update(
    model: Path,
    data: tuple[str, ...],
    out: Path | None,
    force: bool,
    again: bool,
    **options: Any,
) -> None:
    """Learn from further rows, those of DATA.

    MODEL stays as it is until all rows are learned, and is then replaced at once. A file that it has
    learned already is refused: its rows would count twice. Rows of standard input are not recognised.

    \b
    kalvi update flights.kalvi july.parquet
    """
    with console.errors_as_sentences():
        outputs.require(model)
        inputs, out = files.expand(data), out or model
        if out.exists() and out.samefile(model):
            outputs.check_model_path(model, inputs, force=True)
        else:
            outputs.check_model_path(out, [model, *inputs], force=force)
        with console.late_imports():
            from kalvi.cli import passes
            from kalvi.tabular import learn, provenance, sources
            from kalvi.tabular.table_model import RowModel
        held = learn.load_model(model)
        passes.check_runs(out, False)
        if not isinstance(held, RowModel) or not held.streams():
            raise ValueError(
                f"{model} is a model of all rows at once ({held.model}), which cannot learn more of them; "
                "fit one with all the data."
            )
        types, _ = sources.column_words(None, options["as"])
        source = held.open_rows(data, options["form"], types)
        if not again:
            provenance.check_not_learned(held, source, model)
        passes.begin_pass(held, source, out, data, options)


@click.command()
@parameters.MODEL
@click.argument("data", nargs=-1, metavar="[DATA]...")
@parameters.JSON
@parameters.QUIET
def resume(model: Path, data: tuple[str, ...], **options: Any) -> None:
    """Go on with a run of MODEL that was interrupted or killed.

    The result is the same to the last bit as without the interruption. DATA is needed if it was standard
    input (give - and pipe the same rows from the beginning) or if its files were moved.

    \b
    kalvi resume flights.kalvi
    """
    with console.errors_as_sentences():
        if data:
            files.expand(data)
        with console.late_imports():
            from kalvi.cli import passes
            from kalvi.tabular import learn
        held = learn.find_unfinished_run(model)
        if held is None:
            there = "is finished" if model.exists() else "was not begun"
            raise ValueError(f"{model} {there}: there is no run to continue.")
        if "-" in held.job.data and not data:
            raise ValueError(
                f"the rows of this run came from standard input; pipe the same to kalvi resume {model} -"
            )
        source = learn.reopen(held.job, data, held.model.on_invalid)
        passes.run_pass(held.model, source, held.job, options)


def _begin_like(like: Path, data: tuple[str, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Open the source, and begin a model with the columns, units and settings of another."""
    with console.late_imports():
        from kalvi.tabular import learn
        from kalvi.tabular.linear import LinearModel
    pattern = learn.load_model(like)
    if not isinstance(pattern, LinearModel) or not pattern.record.rows:
        raise ValueError(f"{like} is a {pattern.model} model; --like takes linear models only.")
    _check_like(pattern.target.name, like, options)
    fresh = pattern.fresh(keep_rows=options["keep_rows"], diagnose=options["diagnose"])
    return pattern.open_rows(data, options["form"]), fresh


def _begin(data: tuple[str, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Open the source, and begin a model."""
    with console.late_imports():
        from kalvi.tabular import sources, table_kinds
        from kalvi.tabular.choices import Choices
    types, dropped = sources.column_words(
        options["columns"], options["as"], options["category"], options["number"]
    )
    own = {
        "drop": (*options["drop"], *dropped),
        "classes": tuple(options["classes"].split(",")) if options["classes"] else (),
        "parameters": _parameters(options),
    }
    choices = Choices(**{name: (options | own)[name] for name in Choices._fields})
    source = sources.open_source(data, choices, options["form"], types)
    return source, table_kinds.new_model(source, choices)


def _check_like(target: str, like: Path, options: dict[str, Any]) -> None:
    """Refuse options that --like decides."""
    if options["target"] != target:
        raise ValueError(f"{like} is of the target '{target}'; got --target {options['target']}.")
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in BESIDE_LIKE:
            raise ValueError(f"--like decides {option.opts[0]} too; leave it out.")


def _parameters(options: dict[str, Any]) -> dict[str, Any]:
    """The estimator's parameters: --rank, --one-pass, and those of --set."""
    rank = {} if options["rank"] is None else {"rank": options["rank"]}
    found = rank | parameters.settings_of(options["settings"])
    if not options["one_pass"]:
        return found
    if found.get("passes", 1) != 1:
        raise ValueError(f"--one-pass contradicts --set passes={found['passes']}; leave one out.")
    if options["model"] == "gp":
        raise ValueError("--one-pass is for models that stream; a Gaussian process needs all rows.")
    return found | ({} if options["model"] == "neural" else {"passes": 1})
