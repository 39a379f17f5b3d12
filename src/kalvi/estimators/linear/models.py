"""Bayesian linear, logistic and Poisson regression for streams and tables, as scikit-learn estimators."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from kalvi.estimators.constraints import Constraint, one_of
from kalvi.estimators.decorators import all_or_nothing, documented, parametrised
from kalvi.estimators.input_checks import check_same_labels, first_labels
from kalvi.estimators.linear.estimator import LinearEstimator
from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.settings import ATTRIBUTES, CONSTRAINTS, PARAMETERS, SCALE, SCHEMES
from kalvi.likelihoods import Bernoulli, Normal, Poisson
from kalvi.likelihoods.vector import Softmax


class LinearRegressor(RegressorMixin, LinearEstimator):
    """The common part of the regressors: numbers as targets, predictions with a standard deviation."""

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "LinearRegressor":
        """Forget everything and learn from a table."""
        X, y = self._check_rows(X, y, reset=True)
        return self._learn_table(X, self._targets(y), sample_weight)

    @all_or_nothing
    def partial_fit(self, X, y, sample_weight=None, time=None) -> "LinearRegressor":
        """Learn from further rows; with `time`, numbers or dates, coefficients drift by the time between
        rows."""
        X, y = self._check_rows(X, y, reset="fit_" not in vars(self))
        return self._learn_more(X, self._targets(y), sample_weight, time)

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if `return_std`, its standard deviation, noise included."""
        mean, variance, _ = self._predict(X)
        return (mean, np.sqrt(variance)) if return_std else mean

    @property
    def coef_(self) -> np.ndarray:
        return np.asarray(self._fitted("coef_").on_host.posterior.mean)[: self.n_features_in_]

    @property
    def intercept_(self) -> float:
        fit = self._fitted("intercept_")
        return float(fit.on_host.posterior.mean[-1]) if fit.settings.fit_intercept else 0.0


@documented(PARAMETERS)
@parametrised
class LinearRegression(LinearRegressor):
    """Bayesian linear regression: the Kalman filter for a static state, exact in one pass.

    PARAMETERS
    noise_scale : float or "auto", default "auto"
        Standard deviation of the noise. "auto" learns it online with the conjugate normal–inverse-gamma
        model, in which prior_scale is in units of the noise: a coefficient that is much larger than
        prior_scale times the noise contradicts the prior and is explained by noise. The default
        prior_scale, 1000, is nearly flat.

    Attributes
    ----------
    posterior_ : Gaussian
        Over the coefficients, the intercept last when there is one.
    coef_, intercept_ : array of shape (n_features,), float
    noise_scale_ : float
    log_evidence_ : float
        log p(y), exact; with noise_scale="auto" up to the constant of the improper noise prior.

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = kalvi.LinearRegression(noise_scale=0.1).fit(x, 2 * x[:, 0] + 1)
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> print(mean.round(2), std.round(2))
    [2.] [0.1]
    """

    conjugate = True
    default_scale = 1000.0
    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS | {
        "noise_scale": Constraint(
            "one positive and finite number, or 'auto'",
            lambda value: value is not None and np.ndim(value) == 0 and SCALE.allows(value),
            SCALE.remedy,
        ),
    }

    noise_scale: Any = "auto"

    def family(self) -> Family:
        if self.noise_scale == "auto":
            return Family(Normal(np.ones((), self.dtype)), learns_noise=True)
        scale = float(self.noise_scale)
        return Family(Normal(np.asarray(scale**2, self.dtype)), scale)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return y

    @property
    def noise_scale_(self) -> float:
        """The standard deviation of the noise, given or learned."""
        fit = self._fitted("noise_scale_")
        return float(np.sqrt(fit.family.noise_variance(fit.predicting.best)))


@documented(PARAMETERS, ATTRIBUTES)
@parametrised
class LogisticRegression(ClassifierMixin, LinearEstimator):
    """Bayesian logistic regression, by R-VGA; the softmax of several predictors for three classes or more.

    `partial_fit` streams: one pass, exactly the recursive algorithm. `fit` has the table at hand and,
    by default, goes on from there to the optimum of the variational bound.

    Two classes have one vector of coefficients, that of the second class against the first. Three or more
    have one each, all with the same prior, and rank counts the factors of all of them together. Their
    Gaussian integrals are averages over fixed points: see `Softmax` for the error.

    PARAMETERS

    Attributes
    ----------
    classes_ : array of the labels
    posterior_ : Gaussian
        Over the coefficients, the intercept last when there is one; for three classes or more those of the
        first class, its intercept, those of the second, and so on.
    coef_, intercept_ : arrays of shape (1, n_features) and (1,)
        For three classes or more (n_classes, n_features) and (n_classes,).
    ATTRIBUTES

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(500, 2))
    >>> y = rng.random(500) < 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 1]))
    >>> model = kalvi.LogisticRegression().fit(X, y)
    >>> print(model.coef_.round(1), np.sqrt(model.posterior_.variance())[:2].round(1))
    [[ 2. -1.]] [0.2 0.1]
    """

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "LogisticRegression":
        """Forget everything and learn from a table."""
        X, y = self._check_rows(X, y, reset=True)
        self.classes_ = self._labels(y, None)
        return self._learn_table(X, self._targets(y), sample_weight)

    @all_or_nothing
    def partial_fit(
        self, X, y, classes=None, sample_weight=None, time=None
    ) -> "LogisticRegression":
        """Learn from further rows; the first call needs all labels, in y or in `classes`.

        With `time`, numbers or dates, coefficients drift by the time between rows.
        """
        first = "fit_" not in vars(self)
        X, y = self._check_rows(X, y, reset=first)
        if first:
            self.classes_ = self._labels(y, classes)
        else:
            check_same_labels(self, classes)
        return self._learn_more(X, self._targets(y), sample_weight, time)

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, averaged over the uncertainty of the coefficients."""
        found = np.clip(self._predict(X)[0].astype(np.float64), 0, 1)
        if found.ndim == 1:
            return np.column_stack([1 - found, found])
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X) -> np.ndarray:
        """The class whose predictor has the largest posterior mean."""
        found = self.decision_function(X)
        index = (found > 0).astype(int) if found.ndim == 1 else np.argmax(found, axis=1)
        return self.classes_[index]

    def decision_function(self, X) -> np.ndarray:
        """The posterior mean of the log-odds, or of the predictor of each class."""
        return self._predict(X)[2]

    @property
    def coef_(self) -> np.ndarray:
        return self._coefficients("coef_")[:, : self.n_features_in_]

    @property
    def intercept_(self) -> np.ndarray:
        table = self._coefficients("intercept_")
        return table[:, -1] if self.fit_.settings.fit_intercept else np.zeros(len(table))

    def _coefficients(self, name: str) -> np.ndarray:
        fit = self._fitted(name)
        return np.asarray(fit.on_host.posterior.mean).reshape(fit.family.likelihood.outputs, -1)

    def family(self) -> Family:
        classes = len(self.classes_)
        return Family(Bernoulli() if classes == 2 else Softmax.of(classes))

    def _labels(self, y: np.ndarray, classes) -> np.ndarray:
        """The labels: `classes` if given, otherwise those in y."""
        remedy = " Give rows of all, or name all in partial_fit(..., classes=[...])."
        found = first_labels(self, y, classes, remedy)
        if len(found) > 2 and self.scheme == "qkf":
            raise ValueError(
                f"scheme='qkf' is for two classes and y has {len(found)}; use scheme='implicit'."
            )
        return found

    def _targets(self, y: np.ndarray) -> np.ndarray:
        index = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(index, len(self.classes_) - 1)] == y
        if not np.all(known):
            unknown = np.unique(y[~known])[:1].tolist()[0]
            raise ValueError(
                f"y contains {unknown!r}, which is not one of {self.classes_.tolist()}."
            )
        return index.astype(float)


@documented(PARAMETERS, ATTRIBUTES)
@parametrised
class PoissonRegression(LinearRegressor):
    """Bayesian regression of counts with a logarithmic link, by R-VGA.

    PARAMETERS

    Attributes
    ----------
    posterior_ : Gaussian
        Over the coefficients, the intercept last when there is one.
    coef_, intercept_ : array of shape (n_features,), float
    ATTRIBUTES

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1))
    >>> model = kalvi.PoissonRegression().fit(X, rng.poisson(np.exp(1 + 0.5 * X[:, 0])))
    >>> print(model.coef_.round(1), round(model.intercept_, 1))
    [0.5] 1.0
    """

    constraints: ClassVar[dict[str, Constraint]] = CONSTRAINTS | {
        "scheme": one_of(scheme for scheme in SCHEMES if scheme != "qkf")._replace(
            remedy="'qkf' needs a likelihood with a quadratic bound and the Poisson has none; "
            "use scheme='implicit'."
        ),
    }

    def family(self) -> Family:
        return Family(Poisson())

    def _targets(self, y: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(y < 0)
        if bad.size:
            raise ValueError(f"y must hold counts, 0 or more; row {bad[0]} has {y[bad[0]]:g}.")
        return y

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
