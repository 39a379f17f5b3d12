"""Scores of predictions: accuracy, AUC, Brier score, log loss, R², RMSE, MAE, and drift along the stream.

They are computed from sums of bounded size, which can be added to those of other rows. So memory does not
grow with the stream, and the scores of shards can be merged. The area under the ROC curve comes from a
histogram of the log odds, where rows in one bin count as ties. Each score has a baseline that ignores the
columns: the commonest class, the shares of the classes, the mean of the rows before, or the nominal level
of an interval.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kalvi.columns.numbers import pooled

POINTS = 200
"""The losses along the stream are kept at 200 to 400 points."""
ODDS, ODDS_BINS, FEWEST_BINS = 12.0, 1000, 50
"""Log odds from −12 to 12 fall into 1,000 bins, divided among the classes if there are three or more."""
PARTS, PART_ROWS = 8, 64
"""Rows that are predicted together add up to 8 points, one for 64 rows or more."""
TENTH_ROWS, SURELY, MUCH = 20, 3.0, 0.02
"""Drift is computed if a tenth has so many rows, and reported beyond 3 standard errors and 2 %."""


class ClassScores(NamedTuple):
    """Sums over predictions of classes, from which the scores follow."""

    seen: np.ndarray  # rows of each class
    correct: int
    brier: float
    loss: float
    ranks: np.ndarray  # by class (of two, the second): histograms of rows outside and inside it

    @classmethod
    def none(cls, classes: int) -> "ClassScores":
        """The sums before any prediction."""
        curves = 1 if classes == 2 else classes
        bins = max(ODDS_BINS // curves, FEWEST_BINS)
        return cls(np.zeros(classes), 0, 0.0, 0.0, np.zeros((curves, 2, bins)))

    def add(self, p: np.ndarray, y: np.ndarray) -> "ClassScores":
        """The sums with further rows, of classes y and probabilities p, a column for each class."""
        y, curves = y.astype(int), len(self.ranks)
        hit = y[:, None] == np.arange(p.shape[1])
        chosen = slice(1, 2) if curves == 1 else slice(None)
        ranks = [
            _histogram(p[:, k], hit[:, k], self.ranks.shape[2]) for k in range(p.shape[1])[chosen]
        ]
        return ClassScores(
            self.seen + hit.sum(axis=0),
            self.correct + int(np.sum(p.argmax(axis=1) == y)),
            self.brier + float(np.sum((p - hit)[:, chosen] ** 2)),
            self.loss + float(class_losses(p, y).sum()),
            self.ranks + np.array(ranks),
        )

    def join(self, other: "ClassScores") -> "ClassScores":
        """The sums over the rows of both."""
        sums: Any = [a + b for a, b in zip(self, other, strict=True)]
        return ClassScores(*sums)

    def rows(self) -> int:
        """The number of predictions."""
        return int(self.seen.sum())

    def measures(self, labels: tuple[str, ...]) -> list[dict[str, Any]]:
        """Each score beside its baseline."""
        n, share = self.rows(), self.seen / self.seen.sum()
        some = share[share > 0]
        likeliest = f"always '{labels[int(share.argmax())]}', the commonest class"
        shares = "the shares of the classes in these rows"
        spread = share[1] * share[0] if len(self.ranks) == 1 else 1 - np.sum(share**2)
        told = [
            _measure("accuracy", self.correct / n, share.max(), likeliest, "higher"),
            _measure("Brier score", self.brier / n, spread, shares, "lower"),
            _measure("log loss", self.loss / n, -np.sum(some * np.log(some)), shares, "lower"),
        ]
        areas = [area for rank in self.ranks if (area := _area(*rank)) is not None]
        if areas:
            told.insert(1, _measure("AUC", np.mean(areas), 0.5, "a random order", "higher"))
        return told


class NumberScores(NamedTuple):
    """Sums over predictions of numbers, from which the scores follow."""

    count: int
    mean: float  # the mean of the targets that were predicted
    squares: float  # the sum of their squared deviations from it
    error_squares: float
    error_sizes: float
    base_squares: float  # errors of the baseline, the mean of all rows before
    base_sizes: float
    learned: int  # the number of rows in the baseline, and their mean
    learned_mean: float

    @classmethod
    def none(cls) -> "NumberScores":
        """The sums before any prediction."""
        return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0)

    def add(self, mean: np.ndarray, y: np.ndarray) -> "NumberScores":
        """The sums with further rows, of targets y and predictions `mean`."""
        error, base = y - mean, y - self.learned_mean
        count, middle, squares = _pooled(
            (self.count, self.mean, self.squares),
            (len(y), float(y.mean()), float(np.sum((y - y.mean()) ** 2))),
        )
        return self._replace(
            count=count,
            mean=middle,
            squares=squares,
            error_squares=self.error_squares + float(np.sum(error**2)),
            error_sizes=self.error_sizes + float(np.sum(np.abs(error))),
            base_squares=self.base_squares + float(np.sum(base**2)),
            base_sizes=self.base_sizes + float(np.sum(np.abs(base))),
        )

    def after(self, y: np.ndarray) -> "NumberScores":
        """The sums with further rows in the mean that serves as the baseline."""
        if not len(y):
            return self
        learned = _pooled((self.learned, self.learned_mean, 0.0), (len(y), float(y.mean()), 0.0))
        return self._replace(learned=learned[0], learned_mean=learned[1])

    def join(self, other: "NumberScores") -> "NumberScores":
        """The sums over the rows of both."""
        learned = _pooled(
            (self.learned, self.learned_mean, 0.0), (other.learned, other.learned_mean, 0.0)
        )
        return NumberScores(
            *_pooled(self[:3], other[:3]),
            self.error_squares + other.error_squares,
            self.error_sizes + other.error_sizes,
            self.base_squares + other.base_squares,
            self.base_sizes + other.base_sizes,
            learned[0],
            learned[1],
        )

    def rows(self) -> int:
        """The number of predictions."""
        return self.count

    def measures(self, base: str = "the mean of the rows before") -> list[dict[str, Any]]:
        """Each score beside its baseline."""
        n = self.count
        found = []
        if self.squares > 0:
            share = 1 - self.error_squares / self.squares
            found.append(_measure("R²", share, 0.0, "the mean of these rows", "higher"))
        rmse, base_rmse = (np.sqrt(sum_ / n) for sum_ in (self.error_squares, self.base_squares))
        return [
            *found,
            _measure("RMSE", rmse, base_rmse, base, "lower"),
            _measure("MAE", self.error_sizes / n, self.base_sizes / n, base, "lower"),
        ]


class Losses(NamedTuple):
    """Sums of losses along the stream.

    At each point: the number of rows learned before it, the number of predictions up to it, the sum of
    their losses and the sum of their squared losses.
    """

    at: np.ndarray
    count: np.ndarray
    total: np.ndarray
    squares: np.ndarray

    @classmethod
    def none(cls) -> "Losses":
        """The sums before any prediction."""
        return cls(*(np.zeros(0) for _ in range(4)))

    def add(self, at: np.ndarray, loss: np.ndarray) -> "Losses":
        """The sums with the losses of further rows, at these positions in the stream."""
        columns = at, np.ones(len(at)), loss, loss**2
        parts = min(PARTS, -(-len(at) // PART_ROWS))
        ends = np.linspace(0, len(at), parts + 1)[1:].astype(int) - 1
        added = [columns[0][ends], *(np.cumsum(column)[ends] for column in columns[1:])]
        last = [np.zeros(1), *(part[-1:] if len(part) else np.zeros(1) for part in self[1:])]
        grown = Losses(*(np.append(a, b + c) for a, b, c in zip(self, added, last, strict=True)))
        return grown if len(grown.at) < 2 * POINTS else Losses(*(part[1::2] for part in grown))

    def drift(self) -> dict[str, Any] | None:
        """The mean loss of the last tenth of the stream, compared with the tenth before it."""
        if not len(self.at):
            return None
        cuts = [0.8 * self.at[-1], 0.9 * self.at[-1], self.at[-1]]
        where = np.searchsorted(self.at, cuts).tolist()
        before, recent = (self._between(*pair) for pair in pairwise(where))
        if before is None or recent is None or not before[0] > 0:
            return None
        error = np.sqrt(before[1] + recent[1])
        change = recent[0] / before[0] - 1
        sure = abs(recent[0] - before[0]) > SURELY * error and abs(change) > MUCH
        return {
            "recent": float(recent[0]),
            "before": float(before[0]),
            "change": float(change),
            "sure": bool(sure),
        }

    def _between(self, first: int, last: int) -> tuple[float, float] | None:
        """The mean of the losses between two points, and its squared standard error."""
        n, total, squares = (float(part[last] - part[first]) for part in self[1:])
        if n < TENTH_ROWS:
            return None
        mean = total / n
        return mean, max(squares / n - mean**2, 0.0) / n


def class_losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minus the log of the probability that each row's class was given."""
    chosen = p[np.arange(len(y)), y.astype(int)]
    return -np.log(np.clip(chosen, np.finfo(float).eps, 1.0))


def _histogram(p: np.ndarray, hit: np.ndarray, bins: int) -> np.ndarray:
    """Histograms of the predicted log odds of a class, for rows outside and inside it."""
    p = np.clip(p, 1e-15, 1 - 1e-15)
    odds = np.log(p) - np.log1p(-p)
    which = np.clip((odds + ODDS) / (2 * ODDS) * bins, 0, bins - 1).astype(int)
    return np.array([np.bincount(which[side], minlength=bins) for side in (~hit, hit)], float)


def _area(outside: np.ndarray, inside: np.ndarray) -> float | None:
    """The area under the ROC curve: how often a row of the class has higher odds, ties counted half."""
    pairs = outside.sum() * inside.sum()
    if not pairs:
        return None
    below = np.cumsum(outside) - outside / 2
    return float(inside @ below / pairs)


def _pooled(a: Any, b: Any) -> tuple[int, float, float]:
    """`pooled` as Python's numbers."""
    n, mean, squares = pooled(a, b)
    return int(n), float(mean), float(squares)


def _measure(name: str, value: Any, base: Any, what: str, better: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": float(value),
        "baseline": float(base),
        "baseline_is": what,
        "better": better,
    }
