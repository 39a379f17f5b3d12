"""`kalvi fit`, `kalvi update`, `kalvi resume`: rows of a file into a model, any time interrupted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kalvi.cli import words
from kalvi.cli.console import Refusal, Stopped, compiled_once, module, refusing, row_bar, say_json
from kalvi.cli.outputs import check_model, default_out, require
from kalvi.cli.voices import voice
from kalvi.readers import files, formats

DATA = click.argument("data", nargs=-1, required=True, metavar="DATA...")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(list(formats.FORMATS)),
    help="What DATA is, where neither its name nor its first bytes tell.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
AGAIN = click.option("--again", is_flag=True, help="Count rows again that were learned before.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="No progress, no words.")
AS = click.option(
    "--as",
    multiple=True,
    metavar="NAME=TYPE",
    help="What a column is: number, category, time, text or drop; also number:1.234,5, time:%d/%m/%Y.",
)
WRITTEN = "How DATA writes a column otherwise than MODEL knows it: number:1.234,5, time:%d/%m/%Y."
COLUMNS = click.option(
    "--columns",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What columns are: CSV with the columns name and type, or JSON.",
)
CHECKPOINTS = (
    click.option(
        "--checkpoint-rows",
        default=1_000_000,
        show_default=True,
        type=click.IntRange(1),
        help="Rows between checkpoints, at most.",
    ),
    click.option(
        "--checkpoint-seconds",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0),
        help="Seconds between checkpoints, at most.",
    ),
)


def checkpoints(command: Any) -> Any:
    """The options of a command that writes checkpoints."""
    for option in CHECKPOINTS:
        command = option(command)
    return command


@click.command()
@DATA
@click.option("--target", "-t", required=True, help="The column to predict.")
@click.option(
    "--model",
    "-m",
    type=click.Choice(["logistic", "linear", "poisson", "gp", "neural"]),
    help="Without it: logistic for labels and for two values, linear for other numbers.",
)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The model; DATA.kalvi if not given."
)
@click.option("--rank", type=click.IntRange(0), help="Of the precision; without it, full if small.")
@click.option(
    "--features", "-f", multiple=True, help="Columns to learn from: names or patterns (x*)."
)
@click.option("--drop", "-d", multiple=True, help="Columns to leave out: names or patterns.")
@click.option("--category", "-c", multiple=True, help="Columns of numbers that are categories.")
@click.option("--number", multiple=True, help="Columns that are numbers whatever they look like.")
@AS
@COLUMNS
@click.option("--weight", "-w", help="A column of weights, 0 or more.")
@click.option("--classes", help="All labels, with commas, where the first rows lack some.")
@click.option(
    "--missing",
    type=click.Choice(["error", "impute"]),
    default="error",
    show_default=True,
    help="Missing values end the run, or are imputed and marked by an indicator.",
)
@click.option("--skip-unlabelled", is_flag=True, help="Leave out rows without a target.")
@click.option("--hash-bits", type=click.IntRange(1, 26), help="Hash levels into 2^BITS places.")
@click.option(
    "--max-width",
    default=2**20,
    show_default=True,
    type=click.IntRange(1),
    help="Most places of a row.",
)
@click.option(
    "--one-pass",
    is_flag=True,
    help="Stream: do not go on to the optimum, as tables that fit in memory do.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any other parameter.")
@click.option(
    "--keep-rows",
    is_flag=True,
    help="Keep some rows in the model: examples for the report, a sample for a later diagnosis.",
)
@click.option(
    "--diagnose", is_flag=True, help="Also how far the Gaussian is from the posterior (PSIS)."
)
@click.option(
    "--like", type=click.Path(path_type=Path), help="Columns, units and settings of a MODEL."
)
@click.option("--force", is_flag=True, help="Replace a model that is there.")
@FORMAT
@checkpoints
@JSON
@QUIET
def fit(
    data: tuple[str, ...], out: Path | None, like: Path | None, force: bool, **options: Any
) -> None:
    """Learn a model from the rows of DATA.

    DATA is CSV or TSV (also .gz, .zst), Parquet, Feather or Arrow, JSON lines, libsvm or .npz; a file,
    several, a directory, a pattern in quotes, or - for standard input.

    Rows are learned as they come, in one pass. Where they fit in memory (2 GiB as dense numbers), the model
    goes on from there to the optimum of the variational bound; --one-pass leaves that out.

    \b
    kalvi fit flights.parquet --target late
    kalvi fit 'days/*.csv.gz' -t delay -m linear -c hour -c weekday -o delays.kalvi
    zcat clicks.tsv.gz | kalvi fit - --format tsv -t clicked --hash-bits 18 --rank 20 -o clicks.kalvi
    """
    with refusing():
        out = out or default_out(data)
        beside = [path for path in (like, options["columns"]) if path is not None]
        check_new_model(out, [*files.expand(data), *beside], force)
        require(*beside)
        check_runs(out, force)
        source, model = _begin(data, like, options)
        begin_pass(model, source, out, data, options)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@DATA
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="Another file for the new model."
)
@click.option("--force", is_flag=True, help="Replace another model that is at --out.")
@AGAIN
@click.option("--as", multiple=True, metavar="NAME=TYPE", help=WRITTEN)
@FORMAT
@checkpoints
@JSON
@QUIET
def update(
    model: Path,
    data: tuple[str, ...],
    out: Path | None,
    force: bool,
    again: bool,
    **options: Any,
) -> None:
    """Learn from the rows of DATA what MODEL has not seen.

    MODEL stays as it is until all rows are learned, and is then replaced at once. A file that it has
    learned already is refused: its rows would count twice. Rows of standard input are not recognised.

    \b
    kalvi update flights.kalvi july.parquet
    """
    with refusing():
        require(model)
        inputs, out = files.expand(data), out or model
        if out.exists() and out.samefile(model):
            check_model(model, inputs, force=True)
        else:
            check_model(out, [model, *inputs], force=force)
        learning = module("kalvi.tabular.learn")
        held = learning.load_model(model)
        check_runs(out, False)
        if not held.streams():
            raise ValueError(
                f"{model} is a model of all rows at once ({held.model}), which cannot learn more of them; "
                "fit one with all the data."
            )
        types, _ = module("kalvi.tabular.opening").words_of(None, options["as"])
        source = learning.open_for(held, data, options["form"], types)
        if not again:
            module("kalvi.tabular.provenance").check_not_learned(held, source, model)
        begin_pass(held, source, out, data, options)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, metavar="[DATA]...")
@JSON
@QUIET
def resume(model: Path, data: tuple[str, ...], **options: Any) -> None:
    """Go on with a run of MODEL that was interrupted or killed.

    The result is the same to the last bit as without the interruption. DATA is needed where it was
    standard input (give - and the same rows from the beginning) or was moved.

    \b
    kalvi resume flights.kalvi
    """
    with refusing():
        if data:
            files.expand(data)
        learning = module("kalvi.tabular.learn")
        held = learning.unfinished(model)
        if held is None:
            there = "is finished" if model.exists() else "was not begun"
            raise ValueError(f"{model} {there}: there is no run to go on with.")
        if "-" in held.job.data and not data:
            raise ValueError(
                f"the rows of this run came from standard input; pipe the same to kalvi resume {model} -"
            )
        source = learning.reopen(held.job, data, learning.strays_of(held.model))
        run_pass(learning, held.model, source, held.job, options)


def _begin(data: tuple[str, ...], like: Path | None, options: dict[str, Any]) -> tuple[Any, Any]:
    """The source, and the model before its first row."""
    opening, tabular = module("kalvi.tabular.opening"), module("kalvi.tabular.model")
    if like is not None:
        learning = module("kalvi.tabular.learn")
        pattern = learning.load_model(like)
        _check_like(pattern, like, options)
        asked = {name: options[name] for name in ("keep_rows", "diagnose")}
        return learning.open_for(pattern, data, options["form"]), pattern.fresh(**asked)
    types, dropped = opening.words_of(
        options["columns"], options["as"], options["category"], options["number"]
    )
    choices = tabular.Choices(
        target=options["target"],
        model=options["model"],
        features=options["features"],
        drop=(*options["drop"], *dropped),
        weight=options["weight"],
        classes=tuple((options["classes"] or "").split(",")) if options["classes"] else (),
        missing=options["missing"],
        skip_unlabelled=options["skip_unlabelled"],
        hash_bits=options["hash_bits"],
        max_width=options["max_width"],
        parameters=_parameters(options),
        keep_rows=options["keep_rows"],
        diagnose=options["diagnose"],
    )
    how = {"types": types, "drop": choices.drop, "strays": choices.strays}
    how["advice"] = choices.advice
    source = opening.opened(list(data), format=options["form"], **how)
    return source, tabular.TableModel.begin(source, choices)


def _check_like(pattern: Any, like: Path, options: dict[str, Any]) -> None:
    """Refuse a pattern that is no table's, and options that it decides."""
    if not pattern.merges():
        raise ValueError(f"{like} is no model that others can be fitted like ({pattern.model}).")
    if options["target"] != pattern.target.name:
        raise ValueError(
            f"{like} is of the target '{pattern.target.name}'; got --target {options['target']}."
        )
    decided = (
        "model",
        "rank",
        "features",
        "drop",
        "category",
        "number",
        "as",
        "columns",
        "weight",
        "classes",
    )
    given = [
        name for name in (*decided, "hash_bits", "settings") if options[name] not in (None, ())
    ]
    given += ["missing"] * (options["missing"] != "error") + ["one_pass"] * options["one_pass"]
    if given:
        raise ValueError(f"--like decides --{given[0].replace('_', '-')} too; leave it out.")


def _parameters(options: dict[str, Any]) -> dict[str, Any]:
    """The estimator's parameters: --rank, --one-pass, and those of --set."""
    rank = {} if options["rank"] is None else {"rank": options["rank"]}
    found = rank | settings_of(options["settings"])
    if not options["one_pass"]:
        return found
    if found.get("passes", 1) != 1:
        raise ValueError(f"--one-pass contradicts --set passes={found['passes']}; leave one out.")
    if options["model"] == "gp":
        raise ValueError("--one-pass is for models that stream; a Gaussian process needs all rows.")
    return found | ({} if options["model"] == "neural" else {"passes": 1})


def settings_of(settings: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE of --set, with the value in JSON or a word."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE; got '{setting}'.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def begin_pass(
    model: Any, source: Any, out: Path, data: tuple[str, ...], options: dict[str, Any]
) -> None:
    """A new run over a source, from its first row."""
    learning = module("kalvi.tabular.learn")
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


def run_pass(learning: Any, model: Any, source: Any, job: Any, options: dict[str, Any]) -> None:
    """The pass with its progress, and what came of it."""
    compiled_once()
    quiet, said = options["quiet"] or options["as_json"], voice(model.model)
    if not quiet:
        said.say_columns(model, source)
    total, start = source.n_rows, job.done
    try:
        with row_bar(quiet, total, start) as bar:

            def tell(now: Any, rows: int, fraction: float | None) -> None:
                bar(rows, fraction, said.loss(now))

            model = learning.learn(model, source, job, tell)
    except learning.Interrupted as error:
        raise Stopped(_stopped(model, job)) from error
    except (ValueError, OSError, MemoryError) as error:
        raise Refusal(_left(learning, error, job)) from error
    finally:
        source.close()
    summary = module("kalvi.tabular.summary").summary(model, Path(job.out).name)
    if options["as_json"]:
        say_json(summary | {"out": job.out, "taken_for": words.reasons(source)})
    elif not quiet:
        said.say_fitted(summary, job.out)
        words.say_notes(source)


def _stopped(model: Any, job: Any) -> str:
    if not model.streams():
        return "stopped; nothing was learned yet."
    return f"stopped; what was learned is kept. Go on with: kalvi resume {job.out}"


def _left(learning: Any, error: Exception, job: Any) -> str:
    """The error, and what became of the rows before it; nothing is left of a run that learned none."""
    message = str(error)
    if isinstance(error, OSError) and error.filename:
        message = f"{error.filename}: {error.strerror or error}"
    held = learning.unfinished(job.out)
    if held is None or held.job.done == 0:
        learning.checkpoint_of(job.out).unlink(missing_ok=True)
        return message
    return (
        f"{message} The first {held.job.done} rows are kept; mend the rest and go on with: "
        f"kalvi resume {job.out}"
    )


def check_new_model(out: Path, inputs: list[Any], force: bool) -> None:
    """Refuse a place where a model that is fitted anew cannot or must not be written."""
    check_model(out, inputs, force=force, instead="learn more with kalvi update, ")


def check_runs(out: Path, force: bool) -> None:
    """Refuse to begin where a run is not finished; with force, the new one will take its place."""
    learning = module("kalvi.tabular.learn")
    if not force and learning.unfinished(out) is not None:
        raise ValueError(
            f"{out} has a run that is not finished; go on with kalvi resume {out}, or give it up by "
            f"removing {learning.checkpoint_of(out)}."
        )
