"""python -m benchmarks [--quick] [part ...]: print the tables and write results/bench_rvga.md."""

import argparse
import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

from benchmarks.rvga import PARTS

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
        f"{model or platform.processor()}, one core of {os.cpu_count()}; {day}; "
        f"Python {platform.python_version()}, {versions}. CPU seconds, after compilation."
    )


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; default all"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute or two")
    parser.add_argument("--out", type=Path, default=Path("results/bench_rvga.md"))
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part called {', '.join(unknown)}; choose of {', '.join(PARTS)}")
    report = Report()
    report.line("# R-VGA benchmarks")
    report.line(machine())
    for name in args.parts or PARTS:
        PARTS[name](report, args.quick)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text("\n".join(report.text))


if __name__ == "__main__":
    main()
