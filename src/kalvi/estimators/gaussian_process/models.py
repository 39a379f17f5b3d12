"""Gaussian processes with any scalar likelihood as scikit-learn estimators."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from kalvi.estimators.constraints import Constraint, one_of
from kalvi.estimators.decorators import all_or_nothing, documented, parametrised
from kalvi.estimators.gaussian_process.estimator import GaussianProcess
from kalvi.estimators.gaussian_process.fitting import Scales, weighted_scales
from kalvi.estimators.gaussian_process.parameters import ATTRIBUTES, CONSTRAINTS, PARAMETERS
from kalvi.estimators.gaussian_process.predictions import log_densities, target_moments
from kalvi.estimators.gaussian_process.problem import TrainingRows
from kalvi.estimators.input_checks import checked_weights
from kalvi.likelihoods import (
    Bernoulli,
    Laplace,
    Likelihood,
    Normal,
    Poisson,
    Probit,
    StudentT,
)
from kalvi.likelihoods.likelihood import need_labels, need_one_output

FIRST_NOISE = 0.1
"""The variance of the noise before it is learned, as a share of that of y."""
LIKELIHOODS: dict[str, Callable[[float], Likelihood]] = {
    "normal": lambda scale: Normal(np.asarray(scale**2)),
    "laplace": lambda scale: Laplace(np.asarray(scale)),
    "student_t": lambda scale: StudentT(np.asarray(4.0), np.asarray(scale)),
    "poisson": lambda scale: Poisson(),
}
"""Likelihoods by name, as functions of the first scale of the noise."""
LINKS = {"logit": Bernoulli, "probit": Probit}


@documented(PARAMETERS, ATTRIBUTES)
@parametrised
class GaussianProcessRegressor(RegressorMixin, GaussianProcess):
    """Regression with a Gaussian process prior and normal, heavy-tailed or count noise.

    PARAMETERS
    likelihood : {"normal", "laplace", "student_t", "poisson"} or Likelihood, default "normal"
        The noise. Its scale, and the degrees of freedom of a Student-t, are hyperparameters like those of
        the kernel. A Poisson's logarithmic rate is the latent function.

    Attributes
    ----------
    ATTRIBUTES

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> x = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
    >>> y[25] += 5  # an outlier
    >>> model = kalvi.GaussianProcessRegressor(likelihood="student_t").fit(x, y)
    >>> print(model.predict(x[25:26]).round(1), np.sin(2 * x[25]).round(1))
    [1.] [1.]
    """

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS | {
        "likelihood": Constraint(
            f"one of {', '.join(LIKELIHOODS)} or a Likelihood",
            lambda value: isinstance(value, Likelihood) or one_of(LIKELIHOODS).allows(value),
        )
    }

    likelihood: Any = "normal"
    mean: Any = "constant"

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "GaussianProcessRegressor":
        """Learn from a table."""
        X, y = self._check_rows(X, y, y_numeric=True)
        weight = checked_weights(sample_weight, X)
        centre, spread = weighted_scales(y, weight)
        spread = spread or 1.0
        likelihood = self._first_likelihood(spread)
        need_labels(likelihood, y)
        if likelihood.log_link:
            centre, spread = float(np.log(max(centre, 1e-3))), 1.0
        return self._learn([TrainingRows(X, y, weight)], likelihood, Scales(centre, spread))

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if `return_std`, its standard deviation, noise included."""
        X = self._check_new_rows(X)
        mean, var = target_moments(self.fits_[0], X)
        return (mean, np.sqrt(var)) if return_std else mean

    def predict_latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent function at new points."""
        X = self._check_new_rows(X)
        mean, var = self.fits_[0].latent(X)
        return mean, np.sqrt(var)

    def log_predictive_density(self, X, y) -> np.ndarray:
        """log p(y | x, the table) for each new row."""
        X = self._check_new_rows(X)
        y = column_or_1d(y, dtype=np.float64)
        check_consistent_length(X, y)
        assert_all_finite(y, input_name="y")
        return log_densities(self.fits_[0], X, y)

    def _first_likelihood(self, spread: float) -> Likelihood:
        """The likelihood that the search for hyperparameters begins with."""
        if isinstance(self.likelihood, Likelihood):
            need_one_output(self.likelihood, "GaussianProcessRegressor")
            return self.likelihood
        return LIKELIHOODS[self.likelihood](float(np.sqrt(FIRST_NOISE)) * spread)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood == "poisson"
        return tags


@documented(PARAMETERS, ATTRIBUTES)
@parametrised
class GaussianProcessClassifier(ClassifierMixin, GaussianProcess):
    """Classification with a Gaussian process prior over the log-odds.

    Three classes or more are learned one against the rest, each with its own hyperparameters; the
    probabilities are those of the separate processes, divided by their sum.

    PARAMETERS
    link : {"logit", "probit"}, default "logit"
        The function that turns the latent function into a probability.

    Attributes
    ----------
    classes_ : array of the labels
    ATTRIBUTES

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = kalvi.GaussianProcessClassifier().fit(X, y)
    >>> print(model.predict_proba([[1, 1], [1, -1]])[:, 1].round(1))
    [1. 0.]
    """

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS | {"link": one_of(LINKS)}

    link: Any = "logit"

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "GaussianProcessClassifier":
        """Learn from a table."""
        X, y = self._check_rows(X, y, y_numeric=False)
        check_classification_targets(y)
        weight = checked_weights(sample_weight, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        seen = np.unique(y[weight > 0]) if np.any(weight > 0) else self.classes_
        if len(seen) < 2:
            raise ValueError(
                "GaussianProcessClassifier needs two classes or more; got 1 class: "
                f"{seen.tolist()}. Give rows of all, with weights above 0."
            )
        ones = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        problems = [TrainingRows(X, (codes == k).astype(float), weight) for k in ones]
        return self._learn(problems, LINKS[self.link](), Scales(0.0, 1.0))

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, averaged over the uncertainty of the latent function."""
        X = self._check_new_rows(X)
        found = [target_moments(fit, X)[0] for fit in self.fits_]
        columns = np.clip(np.column_stack(found), 0, 1)
        if len(self.classes_) == 2:
            return np.column_stack([1 - columns[:, 0], columns[:, 0]])
        # if every class rejects a row, the weakest rejection decides
        columns = np.maximum(columns, np.finfo(float).tiny)
        return columns / columns.sum(axis=1, keepdims=True)

    def predict(self, X) -> np.ndarray:
        """The most probable class."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent function at new points; for three classes or more, a
        column for each."""
        X = self._check_new_rows(X)
        found = [fit.latent(X) for fit in self.fits_]
        mean, var = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
        if len(found) == 1:
            mean, var = mean[:, 0], var[:, 0]
        return mean, np.sqrt(var)

    def decision_function(self, X) -> np.ndarray:
        """The mean of the latent function; for three classes or more, a column for each."""
        return self.predict_latent(X)[0]
