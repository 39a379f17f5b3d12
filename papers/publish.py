"""`python -m papers.publish RESULTS PAGES`: full runs as pages, with pictures of modest size.

RESULTS is a folder that `python -m papers` wrote. PAGES gets the record of every full run in it, its table
if that is small, and its picture with fewer pixels and colours; quick runs are left out. Records that are
already in PAGES stay there, and the pages list all.
"""

import shutil
from importlib import import_module
from pathlib import Path

import click
from PIL import Image

from kalvi.cli.console import complete_file, errors_as_sentences
from papers import records
from papers.__main__ import PAPERS
from papers.records import Record

TITLES = {
    "rvga": "R-VGA",
    "lrvga": "L-RVGA",
    "factor_analysis": "Online factor analysis",
    "vifa": "SGD iterates and VIFA",
    "klprox": "KL-proximal inference",
    "silk": "SILK",
}
WIDTH, COLOURS = 1100, (255, 64, 24)
"""The width of a picture in pixels, and its colours: as many as fit `LARGEST_PICTURE` bytes."""
LARGEST_PICTURE = 190_000
LARGEST_TABLE = 100_000
"""In bytes; larger tables are not published."""


@click.command()
@click.argument("results", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("pages", type=click.Path(path_type=Path))
def publish(results: Path, pages: Path) -> None:
    """Turn the full runs in RESULTS into PAGES."""
    with errors_as_sentences():
        for paper in PAPERS:
            for record in found(results, paper):
                _copy(record, results / paper, pages / paper)
        present = {paper: found(pages, paper) for paper in PAPERS}
        present = {paper: made for paper, made in present.items() if made}
        for paper, made in present.items():
            _write(pages / f"{paper}.md", "\n".join(_page(paper, made, pages / paper)))
        _write(pages / "statements.md", "\n".join(_statements(present)))
        _write(pages / "index.md", "\n".join(_index(present)))
    click.echo(f"wrote {sum(map(len, present.values()))} figures and tables to {pages}")


def found(folder: Path, paper: str) -> list[Record]:
    """The full runs of a paper in a folder, in the order of its figures."""
    figures = import_module(PAPERS[paper]).FIGURES
    made = [records.read(folder / paper, str(figure)) for figure in figures]
    return [record for record in made if record is not None and record.run == records.FULL]


def _copy(record: Record, source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    name = records.stem(record.figure)
    table = source / f"{name}.csv"
    if table.stat().st_size <= LARGEST_TABLE:
        shutil.copy(table, target / table.name)
    with Image.open(source / f"{name}.png") as picture:
        small = picture.convert("RGB")
        small.thumbnail((WIDTH, 4 * WIDTH), Image.Resampling.LANCZOS)
        for colours in COLOURS:
            small.quantize(colours).save(target / f"{name}.png", optimize=True)
            if (target / f"{name}.png").stat().st_size <= LARGEST_PICTURE:
                break
    record.write(target)


def _page(paper: str, made: list[Record], folder: Path) -> list[str]:
    """A section for each figure: the picture, the claims, what it took."""
    lines = [f"# Results: {TITLES[paper]}", ""]
    lines += ["Every figure and table at full size. [](index.md) explains the verdicts.", ""]
    for record in made:
        name = records.stem(record.figure)
        heading = name.replace("_", " ").replace("figure 0", "figure ").capitalize()
        lines += [f"## {heading}. {record.title}", "", f"![{record.title}]({paper}/{name}.png)", ""]
        table = f"{paper}/{name}.csv"
        numbers = f"[Its numbers]({table})" if (folder / f"{name}.csv").exists() else ""
        took = f"{record.seconds:,.0f} seconds of processor time on {record.machine}."
        lines += [
            f"{took} {numbers}".rstrip(),
            "",
            "| verdict | statement | numbers |",
            "|---|---|---|",
        ]
        for claim in record.claims:
            ours = " *(ours)*" if claim["whose"] == "ours" else ""
            lines.append(
                f"| {claim['verdict']} | {_cell(claim['claim'])}{ours} | {_cell(claim['numbers'])} |"
            )
        lines.append("")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _index(present: dict[str, list[Record]]) -> list[str]:
    """The overview of all figures, with how often the statements of the papers hold."""
    lines = [
        "# Results of the papers' experiments",
        "",
        "`make reproduce` and `python -m papers.publish results docs/results` make these pages. A",
        "statement *held* or is *refuted* if one run decides or all draws of the data agree; otherwise the",
        "table says in how many draws it held. Statements marked as ours are not in the documents.",
        "",
        "| paper | figures and tables | statements | held | refuted | depend on the draw | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for paper, made in present.items():
        verdicts = [c["verdict"] for record in made for c in record.claims]
        held, refuted = verdicts.count("held"), verdicts.count("refuted")
        numbers = len(made), len(verdicts), held, refuted, len(verdicts) - held - refuted
        seconds = f"{sum(record.seconds for record in made):,.0f}"
        cells = " | ".join(map(str, (*numbers, seconds)))
        lines.append(f"| [{TITLES[paper]}]({paper}.md) | {cells} |")
    lines += ["", "[All statements with their verdicts](statements.md), one line each."]
    names = [*present, "statements"]
    return [*lines, "", "```{toctree}", ":hidden:", "", *names, "```", ""]


def _statements(present: dict[str, list[Record]]) -> list[str]:
    """Every statement of the documents that a run decides."""
    lines = [
        "# Statements and verdicts",
        "",
        "The page of each paper has these statements with their numbers.",
        "",
    ]
    for paper, made in present.items():
        lines += [f"## {TITLES[paper]}", ""]
        for whose, heading in (("paper", "The document's"), ("ours", "Ours")):
            claims = [c for record in made for c in record.claims if c["whose"] == whose]
            rows = [f"| {c['figure']} | {_cell(c['claim'])} | {c['verdict']} |" for c in claims]
            if rows:
                head = ["| figure | statement | verdict |", "|---|---|---|"]
                lines += [f"{heading}:", "", *head, *rows, ""]
    return lines


def _write(path: Path, text: str) -> None:
    with complete_file(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    publish(prog_name="python -m papers.publish")
