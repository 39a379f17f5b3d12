"""python -m benchmarks [--quick] [part ...]: every comparison, each in a process of its own.

All parts together write docs/benchmarks.md and docs/images/scaling.svg; parts that are named only print,
and leave what they found under results/bench.
"""

import argparse
import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import benchmarks
from benchmarks.page import page
from benchmarks.parts import LONG, PARTS, Part
from benchmarks.report import Report

ALL = PARTS | LONG
FOUND = Path("results/bench")
PAGE, PICTURE = Path("docs/benchmarks.md"), Path("docs/images/scaling.svg")


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, some minutes in all")
    parser.add_argument(
        "--page", action="store_true", help="run nothing: the page out of what parts found before"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(ALL):
        parser.error(f"no part called {', '.join(unknown)}; choose of {', '.join(ALL)}")
    FOUND.mkdir(parents=True, exist_ok=True)
    if args.here:
        return here(args.parts[0], args.quick)
    if args.page:
        kept = {name: FOUND / f"{name}.json" for name in PARTS}
        found = {name: json.loads(path.read_text()) for name, path in kept.items() if path.exists()}
        return publish(found, None)
    began = time.monotonic()
    found = {name: apart(name, ALL[name], args.quick) for name in args.parts or PARTS}
    return None if args.parts else publish(found, time.monotonic() - began)


def publish(found: dict[str, dict], seconds: float | None) -> None:
    """The page and its figure."""
    if (figure := FOUND / "scaling.svg").exists():
        shutil.copy(figure, PICTURE)
    PAGE.write_text(page(PARTS, found, seconds))
    print(f"wrote {PAGE}")


def apart(name: str, part: Part, quick: bool) -> dict:
    """What a part found in a process of its own, or why it did not end."""
    print(f"\n## {part.title}\n", flush=True)
    path, began = FOUND / f"{name}.json", time.monotonic()
    path.unlink(missing_ok=True)
    words = [sys.executable, "-m", "benchmarks", name, "--here", *(["--quick"] if quick else [])]
    environment = os.environ | {"BENCH_CORES": str(part.cores)}
    process = subprocess.Popen(
        words,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, benchmarks.ALL),  # this process has but one
    )
    try:
        process.wait(120 * part.minutes)
    except subprocess.TimeoutExpired:
        error = TimeoutError(f"it was not done after {2 * part.minutes:g} minutes.")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        Report.read(path).failed(f"The rest of `{name}`", error)
    else:
        if process.returncode:
            error = RuntimeError(f"its process ended with {process.returncode}.")
            Report.read(path).failed(f"The rest of `{name}`", error)
    found = json.loads(path.read_text()) | {"minutes": (time.monotonic() - began) / 60}
    path.write_text(json.dumps(found, indent=1))
    return found


def here(name: str, quick: bool) -> None:
    """One part in this process."""
    part, report = ALL[name], Report(FOUND / f"{name}.json", quick)
    if part.needs and importlib.util.find_spec(part.needs) is None:
        report.line(f"`{part.needs}` is not there: left out.")
        return
    try:
        home = importlib.import_module(f"benchmarks.{part.home}")
        report.line((home.__doc__ or "").strip())
        getattr(home, part.function)(report, quick)
    except Exception as error:
        traceback.print_exc()
        report.failed(f"The rest of `{name}`", error)
    report.save()


if __name__ == "__main__":
    main()
