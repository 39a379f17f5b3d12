"""`python -m papers PAPER [FIGURE]`: the figures of a paper, with its claims put to the test."""

import csv
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
from tqdm import tqdm

from kalvi.cli.console import Refusal, Stopped, complete_file, errors_as_sentences, late_imports
from kalvi.cli.outputs import check_picture_path, check_table_path
from papers import parts, records

PAPERS = {
    "rvga": "papers.rvga",
    "lrvga": "papers.lrvga",
    "factor_analysis": "papers.factor_analysis",
    "vifa": "papers.vifa",
    "klprox": "papers.klprox",
    "silk": "papers.silk",
}
ALL = "all"
QUICK_NOTE = "quick run: smaller problems than the paper's, no verdict on it"
COLOURS = {"held": "green", "refuted": "red"}


class Job(NamedTuple):
    """One figure to be made."""

    paper: str
    figure: str
    make: Callable[[bool], Any]
    expected: float | None  # seconds of a full run


@click.command(short_help="Draw the figures of a paper and test its claims.")
@click.argument("paper", metavar="PAPER")
@click.argument("figure", required=False)
@click.option(
    "--out",
    default="results",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where to write.",
)
@click.option(
    "--quick", is_flag=True, help="Smaller problems: to see that all runs, without a verdict."
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option(
    "--resume", is_flag=True, help="Leave out figures, and parts, that are there already."
)
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="How many parts of a figure are made at a time.",
)
def reproduce(
    paper: str,
    figure: str | None,
    out: Path,
    quick: bool,
    force: bool,
    resume: bool,
    processes: int,
) -> None:
    """Draw the figures of a PAPER or one FIGURE (5, table2), and test its claims.

    Papers are rvga, lrvga, factor_analysis, vifa, klprox and silk; "all" makes every figure, the shortest
    first. Figures whose data are missing are left out and named at the end.
    """
    with errors_as_sentences():
        if paper not in (*PAPERS, ALL):
            raise ValueError(f"there is no paper {paper!r}; choose from {', '.join(PAPERS)}.")
        jobs = _jobs(paper, figure)
        if resume:
            jobs = [job for job in jobs if not _made(job, out, quick)]
        for job in jobs:
            _check(out / job.paper, job.figure, force or resume)
        with parts.keeping(out / "parts" if resume and not quick else None, processes):
            missing = _run(jobs, out, quick, alone=figure is not None)
        chosen = dict.fromkeys(PAPERS if paper == ALL else (paper,))
        claims = [row for name in chosen for row in _collected(out / name)]
        if figure is not None:
            claims = [row for row in claims if row["figure"] == figure]
    _print_claims(claims)
    click.echo(f"wrote {out if paper == ALL else out / paper}")
    if missing:
        names, reason = " and ".join(missing), str(next(iter(missing.values())))
        raise Refusal(f"{names} could not be made: {reason}")


def _jobs(paper: str, figure: str | None) -> list[Job]:
    """What was asked for; of several papers, or of a whole one, the shortest first."""
    jobs = []
    for name in PAPERS if paper == ALL else (paper,):
        with late_imports():
            experiments = import_module(PAPERS[name])
        figures = {str(number): make for number, make in experiments.FIGURES.items()}
        if figure is not None and figure not in figures:
            raise ValueError(f"{name} has {_range_of(figures)}; got {figure}.")
        jobs += [
            Job(name, number, make, records.seconds_expected(name, number))
            for number, make in figures.items()
            if figure in (None, number)
        ]
    return sorted(jobs, key=lambda job: job.expected or 0.0) if paper == ALL else jobs


def _made(job: Job, out: Path, quick: bool) -> bool:
    record = records.read(out / job.paper, job.figure)
    return record is not None and (quick or record.run == records.FULL)


def _check(folder: Path, figure: str, force: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    check_table_path(folder / f"{records.stem(figure)}.csv", (), force=force)
    check_picture_path(folder / f"{records.stem(figure)}.png", force=force)


def _run(jobs: list[Job], out: Path, quick: bool, alone: bool) -> dict[str, Exception]:
    """Make the figures one after the other; what could not be made, and why."""
    missing: dict[str, Exception] = {}
    for job in _told(jobs, quick):
        try:
            _make(job, out / job.paper, quick)
        except KeyboardInterrupt as error:
            raise Stopped("stopped; what was made is kept, and --resume makes the rest.") from error
        except (OSError, ValueError) as error:
            if alone:
                raise
            missing[f"{job.paper} {job.figure}"] = error
    return missing


def _told(jobs: list[Job], quick: bool) -> Iterator[Job]:
    """The jobs behind a bar that names the present one and says how long is left."""
    bar, began, done = tqdm(total=len(jobs), unit="figure"), time.perf_counter(), 0.0
    for i, job in enumerate(jobs):
        ahead = [other.expected for other in jobs[i:]]
        pace = (time.perf_counter() - began) / done if done else 1.0
        bar.set_description(f"{job.paper} {job.figure}{'' if quick else _left(ahead, pace)}")
        yield job
        done += job.expected or 0.0
        bar.update()
    bar.close()


def _left(seconds: list[float | None], pace: float) -> str:
    """How long is left, of what is known."""
    known = [value for value in seconds if value is not None]
    unknown = len(seconds) - len(known)
    beside = f" and {unknown} of unknown length" if unknown else ""
    return f", about {max(pace * sum(known) / 60, 1):.0f} min left{beside}" if known else ""


def _make(job: Job, folder: Path, quick: bool) -> None:
    """One figure: its table, its picture, and the record of both."""
    from kalvi import plots

    began, before = time.process_time(), len(parts.made_elsewhere())
    result = job.make(quick)
    figure = result.draw()
    name = records.stem(job.figure)
    if quick:
        figure.supxlabel(QUICK_NOTE, color=plots.COLOURS["EKF"], fontsize=12)
    table = [{"run": records.QUICK} | row for row in result.table] if quick else result.table
    _write_table(folder / f"{name}.csv", table)
    plots.save(figure, folder / f"{name}.png")
    others, run = parts.made_elsewhere()[before:], records.QUICK if quick else records.FULL
    seconds = round(time.process_time() - began + sum(part.seconds for part in others), 1)
    machines = dict.fromkeys([*(part.machine for part in others), records.machine()])
    known = job.paper, job.figure, result.title, run, seconds, " and ".join(machines)
    records.Record(*known, result.claim_rows(quick)).write(folder)


def _collected(folder: Path) -> list[dict[str, Any]]:
    """The claims of all figures in a folder, which go to one table."""
    experiments = import_module(PAPERS[folder.name])
    found = [records.read(folder, str(number)) for number in experiments.FIGURES]
    claims = [row for record in found if record is not None for row in record.claims]
    if claims:
        _write_table(folder / "claims.csv", claims)
    return claims


def _range_of(names: Iterable[str]) -> str:
    """What a paper has, for a person who asked for something else."""
    numbers = [name for name in names if name[0].isdigit()]
    tables = "".join(f", {name}" for name in names if not name[0].isdigit())
    return f"figures {numbers[0]} to {numbers[-1]}{tables}"


def _write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rows as a CSV file, which appears when it is whole."""
    rows = list(rows)
    with complete_file(path, "w") as file:
        writer = csv.DictWriter(
            file, list(dict.fromkeys(key for row in rows for key in row)), restval=""
        )
        writer.writeheader()
        writer.writerows(rows)


def _print_claims(claims: list[dict[str, Any]]) -> None:
    """One line per claim: figure, verdict, what the paper says; the numbers below it."""
    wrapped = textwrap.TextWrapper(100, initial_indent=" " * 14, subsequent_indent=" " * 14)
    for claim in claims:
        verdict = click.style(f"{claim['verdict']:<9}", fg=COLOURS.get(claim["verdict"], "yellow"))
        ours = " (ours)" if claim["whose"] == "ours" else ""
        click.echo(f"{claim['figure']:>6}  {verdict} {claim['claim']}{ours}")
        click.echo(wrapped.fill(claim["numbers"]))
    judged = [claim["verdict"] for claim in claims if claim["verdict"] != records.NO_VERDICT]
    if len(judged) < len(claims):
        click.echo(QUICK_NOTE)
    if judged:
        counts = {word: judged.count(word) for word in ("held", "refuted")}
        click.echo(
            f"{counts['held']} of {len(judged)} claims held, {counts['refuted']} refuted, "
            f"{len(judged) - sum(counts.values())} depend on the draw"
        )


if __name__ == "__main__":
    reproduce(prog_name="python -m papers")
