"""What an experiment hands back: numbers, the paper's claims judged by them, and a picture."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kalvi.plots import Figure
from papers.records import NO_VERDICT, Table


class Claim(NamedTuple):
    """A statement, the numbers that bear on it, and whether they bear it out.

    `held` is one answer, or one for every draw of the data where the draw may decide. `ours` marks what the
    document does not say: a threshold or a comparison of our own.
    """

    text: str
    numbers: dict[str, float]
    held: bool | Sequence[bool]
    ours: bool = False

    @property
    def verdict(self) -> str:
        """One word, or how often it holds where the draw decides."""
        draws = np.atleast_1d(self.held).tolist()
        if all(draws):
            return "held"
        return f"held in {sum(draws)} of {len(draws)}" if any(draws) else "refuted"


class Result(NamedTuple):
    """One figure, or a table under its name; `draw` makes its picture."""

    number: int | str
    title: str
    table: Table
    claims: list[Claim]
    draw: Callable[[], Figure]

    def claim_rows(self, quick: bool = False) -> Table:
        """The claims as rows of a table; a quick run gives no verdict."""
        return [
            {
                "figure": str(self.number),
                "verdict": NO_VERDICT if quick else claim.verdict,
                "whose": "ours" if claim.ours else "paper",
                "claim": claim.text,
                "numbers": ", ".join(
                    f"{name} {value:.5g}" for name, value in claim.numbers.items()
                ),
            }
            for claim in self.claims
        ]
