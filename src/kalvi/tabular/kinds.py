"""The models that `kalvi fit` makes of a table: their estimators, targets and predictions."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pyarrow as pa

from kalvi.columns.numbers import units
from kalvi.columns.targets import (
    MOST_CLASSES,
    Classes,
    Counts,
    Numbers,
    Target,
    distinct,
    numbers,
)
from kalvi.estimators.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from kalvi.estimators.linear import LinearRegression, LogisticRegression, PoissonRegression
from kalvi.estimators.neural import NeuralClassifier, NeuralRegressor
from kalvi.evaluation import intervals
from kalvi.evaluation.intervals import Spread

FULL_COVARIANCE, LOW_RANK = 700, 20
"""Up to so many features the covariance is kept whole unless a rank is given; beyond, this rank."""
FIRST_ROWS, FIRST_NETWORK_ROWS = 16, 256
"""Rows that are learned before any is predicted; a network takes its scales from them."""


class Prediction(NamedTuple):
    """What is said of each row: the mean of y or the probability of each class, and how sure it is."""

    mean: np.ndarray
    spread: Spread | None


LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
"""Of the intervals whose coverage is followed."""


class Judged(NamedTuple):
    """Predictions that are to be compared with what happened."""

    mean: np.ndarray  # of y, or the probability of each class
    inside: np.ndarray | None  # of numbers: whether the interval of each level holds y


class Kind(eqx.Module):
    """A model of a table."""

    @abstractmethod
    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        """How the target is read, from its first rows."""

    @abstractmethod
    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        """The estimator, before any row."""

    @abstractmethod
    def streams(self, parameters: dict[str, Any]) -> bool:
        """Whether rows are learned as they come; otherwise all are kept in memory first."""

    @abstractmethod
    def widens(self) -> bool:
        """Whether new levels may widen the rows."""

    @abstractmethod
    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        """Predictions for rows of x with central intervals of the given level."""

    @abstractmethod
    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        """The mean that `predict` gives, without intervals."""

    @abstractmethod
    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        """Predictions for rows of x beside their targets y, at all levels from one prediction."""

    @abstractmethod
    def first_rows(self) -> int:
        """How many rows of a stream are learned together before any is predicted."""


class Linear(Kind):
    """Bayesian linear regression."""

    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        _check_numeric(name, column)
        centre, scale = (float(part[0]) for part in units(numbers(column)[:, None]))
        return Numbers(name, centre if np.isfinite(centre) else 0.0, scale or 1.0)

    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        return _made(LinearRegression, _ranked(width, parameters))

    def streams(self, parameters: dict[str, Any]) -> bool:
        return True

    def widens(self) -> bool:
        return True

    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        mean, std = estimator.predict(x, return_std=True)
        assert isinstance(target, Numbers)
        mean = target.restored(mean)
        return Prediction(mean, intervals.normal(mean, target.scale * std, level))

    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        return target.restored(estimator.predict(x))

    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        mean, std = estimator.predict(x, return_std=True)
        inside = intervals.normal_holds(y, mean, std, LEVELS)
        return Judged(target.restored(mean), inside)

    def first_rows(self) -> int:
        return FIRST_ROWS


class Poisson(Kind):
    """Bayesian regression of counts."""

    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        _check_numeric(name, column)
        return Counts(name)

    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        return _made(PoissonRegression, _ranked(width, parameters))

    def streams(self, parameters: dict[str, Any]) -> bool:
        return True

    def widens(self) -> bool:
        return True

    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        mean, std = latent(estimator, x)
        return Prediction(estimator.predict(x), intervals.counts(mean, std, level))

    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        return estimator.predict(x)

    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        mean, std = latent(estimator, x)
        inside = intervals.counts_hold(y, mean, std, LEVELS)
        return Judged(np.exp(np.minimum(mean + std**2 / 2, 700)), inside)

    def first_rows(self) -> int:
        return FIRST_ROWS


class Logistic(Kind):
    """Bayesian logistic regression, of two classes or more."""

    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return labels_of(name, column, classes)

    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        outputs = len(_labels(target)) if len(_labels(target)) > 2 else 1
        return _made(LogisticRegression, _ranked(width * outputs, parameters))

    def streams(self, parameters: dict[str, Any]) -> bool:
        return True

    def widens(self) -> bool:
        return True

    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        p = estimator.predict_proba(x)
        if p.shape[1] > 2:
            return Prediction(p, intervals.classes(*latent_classes(estimator, x), level))
        return Prediction(p, intervals.probability(*latent(estimator, x), level))

    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        return estimator.predict_proba(x)

    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        return Judged(estimator.predict_proba(x), None)

    def first_rows(self) -> int:
        return FIRST_ROWS


class Neural(Kind):
    """A network with a posterior: of classes for labels, of numbers otherwise."""

    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return any_target(name, column, classes)

    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        chosen = {"method": "lrvga", "random_state": 0, **parameters}
        return _made(NeuralClassifier if isinstance(target, Classes) else NeuralRegressor, chosen)

    def streams(self, parameters: dict[str, Any]) -> bool:
        return parameters.get("method", "lrvga") == "lrvga"

    def widens(self) -> bool:
        return False

    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        mean, epistemic, aleatoric = estimator.predict_parts(_dense(x))
        if not isinstance(target, Classes):
            return Prediction(mean, intervals.normal(mean, np.sqrt(epistemic + aleatoric), level))
        ends = intervals.normal(mean, np.sqrt(epistemic), level)
        ends = Spread(ends.std, np.maximum(ends.lower, 0), np.minimum(ends.upper, 1))
        return Prediction(mean, _second(ends) if mean.shape[1] == 2 else ends)

    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        return estimator.predict_parts(_dense(x))[0]

    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        mean, epistemic, aleatoric = estimator.predict_parts(_dense(x))
        if isinstance(target, Classes):
            return Judged(mean, None)
        std = np.sqrt(epistemic + aleatoric)
        return Judged(mean, intervals.normal_holds(y, mean, std, LEVELS))

    def first_rows(self) -> int:
        return FIRST_NETWORK_ROWS


class GaussianProcess(Kind):
    """A Gaussian process: of classes for labels, of numbers otherwise."""

    def target(self, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return any_target(name, column, classes)

    def estimator(self, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        chosen = {"random_state": 0, **parameters}
        if isinstance(target, Classes):
            return _made(GaussianProcessClassifier, chosen)
        return _made(GaussianProcessRegressor, chosen)

    def streams(self, parameters: dict[str, Any]) -> bool:
        return False

    def widens(self) -> bool:
        return False

    def predict(self, estimator: Any, target: Target, x: Any, level: float) -> Prediction:
        x = _dense(x)
        if not isinstance(target, Classes):
            mean, std = estimator.predict(x, return_std=True)
            return Prediction(mean, intervals.normal(mean, std, level))
        p = estimator.predict_proba(x)
        if p.shape[1] > 2:
            return Prediction(p, None)
        mean, std = estimator.predict_latent(x)
        return Prediction(p, intervals.probability(mean, std, level))

    def expected(self, estimator: Any, target: Target, x: Any) -> np.ndarray:
        classes = isinstance(target, Classes)
        return (estimator.predict_proba if classes else estimator.predict)(_dense(x))

    def judged(self, estimator: Any, target: Target, x: Any, y: np.ndarray) -> Judged:
        if isinstance(target, Classes):
            return Judged(estimator.predict_proba(_dense(x)), None)
        mean, std = estimator.predict(_dense(x), return_std=True)
        return Judged(mean, intervals.normal_holds(y, mean, std, LEVELS))

    def first_rows(self) -> int:
        return FIRST_ROWS


KINDS: dict[str, Kind] = {
    "logistic": Logistic(),
    "linear": Linear(),
    "poisson": Poisson(),
    "gp": GaussianProcess(),
    "neural": Neural(),
}


def likely_kind(column: pa.ChunkedArray) -> str:
    """The model of a target nobody said anything about: logistic for labels and for two numbers."""
    numeric = pa.types.is_floating(column.type)
    return "linear" if numeric and len(distinct(column)) > 2 else "logistic"


def latent(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the linear predictor of each row: y without noise."""
    mean, variance = estimator.fit_.predictors(x)
    return mean, np.sqrt(variance)


def latent_classes(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the predictors of all classes of each row."""
    return estimator.fit_.predictors(x)


def any_target(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
    """Classes if they are named or look like it, numbers otherwise."""
    if classes or likely_kind(column) == "logistic":
        return labels_of(name, column, classes)
    return Numbers(name)


def labels_of(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Classes:
    """The classes as given, or those of the first rows."""
    if pa.types.is_nested(column.type):
        raise ValueError(f"the target '{name}' is {column.type}; it must be labels or numbers.")
    if classes and ("" in classes or len(set(classes)) < len(classes)):
        raise ValueError(
            f"--classes must be different labels, none empty; got {','.join(classes)}."
        )
    found = tuple(classes) or tuple(distinct(column))
    if len(set(found)) < 2:
        held = f"only '{found[0]}'" if found else "nothing"
        raise ValueError(
            f"a classifier needs two classes or more; the first rows of '{name}' hold {held}. "
            "Shuffle the rows, or name all classes with --classes a,b"
            + (", or use --model linear." if pa.types.is_floating(column.type) else ".")
        )
    if len(found) > MOST_CLASSES:
        raise ValueError(
            f"'{name}' has {len(found)} different values in the first rows, too many for classes "
            f"(at most {MOST_CLASSES}); use --model linear, or another target."
        )
    return Classes(name, found, pa.types.is_string(column.type))


def _labels(target: Target) -> tuple[str, ...]:
    assert isinstance(target, Classes)
    return target.labels


def _check_numeric(name: str, column: pa.ChunkedArray) -> None:
    if not (pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise ValueError(
            f"the target '{name}' is {column.type}, not numbers; use --model logistic for labels."
        )


def _made(cls: Any, parameters: dict[str, Any]) -> Any:
    """An estimator with these parameters; those it does not have are refused."""
    known = cls().get_params()
    for name in parameters:
        if name not in known:
            raise ValueError(
                f"{cls.__name__} has no parameter '{name}'; it has {', '.join(sorted(known))}."
            )
    return cls(**parameters)


def _ranked(width: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """The rank, if none was given, by the number of parameters."""
    rank = None if width <= FULL_COVARIANCE else LOW_RANK
    return {"rank": rank, **parameters}


def _dense(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.toarray()


def _second(spread: Spread) -> Spread:
    return Spread(*(part[:, 1] for part in spread))
