"""How a model of a table with a target reads rows and learns them: predicted first, block by block."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from kalvi.columns.encoder import Encoder
from kalvi.columns.numbers import Place
from kalvi.columns.targets import Classes, Target, label
from kalvi.evaluation.intervals import Spread
from kalvi.readers.files import BadData
from kalvi.tabular.choices import Choices
from kalvi.tabular.predictions import Unseen
from kalvi.tabular.progressive import ALL_ROWS, block_size, padded, scored_rows
from kalvi.tabular.record import EXAMPLES, Judged, Record
from kalvi.tabular.rows import Rows, dense, joined, weights
from kalvi.tabular.table_model import RowModel

LEVEL = 0.95
"""Of the intervals of examples."""


class Prediction(NamedTuple):
    """For each row, the mean of y or the probability of each class, and its uncertainty."""

    mean: np.ndarray
    spread: Spread | None


class SupervisedFields(NamedTuple):
    """What is saved: encoder, target and estimator of a table, and the record of the pass."""

    model: str
    choices: Choices
    target: Target
    encoder: Encoder
    estimator: Any
    record: Record
    run: str = ""
    notation: dict[str, str] = {}  # noqa: RUF012 (never changed)


class SupervisedLearner(RowModel, SupervisedFields):
    """A model that learns one column of a table from the others."""

    __slots__ = ()

    MODEL: ClassVar[str]
    """What users call this kind of model."""

    @classmethod
    @abstractmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        """How the target is read, from its first rows."""

    @classmethod
    @abstractmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        """The estimator, before any row."""

    @classmethod
    @abstractmethod
    def widens(cls) -> bool:
        """Whether new levels may widen the rows, which may then be sparse."""

    @abstractmethod
    def first_rows(self) -> int:
        """How many rows of a stream are learned together before any is predicted."""

    @abstractmethod
    def widen(self, width: int) -> None:
        """Make room in the estimator for rows of this width."""

    @abstractmethod
    def prediction(self, x: Any, level: float) -> Prediction:
        """Predictions for rows of x with central intervals of the given level."""

    @abstractmethod
    def judged(self, x: Any, y: np.ndarray) -> Judged:
        """Predictions for rows of x beside their targets y, at all levels from one prediction."""

    @abstractmethod
    def has_diagnosis(self) -> bool:
        """Whether its Gaussian can be compared with a posterior."""

    @abstractmethod
    def diagnosed(self, draws: int = 1000) -> dict[str, Any] | None:
        """How far the Gaussian is from the posterior of the sample's rows; None without a sample."""

    def columns(self) -> tuple[str, ...]:
        weight = (self.choices.weight,) if self.choices.weight else ()
        return (*self.encoder.columns(), self.target.name, *weight)

    def types_beside_inputs(self) -> dict[str, str]:
        found = {self.choices.weight: "number"} if self.choices.weight else {}
        kind = self.target.type()
        return found if kind is None else found | {self.target.name: kind}

    def text_columns(self) -> tuple[str, ...]:
        return (self.target.name,)

    def read(self, table: pa.Table, place: Place, encoder: Encoder) -> Rows:
        for name in (*self.encoder.columns(), self.target.name):
            if name not in table.column_names:
                raise BadData(f"{place(0)}: there is no column '{name}', which the model needs.")
        y, there = self.target.read(table, place, skip=self.choices.skip_unlabelled)
        weight = weights(table, place, self.choices.weight) * there
        x, encoder, unseen = encoder.encode(table, place, learn=True)
        return Rows(table, x, y, weight, encoder, unseen)

    def inputs(self, table: pa.Table, place: Place) -> tuple[Any, Unseen]:
        table = self._completed(table, place)
        x, _, unseen = self.encoder.encode(table, place, learn=False)
        return x, unseen

    def learned(self, rows: Rows, start: int) -> "SupervisedLearner":
        """The model after a piece, whose blocks are each predicted and then learned."""
        if self.has_begun() and rows.x.shape[1] > self.estimator.n_features_in_:
            self.widen(rows.x.shape[1])
        model, first, n = self, 0, len(rows.y)
        while first < n:
            size = block_size(model.record.rows, self.first_rows(), n - first)
            model = model._learned_block(rows.part(first, first + size))
            first += size
        record = model.record
        if self._samples():
            sample = record.sample.add((rows.x, rows.y, rows.weight), start)
            record = record._replace(sample=sample)
        return model._replace(encoder=rows.encoder, record=record)

    def fitted(self, pieces: list[Rows]) -> "SupervisedLearner":
        """The model of all rows at once."""
        x, y, weight = joined(pieces, self.encoder.width)
        x = x if self.widens() else dense(x)
        self._check_classes(y)
        self.estimator.fit(x, y, sample_weight=weight)
        record = self.record.learned(self.target, y, weight)
        if self._samples():
            record = record._replace(sample=record.sample.add((x, y, weight), 0))
        some = np.arange(min(len(y), ALL_ROWS))
        found = self._judged_padded(x[some], y[some])
        record = record.predicted(self.target, found, y[some], some)
        return self._replace(record=record._replace(in_sample=True, losses=None))

    def finished(self) -> "SupervisedLearner":
        """The model at the end: with the diagnosis if asked for, without rows unless they stay."""
        found = self.diagnosed() if self.choices.diagnose else None
        record = self.record._replace(diagnosis=found)
        return self._replace(record=record if self.choices.keep_rows else record.without_rows())

    def has_begun(self) -> bool:
        """Whether the estimator has seen a row."""
        return hasattr(self.estimator, "n_features_in_")

    def evidence(self) -> float | None:
        """The progressive log evidence of the rows as they came, where the estimator has it."""
        curve = self.record.curve
        if len(curve.total) and hasattr(self.estimator, "elbo_"):
            return float(curve.total[-1])  # of the stream, whatever the passes after it changed
        found = getattr(self.estimator, "log_evidence_", None)
        return None if found is None else found - self.unit_log_density()

    def unit_log_density(self) -> float:
        """What log densities of the rows change by where the target is standardised."""
        return self.record.weight * float(np.log(self.target_scale()))

    def target_scale(self) -> float:
        """The unit of the target in which the estimator learns."""
        zero, one = self.target.restored(np.array([0.0, 1.0]))
        return float(one - zero)

    def _learned_block(self, rows: Rows) -> "SupervisedLearner":
        """The model after a block of rows, which is predicted first, with a point of the learning curve."""
        if not np.any(rows.weight > 0):
            return self
        record = self._scored_record(rows) if self.has_begun() else self.record
        self._partial_fit(rows)
        record = record.learned(self.target, rows.y, rows.weight)
        after = self._replace(record=record)
        evidence = after.evidence()
        if evidence is None:
            return after
        curve = record.curve.add(record.weight, evidence)
        return after._replace(record=record._replace(curve=curve))

    def _partial_fit(self, rows: Rows) -> None:
        extra = {}
        if isinstance(self.target, Classes):
            extra["classes"] = np.arange(len(self.target.labels))
        x = rows.x if self.widens() else dense(rows.x)
        x, y, weight = padded(x, rows.y, rows.weight)
        self.estimator.partial_fit(x, y, sample_weight=weight, **extra)

    def _scored_record(self, rows: Rows) -> Record:
        """The record with predictions of rows that are still to be learned."""
        learned = self.record.rows
        inputs = self.encoder.numbers.width + len(self.encoder.groups)
        which = scored_rows(learned, rows.weight, inputs)
        if not len(which):
            return self.record
        found = self._judged_padded(rows.x[which], rows.y[which])
        record = self.record.predicted(self.target, found, rows.y[which], learned + which)
        if not self.choices.keep_rows:
            return record
        return record._replace(examples=self._examples(rows, which))

    def _judged_padded(self, x: Any, y: np.ndarray) -> Judged:
        """Predictions beside their targets; few rows are padded, so that one size is compiled."""
        n = len(y)
        x, y, _ = padded(x, y, y)
        mean, inside = self.judged(x, y)
        return Judged(mean[:n], None if inside is None else inside[:n])

    def _examples(self, rows: Rows, which: np.ndarray) -> tuple[dict, ...]:
        """Some rows with what was predicted for them and what came."""
        which = which[np.linspace(0, len(which) - 1, min(EXAMPLES, len(which))).astype(int)]
        made = self.prediction(rows.x[which], LEVEL)
        shown = rows.table.take(which).select(list(self.encoder.columns())[:EXAMPLES])
        observed = rows.table[self.target.name].take(which).to_pylist()
        return tuple(
            {
                "row": {name: _shown(value) for name, value in row.items()},
                "observed": label(seen),
                **example_of(made, i, self.target),
            }
            for i, (row, seen) in enumerate(zip(shown.to_pylist(), observed, strict=True))
        )

    def _samples(self) -> bool:
        """Whether rows are drawn for the diagnosis."""
        return (self.choices.keep_rows or self.choices.diagnose) and self.has_diagnosis()

    def _check_classes(self, y: np.ndarray) -> None:
        """Refuse rows that lack a class: a model of all rows at once cannot know it."""
        if isinstance(self.target, Classes):
            lacking = set(range(len(self.target.labels))) - set(y.astype(int).tolist())
            if lacking:
                raise ValueError(f"no row has the class '{self.target.labels[lacking.pop()]}'.")

    def _completed(self, table: pa.Table, place: Place) -> pa.Table:
        """The table with columns it lacks as missing, where missing values are imputed."""
        for name in self.encoder.columns():
            if name in table.column_names:
                continue
            if self.choices.missing != "impute":
                raise BadData(
                    f"{place(0)}: there is no column '{name}', which the model needs; only a model fitted "
                    "with --missing impute can do without."
                )
            table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
        return table


def example_of(made: Prediction, i: int, target: Target) -> dict[str, Any]:
    """A prediction in numbers, and of which class they are: the second of two, the likeliest of several."""
    found: dict[str, Any] = {}
    which: Any = i
    if isinstance(target, Classes):
        k = 1 if made.mean.shape[1] == 2 else int(np.argmax(made.mean[i]))
        which, found = (i, k), {"class": target.labels[k]}
    found["predicted"] = float(made.mean[which])
    if made.spread is None:
        return found
    end = i if made.spread.lower.ndim == 1 else which
    return found | {
        "lower": float(made.spread.lower[end]),
        "upper": float(made.spread.upper[end]),
    }


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:60]
