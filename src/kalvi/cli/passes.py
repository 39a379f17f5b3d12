"""A pass over rows for `kalvi fit`, `update`, `resume` and `factor`: its progress, and what it prints."""

from pathlib import Path
from typing import Any

import click

from kalvi.cli import console
from kalvi.readers.source import Source
from kalvi.tabular import learn
from kalvi.tabular.learn import Job
from kalvi.tabular.prefetch import Interrupted
from kalvi.tabular.renderers import renderer_of
from kalvi.tabular.renderers.text import reason
from kalvi.tabular.table_model import RowModel


def begin_pass(
    model: RowModel, source: Source, out: Path, data: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Begin a run over a source, from its first row."""
    job = learn.new_job(
        model,
        source,
        out,
        data=data,
        format=options["form"],
        every_rows=options["checkpoint_rows"],
        every_seconds=options["checkpoint_seconds"],
    )
    run_pass(model, source, job, options)


def run_pass(model: RowModel, source: Source, job: Job, options: dict[str, Any]) -> None:
    """Learn the rows that have not been learned yet, and print the result."""
    quiet, renderer = options["quiet"] or options["as_json"], renderer_of(model.model)
    if not quiet:
        console.print_lines(renderer.column_lines(model.outline(), source), err=True)
    try:
        model = _learn(model, source, job, renderer, quiet)
    except Interrupted as error:
        raise console.Stopped(_stopped(model, job)) from error
    except (ValueError, OSError, MemoryError) as error:
        raise console.Refusal(_failed(error, job)) from error
    finally:
        source.close()
    summary = model.describe(Path(job.out).name)
    if options["as_json"]:
        taken_for = {name: reason(about) for name, about in source.about.items()}
        console.print_json(summary | {"out": job.out, "taken_for": taken_for})
    elif not quiet:
        console.print_lines(renderer.fitted_lines(summary))
        console.print_notes(summary["warnings"])
        click.echo(f"wrote {job.out}")
        console.print_notes(source.notes())


def check_runs(out: Path, force: bool) -> None:
    """Refuse to begin a run where another has not ended; with `force`, the new one replaces it."""
    if not force and learn.find_unfinished_run(out) is not None:
        raise ValueError(
            f"{out} has a run that is not finished; go on with kalvi resume {out}, or give it up by "
            f"removing {learn.checkpoint_of(out)}."
        )


def _learn(model: RowModel, source: Source, job: Job, renderer: Any, quiet: bool) -> RowModel:
    """Make the pass, with a progress bar."""
    with console.row_bar(quiet, source.n_rows, job.done) as bar:

        def tell(now: RowModel, rows: int, fraction: float | None) -> None:
            bar(rows, fraction, renderer.progress(now.record))

        return learn.learn(model, source, job, tell)


def _stopped(model: RowModel, job: Job) -> str:
    if not model.streams():
        return "stopped; nothing was learned yet."
    return f"stopped; what was learned is kept. Go on with: kalvi resume {job.out}"


def _failed(error: Exception, job: Job) -> str:
    """The error, and how to go on; a checkpoint without any rows is removed."""
    message = str(error)
    if isinstance(error, OSError) and error.filename:
        message = f"{error.filename}: {error.strerror or error}"
    held = learn.find_unfinished_run(job.out)
    if held is None or held.job.done == 0:
        learn.checkpoint_of(job.out).unlink(missing_ok=True)
        return message
    return (
        f"{message} The first {held.job.done} rows are kept; correct the rest and go on with: "
        f"kalvi resume {job.out}"
    )
