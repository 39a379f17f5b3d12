"""The settings that a stream has learned: their weights over time, the choice, and the surprises."""

from typing import Any, NamedTuple

import numpy as np

from kalvi.rules.side_by_side import Grid, History, Point

SURE = 0.01
"""A hypothesis with less weight is ruled out."""


class LearnedSettings(NamedTuple):
    """The settings of a stream and their probabilities, after each turn and now (the last entries).

    Attributes
    ----------
    prior_scale, drift : float
        The settings with the most weight now; `prior_scale` as given, if it is.
    rows : array of shape (t,)
        The number of rows learned at each turn.
    scales, scale_weights : arrays of shape (a,) and (t, a)
        The prior scales, and the weight of each; only 1, relative to the given scale, if it is given.
    drifts, drift_weights : arrays of shape (b,) and (t, b)
        The shares of the past that a row keeps, and the weight of each; 1 means no drift.
    surprises : array
        The numbers of rows at which the latest rows had been predicted much worse than usual.
    """

    prior_scale: Any
    drift: float
    rows: np.ndarray
    scales: np.ndarray
    scale_weights: np.ndarray
    drifts: np.ndarray
    drift_weights: np.ndarray
    surprises: np.ndarray

    @property
    def changing(self) -> np.ndarray:
        """The probability that coefficients change, after each turn and now."""
        return self.drift_weights[:, self.drifts < 1].sum(axis=1)

    def words(self) -> list[str]:
        """The learned settings, as sentences."""
        said = []
        if len(self.scales) > 1:
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
    grid: Grid,
    history: History,
    log_weights: np.ndarray,
    n_rows: int,
    prior_scale: Any,
    point: Point | None,
) -> LearnedSettings:
    """The history of a stream, with the current weights at its end."""
    rows = np.append(history.rows, n_rows)
    weights = np.exp(np.vstack([history.log_weights, log_weights]))
    table: Any = weights.reshape(len(rows), len(grid.scales), len(grid.keeps))
    assert point is not None
    return LearnedSettings(
        prior_scale,
        point.keep,
        rows,
        np.array(grid.scales),
        table.sum(axis=2),
        np.array(grid.keeps),
        table.sum(axis=1),
        history.surprises,
    )
