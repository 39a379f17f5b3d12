"""What is kept of a figure that was made: beside its picture and its table a record in JSON.

The record says which run it was, its seconds of processor time (which other work on the machine does not
stretch), on which machine, and what became of the claims. A run
that was stopped resumes by the records in its folder; how long is left it estimates from those in
`docs/results`, which are of full runs.
"""

import json
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

from kalvi.cli.console import complete_file

Table = list[dict[str, Any]]
COMMITTED = Path(__file__).resolve().parents[1] / "docs" / "results"
"""The results that come with a checkout."""
FULL, QUICK = "full", "quick"
NO_VERDICT = "quick run"
"""What stands in place of a verdict where the problems were smaller than the paper's."""


class Record(NamedTuple):
    """One figure or table that was made."""

    paper: str
    figure: str
    title: str
    run: str
    seconds: float
    machine: str
    claims: Table

    def write(self, folder: Path) -> None:
        """Into the paper's folder, at once or not at all."""
        with complete_file(folder / f"{stem(self.figure)}.json", "w") as file:
            json.dump(self._asdict(), file, ensure_ascii=False, indent=1)


def read(folder: Path, figure: str) -> Record | None:
    """The record of a figure, if it was made."""
    path = folder / f"{stem(figure)}.json"
    return Record(**json.loads(path.read_text("utf-8"))) if path.exists() else None


def seconds_expected(paper: str, figure: str) -> float | None:
    """How long a full run took when the committed results were made."""
    record = read(COMMITTED / paper, figure)
    return None if record is None else record.seconds


def stem(figure: str) -> str:
    """The name of a figure's files, without their endings."""
    return f"figure_{padded(figure)}" if figure[0].isdigit() else figure


def padded(figure: str) -> str:
    """A figure's number with two digits; a table's name as it is."""
    return f"{int(figure):02d}" if figure.isdigit() else figure


def machine() -> str:
    """The processor and how many of its cores may be used."""
    return f"{_processor()}, {len(os.sched_getaffinity(0))} cores"


def _processor() -> str:
    info: dict[str, Any] = {}
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        lines = (line.partition(":") for line in cpus.read_text().splitlines())
        info = {key.strip(): value.strip() for key, _, value in lines}
    return info.get("model name") or platform.machine()
