"""Bayesian linear, logistic and Poisson regression for streams and tables, as scikit-learn estimators."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from kalvi.estimators import settings
from kalvi.estimators.common import all_or_nothing, documented
from kalvi.estimators.kinds import FixedLikelihood, StreamingRegressor
from kalvi.gaussians import Gaussian
from kalvi.likelihoods import Bernoulli, Likelihood, Normal, Poisson
from kalvi.likelihoods.vector import Softmax
from kalvi.rules.rvga import Streaming

NO_NOISE = 1e-12
"""The learned noise scale where nothing was ever mispredicted."""


@documented
class LinearRegression(StreamingRegressor):
    """Bayesian linear regression: the Kalman filter for a static state, exact in one pass.

    PARAMETERS
    noise_scale : float or "auto", default "auto"
        Standard deviation of the noise. "auto" learns it online with the conjugate
        normal–inverse-gamma model, in which prior_scale is in units of the noise: a coefficient many
        times prior_scale noises large contradicts the prior and is put down to noise. The default
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

    def __init__(
        self,
        *,
        rank=None,
        prior_mean=0.0,
        prior_scale=1000.0,
        prior=None,
        noise_scale="auto",
        method="rvga",
        scheme="implicit",
        fit_intercept=True,
        forgetting=1.0,
        process_noise=0.0,
        passes="auto",
        block_size="auto",
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        super().__init__(
            rank=rank,
            prior_mean=prior_mean,
            prior_scale=prior_scale,
            prior=prior,
            method=method,
            scheme=scheme,
            fit_intercept=fit_intercept,
            forgetting=forgetting,
            process_noise=process_noise,
            passes=passes,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
        )
        self.noise_scale = noise_scale

    def _check_model(self) -> None:
        if np.ndim(self.noise_scale):
            raise ValueError(f"noise_scale must be one number or 'auto'; got {self.noise_scale!r}.")
        if self.prior is not None and self._learns_noise():
            raise ValueError(
                "prior= is in the units of y and needs noise_scale to be a number, "
                "such as the other model's noise_scale_; got noise_scale='auto'."
            )

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def _learns_noise(self) -> bool:
        return isinstance(self.noise_scale, str)

    def _scales(self) -> np.ndarray:
        return settings.NOISE_UNITS if self._learns_noise() else settings.SCALES

    def _one_pass_is_exact(self) -> bool:
        return self.rank is None

    def _stream_likelihood(self) -> Likelihood:
        return Normal(1.0 if self._learns_noise() else float(self.noise_scale) ** 2)

    def _fitted_likelihood(self) -> Likelihood:
        return Normal(np.asarray(self.noise_scale_**2, self.dtype))

    @property
    def noise_scale_(self) -> float:
        """The standard deviation of the noise, given or learned."""
        return float(np.sqrt(self._fitted()._noise_variance(self._predicting()[1])))

    def _noise_variance(self, state: Streaming) -> float:
        if not self._learns_noise():
            return float(self.noise_scale) ** 2
        return float(state.innovations) / max(float(state.rows), NO_NOISE) or NO_NOISE**2

    def _in_units(self, q: Any, state: Streaming) -> Gaussian:
        """Where the noise is learned, it is the unit of a stream."""
        if not self._learns_noise():
            return q
        return q.rescale(np.asarray(1 / self._noise_variance(state), self.dtype))

    def _refitted(self, state: Streaming, prior: Gaussian, rows: tuple) -> Streaming:
        """The squared residuals, and the prior's share: what the noise is learned from."""
        if not self._learns_noise():
            return state
        (x, y, weight), q = rows, state.posterior
        mean, away = np.asarray(q.mean), q.mean - prior.mean
        residual = y - x @ mean[: x.shape[1]] - (mean[-1] if self.fit_intercept else 0)
        total = jnp.asarray(weight @ residual**2 + float(away @ prior.solve(away)), self.dtype)
        evidence = state.log_evidence + (state.innovations - total) / 2  # Π (1 + vₜ) stays
        return eqx.tree_at(lambda s: (s.innovations, s.log_evidence), state, (total, evidence))

    def _complaint(self, state: Streaming) -> str | None:
        if self._learns_noise() and float(state.rows) > 0 and float(state.innovations) == 0:
            return (
                "every y was predicted exactly, so the noise cannot be learned and is taken as "
                f"{NO_NOISE:g}; pass noise_scale= if it is known."
            )
        return None

    def _evidence(self, state: Streaming) -> float:
        """With unknown noise, ∫ Π N(yₜ; aₜ, σ²(1 + vₜ)) dσ²/σ² = Γ(n/2) (π S)^{−n/2} Π (1 + vₜ)^{−1/2}."""
        if not self._learns_noise():
            return float(state.log_evidence)
        n, total = float(state.rows), float(state.innovations)
        if n == 0 or total <= 0:
            return float(state.log_evidence)
        spread = float(state.log_evidence) + n * np.log(2 * np.pi) / 2 + total / 2
        return float(gammaln(n / 2)) - n / 2 * np.log(np.pi * total) + spread


@documented
class LogisticRegression(ClassifierMixin, FixedLikelihood):
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
    log_evidence_ : float
        Prequential log evidence Σ log p(yₜ | y₁ … yₜ₋₁) of the streaming pass; `elbo_` with "klprox".
    elbo_ : float
        The variational bound on log p(y), after `fit` with more than one pass.

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
        X, y = self._check_rows(X, y, reset=True, y_numeric=False)
        self.classes_ = self._labels(y, None)
        self.__dict__.pop("state_", None)
        return self._learn(X, self._targets(y), sample_weight, revisit=True)

    @all_or_nothing
    def partial_fit(self, X, y, classes=None, sample_weight=None) -> "LogisticRegression":
        """Learn from further rows; the first call needs all labels, in y or in `classes`."""
        first = not hasattr(self, "state_")
        X, y = self._check_rows(X, y, reset=first, y_numeric=False)
        if first:
            self.classes_ = self._labels(y, classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={list(classes)} differ from those of the first call, {self.classes_.tolist()}."
            )
        return self._learn(X, self._targets(y), sample_weight, revisit=False)

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, the uncertainty of the coefficients averaged over."""
        found = np.clip(self._predictive(X)[0].astype(np.float64), 0, 1)
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
        return self._predictive(X)[2]

    @property
    def coef_(self) -> np.ndarray:
        return self._table()[:, : self.n_features_in_]

    @property
    def intercept_(self) -> np.ndarray:
        table = self._table()
        return table[:, -1] if self.fit_intercept else np.zeros(len(table))

    def _table(self) -> np.ndarray:
        return np.asarray(self._on_host()[2].mean).reshape(self._outputs(), -1)

    def _outputs(self) -> int:
        return len(self.classes_) if len(self.classes_) > 2 else 1

    def _labels(self, y: np.ndarray, classes) -> np.ndarray:
        """The labels, from y or as given."""
        check_classification_targets(y)
        found = np.unique(y if classes is None else classes)
        if len(found) < 2:
            raise ValueError(
                f"LogisticRegression needs two classes or more; got 1 class: {found.tolist()}. "
                "Give rows of all, or name all in partial_fit(..., classes=[...])."
            )
        if len(found) > 2 and self.scheme == "qkf":
            raise ValueError(
                f"scheme='qkf' is for two classes and y has {len(found)}; use scheme='implicit'."
            )
        return found

    def _targets(self, y: np.ndarray) -> np.ndarray:
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(
                f"y contains {unknown[:1].tolist()[0]!r}, which is not one of {self.classes_.tolist()}."
            )
        return np.searchsorted(self.classes_, y).astype(float)

    def _check_model(self) -> None:
        pass

    def _stream_likelihood(self) -> Bernoulli | Softmax:
        classes = len(self.classes_)
        return Bernoulli() if classes == 2 else Softmax.of(classes)


@documented
class PoissonRegression(StreamingRegressor, FixedLikelihood):
    """Bayesian regression of counts with a logarithmic link, by R-VGA.

    PARAMETERS

    Attributes
    ----------
    posterior_ : Gaussian
        Over the coefficients, the intercept last when there is one.
    coef_, intercept_ : array of shape (n_features,), float
    log_evidence_ : float
        Prequential log evidence of the streaming pass; `elbo_` with method="klprox".
    elbo_ : float
        The variational bound on log p(y), after `fit` with more than one pass.

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

    def _check_model(self) -> None:
        if self.scheme == "qkf":
            raise ValueError(
                "scheme='qkf' needs a likelihood with a quadratic bound and the Poisson has none; "
                "use scheme='implicit'."
            )

    def _targets(self, y: np.ndarray) -> np.ndarray:
        bad = np.flatnonzero(y < 0)
        if bad.size:
            raise ValueError(f"y must hold counts, 0 or more; row {bad[0]} has {y[bad[0]]:g}.")
        return y

    def _stream_likelihood(self) -> Likelihood:
        return Poisson()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
