"""Models that predict one column of a table from the others: learning, predictions and descriptions.

Rows are predicted before they are learned, block by block. The classes in `linear`, `gaussian_process` and
`neural` choose the estimator, read the target and make the predictions.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.exceptions import NotFittedError

from kalvi import __version__
from kalvi.columns.encoder import Encoder, kinds_of
from kalvi.columns.targets import Classes, Target
from kalvi.readers.errors import counted
from kalvi.readers.files import BadData, RowLocator
from kalvi.readers.source import Source
from kalvi.tabular import effects, integrity
from kalvi.tabular.choices import Choices
from kalvi.tabular.predictions import RowPredictions, UnseenLevels
from kalvi.tabular.progressive import padded, scored_rows
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import NAMES
from kalvi.tabular.rows import Rows, check_columns, dense, times, weights
from kalvi.tabular.summary import all_warnings, record_summary, scores_absent
from kalvi.tabular.table_model import RowModel
from kalvi.tabular.target_predictions import (
    Prediction,
    make_examples,
    prediction_table,
    score_predictions,
)

MOST_NAMED = 6
"""The most classes that are named in one line."""
WITHOUT_COEFFICIENTS: dict[str, Any] = {
    "passes": None,
    "reached": None,
    "shape": None,
    "effects_of": None,
    "effects_units": [effects.STANDARDISED, effects.ORIGINAL],
    "effects_total": 0,
    "effects": [],
    "intercept": [],
    "diagnosis_absent": None,
}
"""Entries of a description for models that have no such property."""


class SupervisedFields(NamedTuple):
    """The fields that are saved: encoder, target, estimator, and the record of the pass."""

    model: str
    choices: Choices
    target: Target
    encoder: Encoder
    estimator: Any
    record: Record
    run: str = ""
    notation: dict[str, str] = {}  # noqa: RUF012 (never changed)


class SupervisedModel(RowModel, SupervisedFields):
    """A model that predicts one column of a table from the others."""

    __slots__ = ()

    MODEL: ClassVar[str]
    """The name of this kind of model in commands."""
    widens: ClassVar[bool]
    """Whether new levels may add features; if so, rows may be sparse."""

    @classmethod
    @abstractmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        """The target, given its first rows."""

    @classmethod
    @abstractmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        """An estimator that has not learned any rows."""

    @abstractmethod
    def widen(self, width: int) -> None:
        """Make room in the estimator for rows with so many features."""

    @abstractmethod
    def prediction(self, x: Any) -> Prediction:
        """Predictions for the rows of x."""

    @abstractmethod
    def drifts(self) -> bool:
        """Whether coefficients change while rows arrive."""

    @abstractmethod
    def has_diagnosis(self) -> bool:
        """Whether the Gaussian can be compared with the exact posterior."""

    @abstractmethod
    def diagnosed(self) -> dict[str, Any] | None:
        """The distance of the Gaussian from the exact posterior of the sample's rows; None without a
        sample."""

    @abstractmethod
    def specifics(self) -> dict[str, Any]:
        """The entries of a description that only this kind of model has."""

    @classmethod
    def begin(cls, source: Source, choices: Choices) -> "SupervisedModel":
        """A model before its first row; types, units and levels are those of the source's sample."""
        sample = source.sample
        target = cls.choose_target(choices.target, sample[choices.target], choices.classes)
        taken = {choices.target, *choices.beside()}
        kinds = kinds_of(sample.schema, choices.features, choices.drop, taken)
        settings = choices.encoder_settings(widens=cls.widens)
        encoder = Encoder.begin(kinds, sample, settings, lambda i: f"{source.name}, row {i + 1}")
        estimator = cls.new_estimator(target, encoder.width, choices.parameters)
        begun = cls(cls.MODEL, choices, target, encoder, estimator, Record.none())
        if choices.diagnose and not begun.has_diagnosis():
            raise ValueError(
                "--diagnose is for logistic, linear and poisson models that do not forget "
                "(forgetting=1, process_noise=0, drift=None); leave it out."
            )
        if choices.time and not begun.drifts():
            raise ValueError(
                "--time is for logistic, linear and poisson models that drift; say how much of the past is "
                "kept in a unit of time, or in a day where the column holds dates (--set drift=0.999)."
            )
        return begun._replace(notation=source.words(begun.columns()))

    def fresh(self, *, keep_rows: bool = False, diagnose: bool = False) -> "SupervisedModel":
        """A model with the same columns, units and settings that has not learned any rows."""
        estimator = self.new_estimator(self.target, self.encoder.width, self.choices.parameters)
        return self._replace(
            choices=self.choices._replace(keep_rows=keep_rows, diagnose=diagnose),
            encoder=self.encoder.without_counts(),
            estimator=estimator,
            record=Record.none(),
        )

    def columns(self) -> tuple[str, ...]:
        return (*self.encoder.columns(), self.target.name, *self.choices.beside())

    def types_beside_inputs(self) -> dict[str, str]:
        found = {self.choices.weight: "number"} if self.choices.weight else {}
        kind = self.target.type()
        return found if kind is None else found | {self.target.name: kind}

    def text_columns(self) -> tuple[str, ...]:
        return (self.target.name,)

    def read(self, table: pa.Table, locate: RowLocator, encoder: Encoder) -> Rows:
        check_columns(table, locate, (*self.encoder.columns(), self.target.name))
        y, there = self.target.read(table, locate, skip=self.choices.skip_unlabelled)
        weight = weights(table, locate, self.choices.weight) * there
        x, encoder, unseen = encoder.encode(table, locate, learn=True)
        time = times(table, locate, self.choices.time)
        return Rows(table, x, y, weight, encoder, unseen, time)

    def inputs(self, table: pa.Table, locate: RowLocator) -> tuple[Any, UnseenLevels]:
        table = self._completed(table, locate)
        x, _, unseen = self.encoder.encode(table, locate, learn=False)
        return x, unseen

    def finished(self) -> "SupervisedModel":
        """The model at the end of a run: with a diagnosis if asked for, without rows unless to be kept."""
        found = self.diagnosed() if self.choices.diagnose else None
        record = self.record._replace(diagnosis=found)
        return self._replace(record=record if self.choices.keep_rows else record.without_rows())

    def has_begun(self) -> bool:
        """Whether the estimator has learned any rows."""
        return hasattr(self.estimator, "n_features_in_")

    def evidence(self) -> float | None:
        """The progressive log evidence of the rows in their order; None if the estimator has none."""
        curve = self.record.curve
        if len(curve.total) and hasattr(self.estimator, "elbo_"):
            return float(curve.total[-1])  # of the first pass, whatever later passes changed
        found = getattr(self.estimator, "log_evidence_", None)
        return None if found is None else found - self.unit_log_density()

    def unit_log_density(self) -> float:
        """The change of the log density of the rows due to the standardised target."""
        return self.record.weight * float(np.log(self.target_scale()))

    def target_scale(self) -> float:
        """The unit, for the estimator, of a standardised target."""
        zero, one = self.target.in_original_units(np.array([0.0, 1.0]))
        return float(one - zero)

    def learned_block(self, rows: Rows) -> "SupervisedModel":
        """The model after a block of rows, which is predicted first; adds a point to the learning curve."""
        if self.has_begun() and rows.x.shape[1] > self.estimator.n_features_in_:
            self.widen(rows.x.shape[1])
        if not np.any(rows.weight > 0):
            return self
        record = self._score_block(rows) if self.has_begun() else self.record
        self._partial_fit(rows)
        record = record.learned(self.target, rows.y, rows.weight)
        after = self._replace(record=record)
        evidence = after.evidence()
        if evidence is None:
            return after
        curve = record.curve.add(record.weight, evidence)
        return after._replace(record=record._replace(curve=curve))

    def _partial_fit(self, rows: Rows) -> None:
        extra: dict[str, Any] = {}
        if isinstance(self.target, Classes):
            extra["classes"] = np.arange(len(self.target.labels))
        x = rows.x if self.widens else dense(rows.x)
        x, y, weight = padded(x, rows.y, rows.weight)
        if rows.time is not None:
            extra["time"] = np.pad(rows.time, (0, len(y) - len(rows.time)), mode="edge")
        self.estimator.partial_fit(x, y, sample_weight=weight, **extra)

    def score(self, x: Any, y: np.ndarray, at: np.ndarray) -> Record:
        """The record with predictions of these rows, at positions `at` of the stream.

        The rows are padded to one size, for which programs are compiled once.
        """
        n = len(y)
        x, y_padded, _ = padded(x, y, y)
        made = self.prediction(x)
        inside = None if made.inside is None else made.inside(y_padded)[:n]
        return self.record.predicted(self.target, made.mean[:n], inside, y, at)

    def _score_block(self, rows: Rows) -> Record:
        """The record with predictions of rows of a block that has not been learned yet."""
        learned = self.record.rows
        inputs = self.encoder.numbers.width + len(self.encoder.groups)
        which = scored_rows(learned, rows.weight, inputs)
        if not len(which):
            return self.record
        record = self.score(rows.x[which], rows.y[which], learned + which)
        if not self.choices.keep_rows:
            return record
        columns = self.encoder.columns()
        examples = make_examples(self.prediction, rows, which, self.target, columns)
        return record._replace(examples=examples)

    def samples(self) -> bool:
        """Whether a sample of the rows is drawn, which is for the diagnosis."""
        return (self.choices.keep_rows or self.choices.diagnose) and self.has_diagnosis()

    def _completed(self, table: pa.Table, locate: RowLocator) -> pa.Table:
        """The table with empty columns for those that it lacks, if missing values are imputed."""
        for name in self.encoder.columns():
            if name in table.column_names:
                continue
            if self.choices.missing != "impute":
                raise BadData(
                    f"{locate(0)}: there is no column '{name}', which the model needs; only a model fitted "
                    "with --missing impute can do without."
                )
            table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
        return table

    def predicted(self, table: pa.Table, locate: RowLocator, level: float) -> RowPredictions:
        x, unseen = self.inputs(table, locate)
        made = self.prediction(x)
        notation = self.notation.get(self.target.name, "number")
        scored = score_predictions(made.mean, table, self.target, notation)
        measure = "log_loss" if isinstance(self.target, Classes) else "mean_squared_error"
        return RowPredictions(prediction_table(made, self.target, level), unseen, *scored, measure)

    @property
    def classes_(self) -> np.ndarray:
        """The labels of the classes, in the order of the columns of `predict_proba`."""
        if not isinstance(self.target, Classes):
            raise AttributeError(f"'{self.target.name}' is a number and has no classes_.")
        return self.target.values()

    def predict(self, frame: Any, return_std: bool = False) -> Any:
        """The likeliest class of each row of a frame; for numbers, the mean and, if asked, its sd."""
        if isinstance(self.target, Classes):
            if return_std:
                raise ValueError(
                    "classes have no standard deviation; predict_interval gives that of probabilities."
                )
            likeliest = self.in_pieces(frame, lambda x: np.argmax(self.prediction(x).mean, axis=1))
            return self.classes_[likeliest]
        if not return_std:
            return self.in_pieces(frame, lambda x: self.prediction(x).mean)
        table = self.predict_table(frame)
        return table["mean"].to_numpy(), table["sd"].to_numpy()

    def predict_proba(self, frame: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`, for each row of a frame."""
        if not isinstance(self.target, Classes):
            raise AttributeError(
                f"'{self.target.name}' is a number; use predict, not predict_proba."
            )
        return self.in_pieces(frame, lambda x: self.prediction(x).mean)

    def predict_interval(self, frame: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper ends of the intervals; for classes, with a column for each class."""
        table = self.predict_table(frame, level)
        if not isinstance(self.target, Classes):
            return table["lower"].to_numpy(), table["upper"].to_numpy()
        if f"lower_{self.target.labels[0]}" not in table.column_names:
            raise ValueError("a Gaussian process of several classes has no intervals.")
        lower, upper = (
            np.column_stack([table[f"{end}_{text}"].to_numpy() for text in self.target.labels])
            for end in ("lower", "upper")
        )
        return lower, upper

    def outline(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "rows": self.record.rows,
            "target": self.target.name,
            "classes": self.labels() or None,
            "columns": self.encoder.describe(),
        }

    def describe(self, name: str, *, diagnose: bool = False) -> dict[str, Any]:
        record = self.record
        evidence = self.evidence() if record.rows else None
        diagnosis = record.diagnosis or (self.diagnosed() if diagnose else None)
        noise = getattr(self.estimator, "noise_scale_", None) if record.rows else None
        found: dict[str, Any] = {
            "kalvi": __version__,
            "name": name,
            **self.outline(),
            **record_summary(record, self.target),
            "rank": getattr(self.estimator, "rank", None),
            "log_evidence": evidence,
            "log_loss": None if not evidence else -evidence / record.weight,
            "noise_scale": None if noise is None else float(noise) * self.target_scale(),
            "settings": self.choices.stated(),
            "scores_absent": scores_absent(record, self.encoder, self.first_rows),
            "diagnosis": diagnosis,
            **WITHOUT_COEFFICIENTS,
            **self.specifics(),
        }
        if diagnosis:
            found["diagnosis_absent"] = None
        return found | {"warnings": all_warnings(found)}

    def rules(self) -> integrity.Rules:
        choices, encoder, estimator = self.choices, self.encoder, self.estimator
        yield "the model", self.model == self.MODEL and choices.model in (None, *NAMES)
        yield "what is done with missing values", choices.missing in ("error", "impute")
        yield "the settings", integrity.is_json(choices.parameters)
        yield "the target", choices.target == self.target.name
        yield from integrity.target_rules(self.target)
        yield "the hash", integrity.few_bits(choices.hash_bits)  # of which the width is a power
        settings = choices.encoder_settings(widens=self.widens)
        yield "the settings", encoder.settings == settings
        yield from integrity.encoder_rules(encoder)
        yield from integrity.notation_rules(self.notation, self.columns())
        taken = {choices.target, *choices.beside()}
        yield "the columns", not taken & set(encoder.columns())
        expected = self.new_estimator(self.target, encoder.width, choices.parameters)
        yield "the estimator", type(estimator) is type(expected)
        yield from integrity.estimator_rules(estimator)
        yield from integrity.record_rules(self.record, encoder.width)
        yield from integrity.score_rules(self.record, self.target)
        yield from integrity.fitted_rules(estimator, self.record.rows, encoder.width)
        if self.record.rows and isinstance(self.target, Classes):
            found, n = np.asarray(vars(estimator)["classes_"]), len(self.target.labels)
            some = found.ndim == 1 and set(found.tolist()) <= set(range(n))
            yield "the classes", some and (len(found) == n or not self.streams())

    def n_parameters(self) -> int:
        """The number of parameters of the posterior; 0 if there is none yet."""
        try:
            return int(self.estimator.posterior_.dim)
        except (NotFittedError, AttributeError):
            return 0

    def labels(self) -> list[str]:
        """The labels of the classes; empty if the target is a number."""
        return list(self.target.labels) if isinstance(self.target, Classes) else []

    def __repr__(self) -> str:
        columns = counted(len(self.encoder.columns()), "column")
        known, labels = f"{columns}, {counted(self.record.rows, 'row')}", self.labels()
        if labels:
            more = "/..." if len(labels) > MOST_NAMED else ""
            known += f", classes {'/'.join(labels[:MOST_NAMED])}{more}"
        return f"<kalvi {NAMES[self.model]} of {self.target.name}: {known}>"
