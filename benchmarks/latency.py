"""Waiting times: imports, first fits of 1000 rows of 10 columns, single rows, searches.

Every number is elapsed time in a fresh process, the lowest of the rounds. kalvi keeps compiled programs
on disk: a process that finds none is timed first, then one that finds all of them. scikit-learn has the
model that is used for the same task: `BayesianRidge`, `LogisticRegression`, `PoissonRegressor`,
Gaussian processes, networks and factor analysis with their defaults, and `NMF` for the binary matrix.
The rows of river are already dictionaries.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.latency_tasks import FITS, IMPORTS, LEARNERS
from benchmarks.report import Report, number

ROWS, QUICK_ROWS = 1000, 200
CALLS, QUICK_CALLS = 2000, 200
SELECTED, QUICK_SELECTED = 6, 1
ROUNDS = 3
OURS, PEER = "kalvi", "scikit-learn"


class Question(NamedTuple):
    """A task with its arguments, and who does it beside kalvi."""

    title: str
    task: str
    arguments: tuple[str, ...] = ()
    peers: tuple[str, ...] = (PEER,)
    compiles: bool = True  # whether kalvi may have to


def latency(report: Report, quick: bool) -> None:
    """One table of everything."""
    rows = []
    for question in questions(quick):
        try:
            rows += answers(report, question, 1 if quick else ROUNDS)
        except subprocess.CalledProcessError as error:
            report.failed(question.title, RuntimeError(error.stderr.strip().splitlines()[-1]))
    header = ["", "kalvi, ms", "with nothing on disk, ms", "beside", "ms", "times faster"]
    report.table(header, rows)


def questions(quick: bool) -> list[Question]:
    """All that is asked."""
    rows = str(QUICK_ROWS if quick else ROWS)
    imports = tuple(name for name in IMPORTS if name != OURS)
    learners = tuple(name for name in LEARNERS if name != OURS)
    return [
        Question("", "imports", peers=imports, compiles=False),
        *(Question(f"{name}: ", "first_fit", (name, rows)) for name in FITS),
        Question("one row, ", "one_row", (str(QUICK_CALLS if quick else CALLS),), learners),
        Question("from a file: ", "load"),
        Question("two workers: ", "grid_search"),
        Question("13 columns: ", "selection", (str(QUICK_SELECTED if quick else SELECTED),)),
    ]


def answers(report: Report, question: Question, rounds: int) -> list[list[str]]:
    """A row of the table for every time that the task gives, and every peer."""
    times = [one_round(question) for _ in range(rounds)]
    rows = []
    for what in times[0][OURS]:
        ours, anew = (np.array([found[who][what] for found in times]) for who in (OURS, "anew"))
        for peer in question.peers:
            theirs = np.array([found[peer][what] for found in times])
            title = question.title + what
            cold = milliseconds(anew) if question.compiles else ""
            faster = report.faster(peer, theirs / ours, title)
            rows.append([title, milliseconds(ours), cold, peer, milliseconds(theirs), faster])
    return rows


def one_round(question: Question) -> dict[str, dict[str, float]]:
    """Everybody once: kalvi with an empty folder, then with the programs it left there, and the peers."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, who in [("anew", OURS), (OURS, OURS), *((peer, peer) for peer in question.peers)]:
            arguments = question.arguments
            if question.task == "load":
                arguments = (str(Path(folder) / f"{who}.model"),)
                ask("write", who, *arguments, folder=f"{folder}/written")
            found[name] = ask(question.task, who, *arguments, folder=folder)
    return found


def ask(task: str, who: str, *arguments: str, folder: str) -> dict[str, float]:
    """What a task takes in a fresh process that keeps its programs in a folder."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.latency_tasks", task, who, *arguments],
        env=environment | {"KALVI_CACHE": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def milliseconds(seconds: np.ndarray) -> str:
    return number(1000 * float(np.min(seconds)))
