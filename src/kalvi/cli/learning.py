"""`kalvi fit`, `kalvi update`, `kalvi resume`: rows of a file into a model, any time interrupted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kalvi import files
from kalvi.cli.console import Refusal, Stopped, compiled_once, module, refusing, row_bar, say_json
from kalvi.cli.voices import voice

DATA = click.argument("data", nargs=-1, required=True, metavar="DATA...")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(list(files.FORMATS)),
    help="What DATA is, where neither its name nor its first bytes tell.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="No progress, no words.")
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
    """Learn a model from the rows of DATA in one pass.

    DATA is CSV or TSV (also .gz, .zst), Parquet, Feather or Arrow, JSON lines, libsvm or .npz; a file,
    several, a directory, a pattern in quotes, or - for standard input. It is never read whole.

    \b
    kalvi fit flights.parquet --target late
    kalvi fit 'days/*.csv.gz' -t delay -m linear -c hour -c weekday -o delays.kalvi
    zcat clicks.tsv.gz | kalvi fit - --format tsv -t clicked --hash-bits 18 --rank 20 -o clicks.kalvi
    """
    with refusing():
        out = out or default_out(data)
        learning = module("kalvi.tabular.learn")
        check_out(learning, out, force)
        source, model = _begin(data, like, options)
        begin_pass(model, source, out, data, options)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@DATA
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="Another file for the new model."
)
@FORMAT
@checkpoints
@JSON
@QUIET
def update(model: Path, data: tuple[str, ...], out: Path | None, **options: Any) -> None:
    """Learn from the rows of DATA what MODEL has not seen.

    MODEL stays as it is until all rows are learned, and is then replaced at once.

    \b
    kalvi update flights.kalvi july.parquet
    """
    with refusing():
        learning = module("kalvi.tabular.learn")
        held = learning.load_model(model)
        check_place(out or model)
        _check_new(out or model, out is None)
        _check_runs(learning, out or model, False)
        if not held.streams():
            raise ValueError(
                f"{model} is a model of all rows at once ({held.model}), which cannot learn more of them; "
                "fit one with all the data."
            )
        source = learning.open_for(held, data, options["form"])
        begin_pass(held, source, out or model, data, options)


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
        learning = module("kalvi.tabular.learn")
        held = learning.unfinished(model)
        if held is None:
            there = "is finished" if model.exists() else "was not begun"
            raise ValueError(f"{model} {there}: there is no run to go on with.")
        if "-" in held.job.data and not data:
            raise ValueError(
                f"the rows of this run came from standard input; pipe the same to kalvi resume {model} -"
            )
        source = learning.reopen(held.job, data)
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
    if both := set(options["category"]) & set(options["number"]):
        raise ValueError(f"'{both.pop()}' cannot be a category and a number.")
    types = dict.fromkeys(options["category"], "category") | dict.fromkeys(
        options["number"], "number"
    )
    source = opening.opened(list(data), format=options["form"], types=types, drop=options["drop"])
    choices = tabular.Choices(
        target=options["target"],
        model=options["model"],
        features=options["features"],
        drop=options["drop"],
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
    return source, tabular.TableModel.begin(source, choices)


def _check_like(pattern: Any, like: Path, options: dict[str, Any]) -> None:
    """Refuse a pattern that is no table's, and options that it decides."""
    if not pattern.merges():
        raise ValueError(f"{like} is no model that others can be fitted like ({pattern.model}).")
    if options["target"] != pattern.target.name:
        raise ValueError(
            f"{like} is of the target '{pattern.target.name}'; got --target {options['target']}."
        )
    decided = ("model", "rank", "features", "drop", "category", "number", "weight", "classes")
    given = [
        name for name in (*decided, "hash_bits", "settings") if options[name] not in (None, ())
    ]
    given += ["missing"] * (options["missing"] != "error")
    if given:
        raise ValueError(f"--like decides --{given[0].replace('_', '-')} too; leave it out.")


def _parameters(options: dict[str, Any]) -> dict[str, Any]:
    """The estimator's parameters: --rank, and those of --set."""
    return ({} if options["rank"] is None else {"rank": options["rank"]}) | settings_of(
        options["settings"]
    )


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
        say_json(summary | {"out": job.out})
    elif not quiet:
        said.say_fitted(summary, job.out)


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


def default_out(data: Sequence[str]) -> Path:
    """What a model is called that was given no name: as its data, in the folder where we are."""
    if len(data) > 1 or data[0] == "-" or any(mark in data[0] for mark in "*?["):
        raise ValueError("give the model a name with --out.")
    return Path(f"{files.stem_of(data[0])}.kalvi")


def check_out(learning: Any, out: Path, force: bool) -> None:
    """Refuse a place where a new model cannot or should not be written."""
    check_place(out)
    _check_new(out, force)
    _check_runs(learning, out, force)


def check_place(out: Path) -> None:
    """Refuse a file that has no folder to be in."""
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.parent} to write to.")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; give the model a file's name with --out.")


def _check_new(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise ValueError(
            f"{out} exists; learn more with kalvi update, choose another name with --out, or "
            "replace it with --force."
        )


def _check_runs(learning: Any, out: Path, force: bool) -> None:
    """Refuse to begin where a run is not finished; with force, the new one will take its place."""
    if not force and learning.unfinished(out) is not None:
        raise ValueError(
            f"{out} has a run that is not finished; go on with kalvi resume {out}, or give it up by "
            f"removing {learning.checkpoint_of(out)}."
        )
