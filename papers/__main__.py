"""`python -m papers PAPER [FIGURE]`: the figures of a paper, with its claims put to the test."""

import csv
import textwrap
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from kalvi.cli.console import Refusal, loading, refusing, written
from kalvi.cli.outputs import check_picture_path, check_table_path

FORCE = click.option("--force", is_flag=True, help="Replace files that are there.")

PAPERS = {
    "rvga": "papers.rvga",
    "lrvga": "papers.lrvga",
    "factor_analysis": "papers.factor_analysis",
    "vifa": "papers.vifa",
    "klprox": "papers.klprox",
    "silk": "papers.silk",
}


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
@click.option("--quick", is_flag=True, help="Smaller problems, the first panel of each figure.")
@FORCE
def reproduce(paper: str, figure: str | None, out: Path, quick: bool, force: bool) -> None:
    """Draw the figures of a PAPER or one FIGURE (5, table2), and test its claims.

    Papers are rvga, lrvga, factor_analysis, vifa, klprox and silk. Of a whole paper, figures whose data are
    missing are left out and named at the end.
    """
    with refusing():
        if paper not in PAPERS:
            raise ValueError(f"there is no paper {paper!r}; choose from {', '.join(PAPERS)}.")
        with loading():
            from kalvi import plots

            experiments = import_module(PAPERS[paper])
        figures = {str(number): make for number, make in experiments.FIGURES.items()}
        if figure is not None and figure not in figures:
            raise ValueError(f"{paper} has {_range_of(figures)}; got {figure}.")
        where = out / paper
        where.mkdir(parents=True, exist_ok=True)
        chosen = [figure] if figure else list(figures)
        for name in chosen:
            check_table_path(where / f"{_stem(name)}.csv", (), force=force)
            check_picture_path(where / f"{_stem(name)}.png", force=force)
        claims: list[dict[str, Any]] = []
        missing: dict[str, Exception] = {}
        bar = tqdm(chosen, desc=f"{paper} figures", unit="figure")
        for name in bar:
            bar.set_postfix_str(name)
            try:
                result = figures[name](quick)
            except (OSError, ValueError) as error:
                if figure is not None:
                    raise
                missing[name] = error
                continue
            _write_table(where / f"{_stem(name)}.csv", result.table)
            plots.save(result.draw(), where / f"{_stem(name)}.png")
            claims += result.claim_rows()
        ending = f"_{_padded(figure)}" if figure else ""
        _write_table(where / f"claims{ending}.csv", claims)
    _print_claims(claims)
    click.echo(f"wrote {where}")
    if missing:
        names, reason = " and ".join(missing), str(next(iter(missing.values())))
        raise Refusal(f"{paper} {names} could not be made: {reason}")


def _stem(name: str) -> str:
    """The name of a figure's files, without their endings."""
    return f"figure_{_padded(name)}" if name[0].isdigit() else name


def _padded(name: str) -> str:
    """A figure's number with two digits; a table's name as it is."""
    return f"{int(name):02d}" if name.isdigit() else name


def _range_of(names: Iterable[str]) -> str:
    """What a paper has, for a person who asked for something else."""
    numbers = [name for name in names if name[0].isdigit()]
    tables = "".join(f", {name}" for name in names if not name[0].isdigit())
    return f"figures {numbers[0]} to {numbers[-1]}{tables}"


def _write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rows as a CSV file, which appears when it is whole."""
    rows = list(rows)
    with written(path, "w") as file:
        writer = csv.DictWriter(
            file, list(dict.fromkeys(key for row in rows for key in row)), restval=""
        )
        writer.writeheader()
        writer.writerows(rows)


def _print_claims(claims: list[dict[str, Any]]) -> None:
    """One line per claim: figure, verdict, what the paper says; the numbers below it."""
    wrapped = textwrap.TextWrapper(100, initial_indent=" " * 14, subsequent_indent=" " * 14)
    for claim in claims:
        colour = "green" if claim["verdict"] == "held" else "red"
        verdict = click.style(f"{claim['verdict']:<8}", fg=colour)
        click.echo(f"{claim['figure']:>6}  {verdict} {claim['claim']}")
        click.echo(wrapped.fill(claim["numbers"]))
    held = sum(claim["verdict"] == "held" for claim in claims)
    click.echo(f"{held} of {len(claims)} claims held")


if __name__ == "__main__":
    reproduce(prog_name="python -m papers")
