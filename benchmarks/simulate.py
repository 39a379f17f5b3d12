"""python benchmarks/simulate.py: memory, network and time of a pass, on paper, from measured rates.

The rates of benchmarks/rates.json are of one core and of one H200, at rank p = 20, blocks of b = 64 dense
rows, float32, logistic regression. On one device a row of d parameters takes

    t(d) = start + slope d        (least squares in relative error over the measured points).

Parameters over m devices: t(d/m) and, a block, `SUMS` sums of (p + b)² numbers that wait for the network.
Rows over K workers: N/K rows each, then ⌈log₂ K⌉ rounds in which a posterior of 4 d (p + 2) bytes is sent
and merged.
`--write` puts the tables into docs/scaling.md.
"""

import json
import math
import sys
from pathlib import Path
from typing import NamedTuple

RATES = json.loads(Path(__file__).with_name("rates.json").read_text("utf-8"))
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
RANK, BLOCK, FLOAT = RATES["rank"], RATES["block_size"], 4
DIMS = (10**6, 10**7, 10**8, 10**9, 10**10)
ROWS = (10**6, 10**9, 10**12)
NETWORK, SUMS = 10e9, 3
"""Bytes a second between workers (assumed), sums over devices a block."""
HOST, WAIT, FAR = 8, 30e-6, 100e-6
"""Devices of a host, and seconds until a sum over them, or over several hosts, is back (assumed)."""
BEGIN, END = "<!-- simulated: begin -->\n", "<!-- simulated: end -->\n"


class Machine(NamedTuple):
    """`devices` hold the parameters together; `workers` such groups share the rows."""

    name: str
    kind: str
    devices: int
    workers: int
    room: float

    def seconds(self, d: int, n: int) -> float | None:
        """A pass over n rows of d parameters; None where they have no room."""
        part = d / self.devices
        if peak(self.kind, part) > self.room:
            return None
        row = rate(self.kind, part)
        if self.devices > 1:
            row += SUMS * (WAIT if self.devices <= HOST else FAR) / BLOCK
        rounds = math.ceil(math.log2(self.workers))
        merge = RATES["machines"]["core"]["merge_seconds_per_parameter"] * part
        return n / self.workers * row + rounds * (state(d) / self.devices / NETWORK + merge)

    def measured(self, d: int) -> bool:
        """Whether the rate is of this size on this machine."""
        alone = self.devices == self.workers == 1
        return alone and d in [point["dim"] for point in points(self.kind)]


MACHINES = (
    Machine("one core", "core", 1, 1, 64e9),
    Machine("100 workers of one core", "core", 1, 100, 64e9),
    Machine("one H200", "H200", 1, 1, 140e9),
    Machine("8 H200", "H200", 8, 1, 140e9),
    Machine("100 × 8 H200", "H200", 8, 100, 140e9),
    Machine("10 × 80 H200", "H200", 80, 10, 140e9),
)


def points(kind: str) -> list[dict]:
    """What was measured on a kind of device."""
    return RATES["machines"][kind]["points"]


def line(x: list[float], y: list[float]) -> tuple[float, float]:
    """Intercept and slope that are nearest in relative error, neither below 0."""
    weight = [1 / v**2 for v in y]
    total = sum(weight)
    mean_x = sum(w * a for w, a in zip(weight, x, strict=True)) / total
    mean_y = sum(w * b for w, b in zip(weight, y, strict=True)) / total
    across = sum(w * (a - mean_x) ** 2 for w, a in zip(weight, x, strict=True))
    both = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weight, x, y, strict=True))
    slope = both / across
    start = mean_y - slope * mean_x
    return (start, slope) if start > 0 else (0.0, mean_y / mean_x)


def fitted(kind: str, what: str, d: float) -> float:
    """A measured quantity at a size: as measured, or on the line through the measured ones."""
    known = {point["dim"]: point[what] for point in points(kind)}
    if d in known:
        return known[d]
    start, slope = line(list(known), list(known.values()))
    return start + slope * d


def rate(kind: str, d: float) -> float:
    """Seconds a row on one device."""
    return fitted(kind, "seconds_per_row", d)


def peak(kind: str, d: float) -> float:
    """Bytes that one device holds at most, a block of dense rows included."""
    return fitted(kind, "peak_bytes", d)


def state(d: int) -> float:
    """Bytes of a posterior: factor, mean and diagonal."""
    return FLOAT * d * (RANK + 2)


def size(value: float) -> str:
    """Bytes in words."""
    power = min(int(math.log10(value) // 3), 4)
    value, unit = value / 1000**power, ("B", "kB", "MB", "GB", "TB")[power]
    return f"{value:.2g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def duration(seconds: float | None) -> str:
    """Seconds in words."""
    if seconds is None:
        return "no room"
    steps = (
        (60, "s", 1),
        (3600, "min", 60),
        (2 * 86400, "h", 3600),
        (2 * 365 * 86400, "days", 86400),
    )
    unit, by = next(((u, b) for limit, u, b in steps if seconds < limit), ("years", 365 * 86400))
    value = seconds / by
    return f"{value:.2g} {unit}" if value < 100 else f"{float(f'{value:.2g}'):,.0f} {unit}"


def power(n: int) -> str:
    return f"$10^{{{round(math.log10(n))}}}$"


def memory_table() -> list[str]:
    """What a number of parameters takes, whatever the rows."""
    head = [
        "$d$",
        "posterior",
        "peak, one core",
        "peak, one H200",
        "H200s that hold it",
        "sent a merge",
    ]
    head.append("sent a block, over devices")
    lines = [head, ["---"] * len(head)]
    for d in DIMS:
        cells = [power(d), size(state(d))]
        for kind in ("core", "H200"):
            text = size(peak(kind, d))
            cells.append(f"**{text}**" if d in [p["dim"] for p in points(kind)] else text)
        devices = next(m for m in range(1, 10**6) if peak("H200", d / m) < MACHINES[2].room)
        sums = SUMS * FLOAT * (RANK + BLOCK) ** 2
        lines.append([*cells, str(devices), size(state(d)), size(sums)])
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def time_table() -> list[str]:
    """A pass over the rows, machine by machine."""
    head = ["$N$", "$d$", *(machine.name for machine in MACHINES)]
    lines = [head, ["---"] * len(head)]
    for n in ROWS:
        for d in DIMS:
            cells = [power(n), power(d)]
            for machine in MACHINES:
                text = duration(machine.seconds(d, n))
                cells.append(f"**{text}**" if machine.measured(d) else text)
            lines.append(cells)
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def tables() -> str:
    """Both, as they stand in the page."""
    return "\n".join(["", *memory_table(), "", *time_table(), "", ""])


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    if "--write" in sys.argv:
        PAGE.write_text(before + BEGIN + tables() + END + after, "utf-8")
    print(tables())


if __name__ == "__main__":
    main()
