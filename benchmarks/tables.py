"""`kalvi fit` on flights in time order, as Parquet and as CSV, in its own process.

Seconds, rows a second and the largest resident memory of the command, and its progressive log loss,
compared with `LogisticRegression.partial_fit` on rows made by pandas (the first 10,000 give the units).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import scipy.sparse as sp

import kalvi
from papers import datasets

ROWS, QUICK_ROWS, PIECE, FIRST = 1_000_000, 50_000, 8192, 10_000
LATE = 15
CATEGORIES = ("hour", "weekday", "origin", "dest")
COMMAND = """
import sys
from kalvi.cli import main
main(standalone_mode=False)
status = open("/proc/self/status").read().splitlines()
print(next(line for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""
"""Its memory is what it says itself: what the system counts of children begins with their parent's."""


def tables(report, quick):
    """The command on both files, and the library on the same rows."""
    rows = flights(QUICK_ROWS if quick else ROWS)
    loss, seconds = library(rows)
    found = [["library", f"{seconds:.1f}", f"{rows.num_rows / seconds:,.0f}", "", f"{loss:.9f}"]]
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("parquet", pq.write_table), ("csv", pa_csv.write_csv)):
            path = Path(folder) / f"flights.{name}"
            write(rows, path)
            found.append([name, *command(path, rows.num_rows)])
    report.heading(f"{rows.num_rows:,} flights")
    report.table(["", "seconds", "rows/s", "largest memory, GB", "progressive log loss"], found)


def flights(most):
    """Distance, hour, weekday, origin, destination, and whether the flight was late."""
    stored = datasets.load("flights3m")
    minute = np.cumsum(stored["minute_delta"].astype(np.int64))[:most]
    airports = stored["airports"].astype(str)
    return pa.table(
        {
            "distance": stored["distance"][:most].astype(np.int64),
            "hour": minute // 60 % 24,
            "weekday": minute // 1440 % 7,
            "origin": airports[stored["origin"][:most]],
            "dest": airports[stored["dest"][:most]],
            "late": np.where(stored["delay"][:most] > LATE, "yes", "no"),
        }
    )


def command(path, n):
    """Seconds, rows a second, gigabytes and the log loss of the command."""
    out = path.with_name(f"{path.name}.kalvi")
    arguments = f"fit {path} -t late -c hour -c weekday -o {out} --json".split()
    began = time.perf_counter()
    run = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    said, told = done.stdout, done.stderr.splitlines()[-1]
    memory = int(told.split()[1]) / 2**20
    loss = json.loads(said)["log_loss"]
    return [f"{seconds:.1f}", f"{n / seconds:,.0f}", f"{memory:.2f}", f"{loss:.9f}"]


def library(rows):
    """The progressive log loss of the estimator and its seconds, pieces of one-hot rows given in turn."""
    x, y = design(rows.to_pandas())
    model, began = kalvi.LogisticRegression(), time.perf_counter()
    for start in range(0, len(y), PIECE):
        part = slice(start, start + PIECE)
        model.partial_fit(x[part], y[part], classes=[0, 1])
    loss = -model.log_evidence_ / len(y)
    return loss, time.perf_counter() - began


def design(frame):
    """Distance in deviations of the first rows, and an indicator of each level."""
    first, n = frame["distance"][:FIRST], len(frame)
    columns = [((frame["distance"] - first.mean()) / first.std(ddof=0)).to_numpy()[:, None]]
    for name in CATEGORIES:
        codes = frame[name].astype("category").cat.codes.to_numpy()
        columns.append(sp.csr_array((np.ones(n), (np.arange(n), codes.astype(int)))))
    return sp.csr_array(sp.hstack(columns)), (frame["late"] == "yes").to_numpy().astype(int)
