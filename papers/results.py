"""What an experiment hands back: numbers, the paper's claims judged by them, and a picture."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kalvi.plots import Figure

Table = list[dict[str, Any]]


class Claim(NamedTuple):
    """A statement of the paper, the numbers that bear on it, and whether they bear it out."""

    text: str
    numbers: dict[str, float]
    held: bool

    @property
    def verdict(self) -> str:
        """One word."""
        return "held" if self.held else "refuted"


class Result(NamedTuple):
    """One figure, or a table under its name; `draw` makes its picture."""

    number: int | str
    title: str
    table: Table
    claims: list[Claim]
    draw: Callable[[], Figure]

    def claim_rows(self) -> Table:
        """The claims as rows of a table."""
        return [
            {
                "figure": self.number,
                "verdict": claim.verdict,
                "claim": claim.text,
                "numbers": ", ".join(
                    f"{name} {value:.5g}" for name, value in claim.numbers.items()
                ),
            }
            for claim in self.claims
        ]
