"""python -m benchmarks [--quick] [part ...]: print the tables and write them under results/."""

import argparse
import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

from benchmarks import CORES, rvga
from benchmarks.accuracy import accuracy
from benchmarks.collectors import collectors
from benchmarks.klprox import klprox_part
from benchmarks.lrvga import lrvga
from benchmarks.mnist import mnist
from benchmarks.network_memory import network_memory
from benchmarks.networks import networks
from benchmarks.silk import silk_part
from benchmarks.streams import streams
from benchmarks.tables import tables

PARTS = {**rvga.PARTS, "lrvga": lrvga, "accuracy": accuracy, "streams": streams}
PARTS |= {"collectors": collectors, "networks": networks, "mnist": mnist}
PARTS |= {
    "network_memory": network_memory,
    "klprox": klprox_part,
    "silk": silk_part,
    "tables": tables,
}

PACKAGES = ("kalvi", "jax", "numpy", "scipy", "bayesianbandits", "river", "scikit-learn")


class Report:
    """Markdown, printed as it comes and kept for the file."""

    def __init__(self):
        self.text = []

    def line(self, text):
        print(text, flush=True)
        self.text += [text, ""]

    def heading(self, text):
        self.line(f"\n## {text}")

    def table(self, header, rows):
        cells = [[str(c) for c in row] for row in [header, *rows]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        self.line("\n".join(lines))


def machine():
    """The processor, when, and the versions of what ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), "")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    day = datetime.date.today().isoformat()
    return (
        f"{model or platform.processor()}, {CORES} of {os.cpu_count()} cores; {day}; "
        f"Python {platform.python_version()}, {versions}. "
        f"{'CPU seconds' if CORES == 1 else 'Seconds'}, after compilation."
    )


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    usual = ", ".join(rvga.PARTS)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; default {usual}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute or two")
    parser.add_argument("--rows", type=int, help="of the one pass of mnist; default 12288")
    parser.add_argument("--out", type=Path, help="default results/bench_rvga.md or _PART.md")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part called {', '.join(unknown)}; choose of {', '.join(PARTS)}")
    reports = {}
    for name in args.parts or rvga.PARTS:
        path = args.out or Path(f"results/bench_{'rvga' if name in rvga.PARTS else name}.md")
        if path not in reports:
            reports[path] = Report()
            reports[path].line("# Benchmarks")
            reports[path].line(machine())
        further = {"rows": args.rows} if name == "mnist" else {}
        PARTS[name](reports[path], args.quick, **further)
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(reports[path].text))


if __name__ == "__main__":
    main()
