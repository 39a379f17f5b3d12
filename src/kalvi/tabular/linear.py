"""Linear models of a table: linear, logistic and Poisson regression, with a posterior of coefficients."""

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from kalvi.columns.encoder import FREE
from kalvi.columns.numbers import units
from kalvi.columns.targets import Classes, Counts, Numbers, Target, numbers
from kalvi.estimators.linear import LinearRegression, LogisticRegression, PoissonRegression
from kalvi.evaluation import intervals
from kalvi.tabular import convergence, effects
from kalvi.tabular.choices import check_numeric, labels_of, new_estimator
from kalvi.tabular.record import LEVELS
from kalvi.tabular.rows import Rows, joined
from kalvi.tabular.supervised import SupervisedModel
from kalvi.tabular.target_predictions import Prediction, normal_prediction

FULL_COVARIANCE, LOW_RANK = 700, 20
"""Unless the user gives a rank: the most features of a full covariance, and the rank beyond."""
MOST_FULL = 2048
"""The most features to which new levels may widen a full covariance that the user did not ask for."""


class LinearModel(SupervisedModel):
    """A model whose predictor is linear in the features; new levels may add features."""

    __slots__ = ()

    widens = True
    first_rows = 16

    @abstractmethod
    def effects_of(self) -> str:
        """The quantity to which coefficients add, such as "the log odds of yes"."""

    def streams(self) -> bool:
        return True

    def widen(self, width: int) -> None:
        """Make room for new levels, unless that makes a full covariance, not asked for, too large."""
        asked = "rank" in self.choices.parameters or self.estimator.rank is not None
        if width > MOST_FULL and not asked:
            raise ValueError(
                f"new levels have widened the rows to {width} features, too many for a full covariance; "
                "give a rank (--rank 20), or hash the levels (--hash-bits 12)."
            )
        self.estimator.widen(width)

    def revisits(self, n_rows: int) -> bool:
        return self.has_begun() and self.estimator.revisits(n_rows, self.encoder.width)

    def learn_together(self, pieces: list[Rows]) -> "LinearModel":
        """The model at the optimum of the bound, after further passes over the streamed rows.

        The record stays that of the stream, which predicted each row before it was learned.
        """
        x, y, weight = joined(pieces, self.encoder.width)
        self.estimator.climb_to_optimum(x, y, sample_weight=weight)
        return self

    def drifts(self) -> bool:
        return self.estimator.drifts()

    def has_diagnosis(self) -> bool:
        """Whether there can be a diagnosis: a model that forgets has no exact posterior to compare with."""
        return not self.drifts()

    def diagnosed(self) -> dict[str, Any] | None:
        sample = self.record.sample
        if not self.has_diagnosis() or sample.x is None or not len(sample.y):
            return None
        x = sample.x.copy()
        x.resize(x.shape[0], self.estimator.n_features_in_)
        found = self.estimator.diagnose(x, sample.y, sample_weight=sample.weight, random_state=0)
        how, error = self._reached(), None
        if how is not None and how["how"] == "one pass":
            error = convergence.one_pass_error(self.estimator, (x, sample.y, sample.weight))
        return {
            "shift": float(found.shift),
            "one_pass": error and error | {"text": convergence.error_sentence(error)},
            "pareto_k": float(found.pareto_k),
            "verdict": str(found.verdict),
            "draws": int(found.n_draws),
            "rows": int(found.n_rows),
            "ess": float(found.ess),
        }

    def specifics(self) -> dict[str, Any]:
        reached, learned = self._reached(), self.record.rows > 0
        parts = self.estimator, self.encoder, self.target
        free = self.encoder.names().count(FREE)
        return {
            "passes": int(getattr(self.estimator, "n_passes_", 1)),
            "reached": reached and reached | {"text": convergence.sentence(reached)},
            "parameters": max(self.n_parameters() - free, 0),
            "settings": self.choices.stated() | {"full covariance": self.estimator.rank is None},
            "learned_settings": self._learned_settings() if learned else None,
            "effects_of": self.effects_of(),
            "effects_total": effects.count_effects(self.encoder, self.target) if learned else 0,
            "effects": effects.effects(*parts) if learned else [],
            "intercept": effects.intercepts(*parts) if learned else [],
            "diagnosis_absent": self._diagnosis_absent(),
        }

    def _learned_settings(self) -> dict[str, Any] | None:
        """The settings that the stream has learned, and the probability of change along the rows."""
        found = self.estimator.fit_.learned_settings()
        if found is None:
            return None
        return {
            "prior_scale": np.asarray(found.prior_scale).tolist(),
            "drift": found.drift,
            "rows": found.rows.tolist(),
            "changing": found.changing.tolist(),
            "surprises": found.surprises.tolist(),
            "words": found.words(),
        }

    def _reached(self) -> dict[str, Any] | None:
        if not self.record.rows:
            return None
        return convergence.reached(self.estimator, self.record, self.unit_log_density())

    def _diagnosis_absent(self) -> str | None:
        """Why there is no diagnosis, and what the user can do about it."""
        if not self.record.rows:
            return None
        if not self.has_diagnosis():
            return "There is no diagnosis: a model that forgets has no exact posterior to compare with."
        if self.record.sample.x is None:
            return (
                "There is no diagnosis of the Gaussian (Pareto k), and the model holds no rows to make one "
                "from: fit it with --diagnose, or with --keep-rows to have it made later."
            )
        return (
            "There is no diagnosis of the Gaussian (Pareto k): kalvi inspect --diagnose makes one."
        )


class LinearRegressionModel(LinearModel):
    """Bayesian linear regression of a column of numbers."""

    __slots__ = ()

    MODEL = "linear"

    @classmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        check_numeric(name, column)
        centre, scale = (float(part[0]) for part in units(numbers(column)[:, None]))
        return Numbers(name, centre if np.isfinite(centre) else 0.0, scale or 1.0)

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        return new_estimator(LinearRegression, _ranked(width, parameters))

    def prediction(self, x: Any) -> Prediction:
        return normal_prediction(self.target, *self.estimator.predict(x, return_std=True))

    def effects_of(self) -> str:
        return f"the mean of {self.target.name}"


class PoissonRegressionModel(LinearModel):
    """Bayesian regression of a column of counts."""

    __slots__ = ()

    MODEL = "poisson"

    @classmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        check_numeric(name, column)
        return Counts(name)

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        return new_estimator(PoissonRegression, _ranked(width, parameters))

    def prediction(self, x: Any) -> Prediction:
        mean, variance = self.estimator.fit_.predictive.predictors(x)
        std = np.sqrt(variance)
        with np.errstate(over="ignore"):  # a rate that is too large is infinite
            rate = np.exp(mean + variance / 2)
        return Prediction(
            rate,
            lambda level: intervals.counts(mean, std, level),
            lambda y: intervals.counts_hold(y, mean, std, LEVELS),
        )

    def effects_of(self) -> str:
        return f"the log of the mean of {self.target.name}"


class LogisticRegressionModel(LinearModel):
    """Bayesian logistic regression of a column of labels, of two classes or more."""

    __slots__ = ()

    MODEL = "logistic"

    @classmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return labels_of(name, column, classes)

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        assert isinstance(target, Classes)
        outputs = len(target.labels) if len(target.labels) > 2 else 1
        return new_estimator(LogisticRegression, _ranked(width * outputs, parameters))

    def prediction(self, x: Any) -> Prediction:
        p = self.estimator.predict_proba(x)

        def spread(level: float) -> intervals.Spread:
            mean, variance = self.estimator.fit_.predictive.predictors(x)
            if p.shape[1] > 2:
                return intervals.classes(mean, variance, level)
            return intervals.probability(mean, np.sqrt(variance), level)

        return Prediction(p, spread)

    def effects_of(self) -> str:
        labels = self.labels()
        if len(labels) > 2:
            return "the score of each class (softmax)"
        return f"the log odds of {labels[1]}"


def _ranked(width: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with a rank that suits the number of coefficients unless one was given."""
    rank = None if width <= FULL_COVARIANCE else LOW_RANK
    return {"rank": rank, **parameters}
