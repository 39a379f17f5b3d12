"""A model of a table with a target: what it predicts, how it is described, and whether a file is sound.

`linear`, `gaussian_process` and `neural` say which estimator learns, how the target is read and what is
predicted.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.exceptions import NotFittedError

from kalvi import __version__
from kalvi.columns.encoder import Encoder, kinds_of
from kalvi.columns.numbers import Place
from kalvi.columns.targets import Classes
from kalvi.evaluation import metrics
from kalvi.evaluation.intervals import Spread
from kalvi.readers.source import Source
from kalvi.tabular import effects, integrity
from kalvi.tabular.choices import Choices
from kalvi.tabular.predictions import RowPredictions
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import NAMES, counted
from kalvi.tabular.summary import all_warnings, record_summary, scores_absent
from kalvi.tabular.supervised_learner import Prediction, SupervisedLearner

MOST_NAMED = 6
"""So many classes are named in one line."""
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
"""What a description holds of a model that has nothing to say of it."""


class SupervisedModel(SupervisedLearner):
    """A model that predicts one column of a table from the others."""

    __slots__ = ()

    @abstractmethod
    def expected(self, x: Any) -> np.ndarray:
        """The mean that `prediction` gives, without intervals."""

    @abstractmethod
    def specifics(self) -> dict[str, Any]:
        """The entries of a description that only this kind of model has."""

    @classmethod
    def begin(cls, source: Source, choices: Choices) -> "SupervisedModel":
        """A model before its first row, with types, units and levels from the source's sample."""
        sample = source.sample
        target = cls.choose_target(choices.target, sample[choices.target], choices.classes)
        taken = {choices.target, *([choices.weight] if choices.weight else [])}
        kinds = kinds_of(sample.schema, choices.features, choices.drop, taken)
        settings = choices.encoder_settings(widens=cls.widens())
        encoder = Encoder.begin(kinds, sample, settings, lambda i: f"{source.name}, row {i + 1}")
        estimator = cls.new_estimator(target, encoder.width, choices.parameters)
        begun = cls(cls.MODEL, choices, target, encoder, estimator, Record.none())
        if choices.diagnose and not begun.has_diagnosis():
            raise ValueError(
                "--diagnose is for logistic, linear and poisson models that do not forget "
                "(forgetting=1, process_noise=0); leave it out."
            )
        return begun._replace(notation=source.words(begun.columns()))

    def fresh(self, *, keep_rows: bool = False, diagnose: bool = False) -> "SupervisedModel":
        """A model with the same columns, units and settings before its first row."""
        estimator = self.new_estimator(self.target, self.encoder.width, self.choices.parameters)
        return self._replace(
            choices=self.choices._replace(keep_rows=keep_rows, diagnose=diagnose),
            encoder=self.encoder.forgetful(),
            estimator=estimator,
            record=Record.none(),
        )

    def predicted(self, table: pa.Table, place: Place, level: float) -> RowPredictions:
        x, unseen = self.inputs(table, place)
        found = self.prediction(x, level)
        measure = "log_loss" if isinstance(self.target, Classes) else "mean_squared_error"
        scored = self._scored(table, found.mean)
        return RowPredictions(self._prediction_table(found), unseen, *scored, measure)

    @property
    def classes_(self) -> np.ndarray:
        """The labels of the classes, in the order of the columns of `predict_proba`."""
        if not isinstance(self.target, Classes):
            raise AttributeError(f"'{self.target.name}' is a number and has no classes_.")
        return self.target.values()

    def predict(self, frame: Any, return_std: bool = False) -> Any:
        """The likeliest class of each row of a frame; of a number its mean and, if asked, its deviation."""
        if isinstance(self.target, Classes):
            if return_std:
                raise ValueError(
                    "classes have no standard deviation; predict_interval gives that of probabilities."
                )
            likeliest = self.in_pieces(frame, lambda x: np.argmax(self.expected(x), axis=1))
            return self.classes_[likeliest]
        if not return_std:
            return self.in_pieces(frame, self.expected)
        table = self.predict_table(frame)
        return table["mean"].to_numpy(), table["sd"].to_numpy()

    def predict_proba(self, frame: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`, for each row of a frame."""
        if not isinstance(self.target, Classes):
            raise AttributeError(
                f"'{self.target.name}' is a number; use predict, not predict_proba."
            )
        return self.in_pieces(frame, self.expected)

    def predict_interval(self, frame: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the intervals that `kalvi predict` writes; of classes, a column for each."""
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
            "columns": self.encoder.described(),
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
            "scores_absent": scores_absent(record, self.encoder, self.first_rows()),
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
        settings = choices.encoder_settings(widens=self.widens())
        yield "the settings", encoder.settings == settings
        yield from integrity.encoder_rules(encoder)
        yield from integrity.notation_rules(self.notation, self.columns())
        taken = {choices.target, choices.weight}
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
        """How many parameters the posterior has; 0 where there is none."""
        try:
            return int(self.estimator.posterior_.dim)
        except (NotFittedError, AttributeError):
            return 0

    def labels(self) -> list[str]:
        """The labels of the classes; empty where the target is a number."""
        return list(self.target.labels) if isinstance(self.target, Classes) else []

    def __repr__(self) -> str:
        columns = counted(len(self.encoder.columns()), "column")
        known, labels = f"{columns}, {counted(self.record.rows, 'row')}", self.labels()
        if labels:
            more = "/..." if len(labels) > MOST_NAMED else ""
            known += f", classes {'/'.join(labels[:MOST_NAMED])}{more}"
        return f"<kalvi {NAMES[self.model]} of {self.target.name}: {known}>"

    def _prediction_table(self, found: Prediction) -> pa.Table:
        """The columns of the predictions."""
        mean, spread = found
        if not isinstance(self.target, Classes):
            assert spread is not None  # numbers have intervals
            ends = {"sd": spread.std, "lower": spread.lower, "upper": spread.upper}
            return pa.table({"mean": mean} | ends)
        labels = self.target.labels
        likeliest = np.array(labels, object)[np.argmax(mean, axis=1)]
        columns: dict[str, Any] = {"predicted": pa.array(likeliest.tolist(), pa.string())}
        columns |= {f"p_{label}": mean[:, k] for k, label in enumerate(labels)}
        if spread is not None:
            for name, part in zip(("sd", "lower", "upper"), of_each_class(spread), strict=True):
                columns |= {f"{name}_{label}": part[:, k] for k, label in enumerate(labels)}
        return pa.table(columns)

    def _scored(self, table: pa.Table, mean: np.ndarray) -> tuple[int, float]:
        """How many rows have a target that the model can judge, and the sum of their losses."""
        name = self.target.name
        if name not in table.column_names or not pa.types.is_string(table[name].type):
            return 0, 0.0
        y, there = self.target.judged(table[name], self.notation.get(name, "number"))
        n = int(there.sum())
        if not n:
            return 0, 0.0
        if isinstance(self.target, Classes):
            return n, n * metrics.log_loss(mean[there], y[there])
        return n, float(np.sum((mean[there] - y[there]) ** 2))


def of_each_class(spread: Spread) -> Spread:
    """A column for each class; of two classes, the first mirrors the second, which is all that is given."""
    if spread.std.ndim == 2:
        return spread
    std, lower, upper = spread
    return Spread(
        np.column_stack([std, std]),
        np.column_stack([1 - upper, lower]),
        np.column_stack([1 - lower, upper]),
    )
