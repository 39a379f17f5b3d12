"""The record of a pass, kept beside the posterior: how well rows were predicted before they were learned.

The record depends only on the rows and their order, so that a resumed pass leaves the same one. It consists
of summaries. Rows of the data (`examples`, `sample`) stay in a model only if the user asked for it.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kalvi.columns.targets import Classes, Target
from kalvi.tabular.scores import ClassScores, Losses, NumberScores, class_losses

POINTS, BINS, EXAMPLES = 200, 20, 8
SAMPLE_ROWS, SAMPLE_NUMBERS = 2000, 2**20
"""The most rows of the sample for the diagnosis, and the most numbers in them."""
SEED = 20040229
LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
"""The levels of the intervals whose coverage is recorded."""


class Curve(NamedTuple):
    """At some points of the pass, the number of rows learned and their log evidence."""

    rows: np.ndarray
    total: np.ndarray

    def add(self, rows: float, total: float) -> "Curve":
        curve = Curve(np.append(self.rows, float(rows)), np.append(self.total, float(total)))
        if len(curve.rows) < 2 * POINTS:
            return curve
        return Curve(curve.rows[1::2], curve.total[1::2])


class Checks(NamedTuple):
    """Counts that compare predictions with what was observed.

    For classes, `bins` of the predicted probability (of the second of two classes, or of the likeliest of
    several) with the number of rows, the sum of the probabilities and the number of times that the class
    was observed. For numbers, `inside` has for each of `LEVELS` the number of targets inside the interval.
    """

    bins: np.ndarray
    inside: np.ndarray
    count: int

    @classmethod
    def none(cls) -> "Checks":
        return cls(np.zeros((3, BINS)), np.zeros(len(LEVELS)), 0)

    def add_classes(self, p: np.ndarray, y: np.ndarray) -> "Checks":
        if p.shape[1] == 2:
            predicted, observed = p[:, 1], y == 1
        else:
            predicted, observed = p.max(axis=1), p.argmax(axis=1) == y
        which = np.minimum((predicted * BINS).astype(int), BINS - 1)
        added = [
            np.bincount(which, weights, BINS)
            for weights in (np.ones(len(y)), predicted, observed.astype(float))
        ]
        return self._replace(bins=self.bins + np.array(added), count=self.count + len(y))

    def add_numbers(self, inside: np.ndarray, n: int) -> "Checks":
        return self._replace(inside=self.inside + inside, count=self.count + n)


class Sample(NamedTuple):
    """A random sample of all rows so far: those with the smallest random numbers."""

    x: Any  # None before the first
    y: np.ndarray
    weight: np.ndarray
    draw: np.ndarray

    @classmethod
    def none(cls) -> "Sample":
        return cls(None, np.zeros(0), np.zeros(0), np.zeros(0))

    def add(self, rows: tuple[Any, np.ndarray, np.ndarray], start: int) -> "Sample":
        """The sample of these rows and of further ones, which come after `start` rows of the stream."""
        x, y, weight = rows
        draw = np.random.default_rng([SEED, start]).random(len(y))
        draw = np.where(weight > 0, draw, 2.0)
        order = np.sort(np.argsort(draw)[:SAMPLE_ROWS])  # no more of a piece than the sample holds
        chosen = (sp.csr_array(x[order]), y[order], weight[order], draw[order])
        if self.x is not None:
            old = sp.csr_array(
                (self.x.data, self.x.indices, self.x.indptr), shape=(self.x.shape[0], x.shape[1])
            )
            chosen = (
                sp.vstack([old, chosen[0]], format="csr"),
                *(np.append(a, b) for a, b in zip(self[1:], chosen[1:], strict=True)),
            )
        return Sample(*chosen).with_smallest_draws()

    def with_smallest_draws(self) -> "Sample":
        """The rows with the smallest random numbers, as many as there is room for."""
        room = int(
            np.clip(SAMPLE_NUMBERS // (self.x.nnz // max(len(self.y), 1) + 1), 50, SAMPLE_ROWS)
        )
        order = np.argsort(self.draw)[:room]
        order = np.sort(order[self.draw[order] < 2])
        return Sample(
            sp.csr_array(self.x[order]), self.y[order], self.weight[order], self.draw[order]
        )


class Record(NamedTuple):
    """The record of one or more passes."""

    rows: int
    weight: float
    seconds: float
    curve: Curve
    checks: Checks
    examples: tuple[dict[str, Any], ...]  # rows of the data, empty unless they are to be kept
    sample: Sample  # rows of the data: while a run lasts and needs them, or if they are to be kept
    files: tuple[dict[str, Any], ...]
    scores: ClassScores | NumberScores | None = None
    losses: Losses | None = None
    in_sample: bool = False  # whether rows were scored after they were learned, not before
    diagnosis: dict | None = None  # how far the Gaussian is from the posterior, if asked for
    densities: dict | None = None  # of a factor analysis: log densities of a sample of the rows

    @classmethod
    def none(cls) -> "Record":
        """The record before the first row."""
        curve = Curve(np.zeros(0), np.zeros(0))
        return cls(0, 0.0, 0.0, curve, Checks.none(), (), Sample.none(), ())

    def predicted(
        self,
        target: Target,
        mean: np.ndarray,
        inside: np.ndarray | None,
        y: np.ndarray,
        at: np.ndarray,
    ) -> "Record":
        """The record with predictions of further rows, at positions `at` of the stream.

        `mean` and `inside` are those of a `Prediction`; y is as `Target.read` returns it.
        """
        if isinstance(target, Classes):
            scores = self.scores or ClassScores.none(len(target.labels))
            checks = self.checks.add_classes(mean, y)
            losses = class_losses(mean, y)
        else:
            y, scores = target.in_original_units(y), self.scores or NumberScores.none()
            assert inside is not None  # numbers have intervals
            checks = self.checks.add_numbers(inside.sum(axis=0).astype(float), len(y))
            losses = (y - mean) ** 2
        along = (self.losses or Losses.none()).add(at.astype(float), losses)
        return self._replace(scores=scores.add(mean, y), checks=checks, losses=along)

    def learned(self, target: Target, y: np.ndarray, weight: np.ndarray) -> "Record":
        """The record with further rows that were learned, whether or not they were predicted."""
        scores: Any = self.scores
        if not isinstance(target, Classes):
            scores = (scores or NumberScores.none()).after(target.in_original_units(y[weight > 0]))
        return self._replace(
            rows=self.rows + int(np.sum(weight > 0)),
            weight=self.weight + float(weight.sum()),
            scores=scores,
        )

    def joined_scores(self, other: "Record") -> ClassScores | NumberScores | None:
        """The scores of both records together; records of older versions have none."""
        a, b = self.scores, other.scores
        if isinstance(a, ClassScores) and isinstance(b, ClassScores):
            return a.join(b)
        if isinstance(a, NumberScores) and isinstance(b, NumberScores):
            return a.join(b)
        return a or b

    def without_rows(self) -> "Record":
        """The record without any rows of the data."""
        return self._replace(sample=Sample.none(), examples=())
