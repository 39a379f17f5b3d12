"""docs/benchmarks.md out of what the parts found."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.report import CLOSE

PACKAGES = {
    "here": ("kalvi", "jax", "numpy", "scipy"),
    "peers": (
        *("bayesianbandits", "river", "scikit-learn", "numpyro", "polyagamma"),
        *("gpjax", "gpytorch", "torch", "laplace-torch", "ivon-opt", "posteriors"),
        *("dask", "distributed"),
    ),
}

OPENING = """# Benchmarks

`make bench` writes this page: it installs the packages that kalvi is compared with and runs everything
below{how}. Nothing here is typed by hand.

{machine}

- **Times** are those of fitting, after compilation unless a column says otherwise. Parts on one core pin
  every library to one thread on it and count CPU seconds; parts on two cores count elapsed seconds.
  Contenders of a table take turns, round after round, so that a slow moment of the machine affects all.
- **Ratios** say how many times faster kalvi is: the median of the rounds, and in brackets the lowest and
  the highest. A ratio in bold is below 1: the peer is faster.
- **Settings** of the peers are their defaults or those of an example in their documentation. If a peer was
  given more (the best of several steps, a compiled loop), the text says so.
- Losses within {close} nats of each other are called equal.
"""


APART = ", part by part; the parts were run at different times"


QUICK = (
    "```{{warning}}\n{which}: quick runs, with small sizes and few rounds. They show that everything runs, "
    "not how fast it is.\n```\n"
)


def page(parts: dict[str, Any], found: dict[str, dict], seconds: float | None) -> str:
    """The page; `parts` says order and titles. Without seconds, the parts ran at different times."""
    how = APART if seconds is None else " in one go"
    text = [OPENING.format(machine=machine(), close=CLOSE, how=how)]
    if quick := [parts[name].title for name, part in found.items() if part["quick"]]:
        text.append(QUICK.format(which=", ".join(quick)))
    text.append("## Where we lose\n")
    losses = [
        f"- {parts[name].title}. {loss}" for name, part in found.items() for loss in part["losses"]
    ]
    text.append("\n".join(losses or ["Nowhere in this run."]) + "\n")
    for name, part in found.items():
        text += [f"## {parts[name].title}\n", *part["text"]]
        if "minutes" in part:
            text.append(f"*{part['minutes']:.1f} minutes.*\n")
    if seconds is not None:
        text.append(f"The whole run took {seconds / 60:.0f} minutes.")
    return "\n".join(text) + "\n"


def machine() -> str:
    """The processor, when, and the versions of what ran."""
    versions = {
        kind: ", ".join(f"{name} {version(name)}" for name in names)
        for kind, names in PACKAGES.items()
    }
    return (
        f"{processor()}, {os.cpu_count()} cores, {memory():.0f} GB of memory; "
        f"{datetime.date.today().isoformat()}; Python {platform.python_version()}, {versions['here']}. "
        f"Peers: {versions['peers']}."
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), "")
    return model or platform.processor()


def memory() -> float:
    """Gigabytes of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
