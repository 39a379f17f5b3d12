"""What a part of the benchmarks found: prose, tables and losses."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CLOSE = 0.001
"""Nats: losses and scores that are closer than this are called equal."""


class Report:
    """Markdown, printed as it comes and kept for the page."""

    def __init__(self, path: Path | None = None, quick: bool = False):
        self.path = path  # written after every line, so that nothing found is lost
        self.quick = quick
        self.text: list[str] = []
        self.losses: list[str] = []

    @classmethod
    def read(cls, path: Path) -> "Report":
        """What was written to a path, or nothing yet."""
        report = cls(path)
        if path.exists():
            kept = json.loads(path.read_text())
            report.text, report.losses = kept["text"], kept["losses"]
            report.quick = kept["quick"]
        return report

    def line(self, text: str) -> None:
        print(text, flush=True)
        self.text += [text, ""]
        self.save()

    def heading(self, text: str) -> None:
        self.line(f"### {text}")

    def table(self, header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> None:
        cells = [[str(c).replace("|", "\\|") for c in row] for row in [header, *rows]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        self.line("\n".join(lines))

    def faster(self, peer: str, ratios, where: str) -> str:
        """How many times faster kalvi was, lowest to highest of the rounds; a median below 1 is a loss."""
        low, middle, high = np.quantile(np.atleast_1d(ratios), [0, 0.5, 1])
        spread = "" if np.size(ratios) == 1 else f" ({low:.3g} to {high:.3g})"
        if middle < 1:
            self.losses.append(f"{where}: {peer} is {1 / middle:.3g} times faster.")
            return f"**{middle:.3g}**{spread}"
        return f"{middle:.3g}{spread}"

    def closer(self, peer: str, ours: float, theirs: float, where: str, what="log loss") -> None:
        """Where a loss is to be small: ours being larger is a loss too."""
        if ours > theirs + CLOSE:
            self.losses.append(
                f"{where}: the {what} of {peer} is lower, {theirs:.4g} against {ours:.4g}."
            )

    def failed(self, what: str, error: BaseException) -> None:
        """A peer that does not run is said to, and the rest goes on."""
        words = " ".join(str(error).split())[:160]
        self.line(f"*{what} did not run here: {type(error).__name__}: {words}*".replace("|", "/"))

    def save(self) -> None:
        kept = {"text": self.text, "losses": self.losses, "quick": self.quick}
        if self.path is not None:
            self.path.write_text(json.dumps(kept, indent=1))


def spread(values) -> str:
    """The median, and from the lowest to the highest."""
    low, middle, high = map(number, np.quantile(np.atleast_1d(values), [0, 0.5, 1]))
    return middle if np.size(values) == 1 else f"{middle} ({low} to {high})"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
