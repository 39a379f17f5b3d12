"""Bayesian neural networks as scikit-learn estimators."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from kalvi.estimators.constraints import POSITIVE, Constraint, auto
from kalvi.estimators.decorators import all_or_nothing, documented, parametrised
from kalvi.estimators.input_checks import check_same_labels, first_labels
from kalvi.estimators.neural.estimator import NeuralEstimator, learns_in_one_pass
from kalvi.estimators.neural.parameters import CONSTRAINTS, PARAMETERS
from kalvi.estimators.neural.targets import ClassTargets, NumberTargets, Parts


@documented(PARAMETERS)
@parametrised
class NeuralRegressor(RegressorMixin, NeuralEstimator):
    """Regression by a network with a posterior over its parameters.

    Inputs and targets are standardised inside; y may have several columns.

    PARAMETERS
    noise_scale : "auto" or float, default "auto"
        The standard deviation of the noise in the units of y.

    Attributes
    ----------
    posterior_ : Gaussian or Mixture
        Over the flat vector of parameters.
    noise_scale_ : float or array
    elbo_ : float
        The evidence bound of the linearised network for standardised data, if "vifa" kept the full
        covariance.

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> model = kalvi.NeuralRegressor((10,), random_state=0).fit(x, np.sin(3 * x[:, 0]))
    >>> mean, std = model.predict([[0.5], [5.0]], return_std=True)
    >>> bool(std[1] > 10 * std[0])
    True
    """

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS | {"noise_scale": auto(POSITIVE)}

    noise_scale: Any = "auto"

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "NeuralRegressor":
        """Forget everything and learn from a table."""
        X, y, weight = self._check_numbers(X, y, sample_weight, reset=True)
        begun = self._begin(NumberTargets.of(y, weight), X, weight)
        return self._learn(begun, (X, y, weight), shuffle=True)

    @available_if(learns_in_one_pass)
    @all_or_nothing
    def partial_fit(self, X, y, sample_weight=None) -> "NeuralRegressor":
        """Learn from further rows, with the scales of inputs and targets from the first call."""
        fresh = "fit_" not in vars(self)
        X, y, weight = self._check_numbers(X, y, sample_weight, reset=fresh)
        begun = self._begin(NumberTargets.of(y, weight), X, weight) if fresh else self.fit_
        return self._learn(begun, (X, y, weight), shuffle=False)

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if `return_std`, its standard deviation, noise included."""
        mean, epistemic, aleatoric = self.predict_parts(X)
        return (mean, np.sqrt(epistemic + aleatoric)) if return_std else mean

    def predict_parts(self, X) -> Parts:
        """The mean of y, its variance due to the parameters, and its variance due to the noise."""
        return self._predict_parts(X)

    @property
    def noise_scale_(self) -> Any:
        """The standard deviation of the noise, given or learned."""
        fit = self._fitted("noise_scale_")
        assert isinstance(fit.targets, NumberTargets)
        return fit.targets.noise_scale(fit.learned.model.noise_variance())

    def _check_numbers(self, x, y, sample_weight, *, reset: bool) -> Any:
        how = {"y_numeric": True, "multi_output": True}
        return self._check_rows(x, y, sample_weight, reset=reset, **how)

    def _targets_of(self, parts: dict[str, Any]) -> NumberTargets:
        return NumberTargets.of_parts(parts)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@documented(PARAMETERS)
@parametrised
class NeuralClassifier(ClassifierMixin, NeuralEstimator):
    """Classification by a network with a posterior over its parameters.

    Inputs are standardised inside. Two classes are modelled by one log-odds, more by a softmax.

    PARAMETERS

    Attributes
    ----------
    classes_ : array of labels
    posterior_ : Gaussian or Mixture
        Over the flat vector of parameters.
    elbo_ : float
        The evidence bound of the linearised network, if "vifa" kept the full covariance.

    Examples
    --------
    >>> import kalvi
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = kalvi.NeuralClassifier((8,), epochs=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape, bool(model.score(X, y) > 0.95)
    ((1, 3), True)
    """

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "NeuralClassifier":
        """Forget everything and learn from a table."""
        X, y, weight = self._check_rows(X, y, sample_weight, reset=True)
        begun = self._begin(self._first_classes(y), X, weight)
        return self._learn(begun, (X, y, weight), shuffle=True)

    @available_if(learns_in_one_pass)
    @all_or_nothing
    def partial_fit(self, X, y, classes=None, sample_weight=None) -> "NeuralClassifier":
        """Learn from further rows; the first call needs all labels, in y or in `classes`."""
        fresh = "fit_" not in vars(self)
        X, y, weight = self._check_rows(X, y, sample_weight, reset=fresh)
        if fresh:
            begun = self._begin(self._first_classes(y, classes), X, weight)
        else:
            check_same_labels(self, classes)
            begun = self.fit_
        return self._learn(begun, (X, y, weight), shuffle=False)

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, averaged over the uncertainty of the parameters."""
        return self.predict_parts(X)[0]

    def predict(self, X) -> np.ndarray:
        """The likeliest class."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def predict_parts(self, X) -> Parts:
        """The probabilities, and the variances of each class's indicator due to the parameters and due to
        chance."""
        return self._predict_parts(X)

    def _first_classes(self, y: np.ndarray, classes: Any = None) -> ClassTargets:
        """The classes of a new network."""
        self.classes_ = first_labels(self, y, classes)
        return ClassTargets(self.classes_)

    def _targets_of(self, parts: dict[str, Any]) -> ClassTargets:
        return ClassTargets(np.asarray(self.classes_))
