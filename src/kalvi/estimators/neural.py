"""Bayesian neural networks as scikit-learn estimators."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from kalvi.estimators.common import all_or_nothing, documented
from kalvi.estimators.neural_base import NeuralEstimator, standard, streams
from kalvi.estimators.neural_settings import PARAMETERS
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.likelihoods.vector import MultiNormal, Softmax

FIRST_NOISE = 0.3
"""The variance of the noise of standardised y, before it is learned."""


@partial(documented, parameters=PARAMETERS)
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
        The evidence bound of the linearised network, of standardised data, where "vifa" kept the full
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

    def __init__(
        self,
        hidden_sizes=(50,),
        *,
        activation="tanh",
        method="vifa",
        rank="auto",
        epochs="auto",
        batch_size="auto",
        learning_rate=0.01,
        prior_precision="auto",
        noise_scale="auto",
        n_members=5,
        predictive="auto",
        n_draws=30,
        dtype="auto",
        random_state=None,
        verbose=False,
    ):
        super().__init__(
            hidden_sizes,
            activation=activation,
            method=method,
            rank=rank,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            prior_precision=prior_precision,
            n_members=n_members,
            predictive=predictive,
            n_draws=n_draws,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
        )
        self.noise_scale = noise_scale

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "NeuralRegressor":
        """Forget everything and learn from a table."""
        return self._take(X, y, sample_weight, fresh=True, shuffle=True)

    @available_if(streams)
    @all_or_nothing
    def partial_fit(self, X, y, sample_weight=None) -> "NeuralRegressor":
        """Learn from further rows; the scales of inputs and targets are those of the first call."""
        fresh = "fitted_" not in self.__dict__
        return self._take(X, y, sample_weight, fresh=fresh, shuffle=False)

    def _take(self, x, y, sample_weight, *, fresh: bool, shuffle: bool) -> Any:
        x, y = self._checked(x, y, reset=fresh, y_numeric=True, multi_output=True)
        weight = self._weights(sample_weight, x)
        if fresh:
            self._columns = None if y.ndim == 1 else y.shape[1]
            self.y_mean_, self.y_scale_ = standard(y, weight)
        y = (y - self.y_mean_) / self.y_scale_
        y = y[:, 0] if self._columns == 1 else y
        x = self._scaled(x, weight, fresh=fresh)
        return self._learn(x, y, weight, fresh=fresh, shuffle=shuffle)

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if asked, its standard deviation, noise included."""
        mean, epistemic, aleatoric = self.predict_parts(X)
        return (mean, np.sqrt(epistemic + aleatoric)) if return_std else mean

    def predict_parts(self, X) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean of y, its variance by the parameters, and its variance by the noise."""
        found = self._predicted(X)
        mean, epistemic, aleatoric = (
            np.asarray(a, np.float64)[:, 0] if self._columns is None else np.asarray(a, np.float64)
            for a in found
        )
        square = self.y_scale_**2
        return mean * self.y_scale_ + self.y_mean_, epistemic * square, aleatoric * square

    @property
    def noise_scale_(self) -> Any:
        """The standard deviation of the noise, given or learned."""
        self._require_fitted("noise_scale_")
        noise = np.sqrt(np.asarray(self.fitted_.model.noise_variance(), np.float64)) * self.y_scale_
        return float(noise[0]) if self._columns is None else noise

    def _outputs(self) -> int:
        return self._columns or 1

    def _likelihood(self) -> Any:
        noise = np.full(self._outputs(), FIRST_NOISE)
        if not self._learns_noise():
            noise = np.broadcast_to((float(self.noise_scale) / self.y_scale_) ** 2, noise.shape)
        return Normal(noise[0]) if self._outputs() == 1 else MultiNormal(noise)

    def _learns_noise(self) -> bool:
        return isinstance(self.noise_scale, str)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@partial(documented, parameters=PARAMETERS)
class NeuralClassifier(ClassifierMixin, NeuralEstimator):
    """Classification by a network with a posterior over its parameters.

    Inputs are standardised inside. Two classes have one log-odds, more a softmax.

    PARAMETERS

    Attributes
    ----------
    classes_ : array of labels
    posterior_ : Gaussian or Mixture
        Over the flat vector of parameters.
    elbo_ : float
        The evidence bound of the linearised network, where "vifa" kept the full covariance.

    Examples
    --------
    >>> import kalvi
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = kalvi.NeuralClassifier((8,), epochs=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape, bool(model.score(X, y) > 0.95)
    ((1, 3), True)
    """

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "NeuralClassifier":
        """Forget everything and learn from a table."""
        return self._take(X, y, None, sample_weight, fresh=True, shuffle=True)

    @available_if(streams)
    @all_or_nothing
    def partial_fit(self, X, y, classes=None, sample_weight=None) -> "NeuralClassifier":
        """Learn from further rows; the first call needs all labels, in y or in `classes`."""
        fresh = "fitted_" not in self.__dict__
        return self._take(X, y, classes, sample_weight, fresh=fresh, shuffle=False)

    def _take(self, x, y, classes, sample_weight, *, fresh: bool, shuffle: bool) -> Any:
        x, y = self._checked(x, y, reset=fresh)
        weight = self._weights(sample_weight, x)
        if fresh:
            check_classification_targets(y)
            self.classes_ = np.unique(y if classes is None else classes)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"NeuralClassifier needs two classes or more; got 1 class: {self.classes_.tolist()}."
                )
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={list(classes)} differ from those of the first call, {self.classes_.tolist()}."
            )
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(
                f"y contains {unknown[:1].tolist()[0]!r}, which is not one of {self.classes_.tolist()}."
            )
        codes = np.searchsorted(self.classes_, y).astype(float)
        x = self._scaled(x, weight, fresh=fresh)
        return self._learn(x, codes, weight, fresh=fresh, shuffle=shuffle)

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, the uncertainty of the parameters averaged over."""
        return self.predict_parts(X)[0]

    def predict(self, X) -> np.ndarray:
        """The likeliest class."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def predict_parts(self, X) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The probabilities, and the variances of each class's indicator: by the parameters, by chance."""
        found = [np.asarray(a, np.float64) for a in self._predicted(X)]
        if self._outputs() > 1:
            p, epistemic, aleatoric = found
            p = np.clip(p, 0, None)
            return p / p.sum(axis=1, keepdims=True), epistemic, aleatoric
        p = np.clip(found[0], 0, 1)
        epistemic, aleatoric = (np.hstack([part, part]) for part in found[1:])
        return np.hstack([1 - p, p]), epistemic, aleatoric

    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _likelihood(self) -> Any:
        return Bernoulli() if self._outputs() == 1 else Softmax.of(len(self.classes_))

    def _learns_noise(self) -> bool:
        return False
