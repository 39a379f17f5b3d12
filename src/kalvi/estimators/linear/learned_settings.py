"""What a stream has learned of its settings: weights over time, what was chosen, when the world changed."""

from typing import Any, NamedTuple

import numpy as np

from kalvi.rules.side_by_side import Grid, History, Point

SURE = 0.01
"""A hypothesis of less weight is out of the question."""


class LearnedSettings(NamedTuple):
    """Settings of a stream and how probable each was, after each turn and now (the last entries).

    Attributes
    ----------
    prior_scale, drift : float
        Those with the most weight now.
    rows : array of shape (t,)
        How many rows had been learned.
    scales, scale_weights : arrays of shape (a,) and (t, a)
        The prior scales, and the weight of each.
    drifts, drift_weights : arrays of shape (b,) and (t, b)
        What a row keeps of the past, and the weight of each; 1 stands still.
    surprises : array
        After how many rows those just learned had been predicted much worse than usual.
    """

    prior_scale: float
    drift: float
    rows: np.ndarray
    scales: np.ndarray
    scale_weights: np.ndarray
    drifts: np.ndarray
    drift_weights: np.ndarray
    surprises: np.ndarray

    @property
    def changing(self) -> np.ndarray:
        """How probable it is that coefficients change, after each turn and now."""
        return self.drift_weights[:, self.drifts < 1].sum(axis=1)

    def words(self) -> list[str]:
        """What was learned, as sentences."""
        said = [f"The prior scale with the most evidence is {self.prior_scale:.3g}."]
        p = float(self.changing[-1])
        if len(self.drifts) == 1:
            return said
        if p > 1 - SURE:
            memory = 1 / (1 - min(self.drift, self.drifts[self.drifts < 1].max()))
            said.append(
                f"Coefficients change: the memory with the most evidence is {memory:,.0f} rows."
            )
        elif p < SURE:
            said.append("Coefficients do not change.")
        else:
            said.append(f"Whether coefficients change is open: the probability is {p:.2f}.")
        if len(self.surprises):
            last = f"{self.surprises[-1]:,}"
            said.append(
                f"Rows were predicted much worse than usual {len(self.surprises)} times, last before row "
                f"{last}: the world may have changed then."
            )
        return said


def summarise(
    grid: Grid, history: History, log_weights: np.ndarray, n_rows: int, point: Point | None
) -> LearnedSettings:
    """The history of a stream with the weights of now as its end."""
    rows = np.append(history.rows, n_rows)
    weights = np.exp(np.vstack([history.log_weights, log_weights]))
    table: Any = weights.reshape(len(rows), len(grid.scales), len(grid.keeps))
    assert point is not None
    return LearnedSettings(
        point.scale,
        point.keep,
        rows,
        np.array(grid.scales),
        table.sum(axis=2),
        np.array(grid.keeps),
        table.sum(axis=1),
        history.surprises,
    )
