"""Gaussian processes with any scalar likelihood as scikit-learn estimators."""

from functools import partial

import jax
import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from kalvi.estimators.common import all_or_nothing, documented
from kalvi.estimators.gp_base import GaussianProcess, moments
from kalvi.estimators.gp_fits import per_point
from kalvi.estimators.gp_settings import PARAMETERS
from kalvi.likelihoods import (
    Bernoulli,
    Laplace,
    Likelihood,
    Normal,
    Poisson,
    Probit,
    StudentT,
)
from kalvi.likelihoods.base import need_labels, need_one_output
from kalvi.numerics.precision import matching

FIRST_NOISE = 0.1
"""The variance of the noise before it is learned, as a share of that of y."""
LINKS = {"logit": Bernoulli, "probit": Probit}


@partial(documented, parameters=PARAMETERS)
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

    def __init__(
        self,
        kernel=None,
        *,
        likelihood="normal",
        mean="constant",
        optimizer="lbfgs",
        grid=None,
        n_restarts_optimizer=0,
        sparse=False,
        n_inducing=256,
        batch_size=None,
        max_passes=500,
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        super().__init__(
            kernel,
            mean=mean,
            optimizer=optimizer,
            grid=grid,
            n_restarts_optimizer=n_restarts_optimizer,
            sparse=sparse,
            n_inducing=n_inducing,
            batch_size=batch_size,
            max_passes=max_passes,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "GaussianProcessRegressor":
        """Learn from a table."""
        X, y = self._checked(X, y, y_numeric=True)
        weight = self._weights(sample_weight, X)
        centre, spread = moments(y, weight)
        spread = spread or 1.0
        likelihood = self._first_likelihood(spread)
        need_labels(likelihood, y)
        if likelihood.log_link:
            centre, spread = float(np.log(max(centre, 1e-3))), 1.0
        self.fits_ = [self._fit_one(X, y, weight, likelihood, centre, spread)]
        self._warn()
        return self

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if asked, its standard deviation, noise included."""
        law = self._laws(X)[0]
        with matching(self._fitted_dtype()):
            mean, var = per_point(_moments, self.fits_[0].hyper.likelihood, *law)
        return (mean, np.sqrt(var)) if return_std else mean

    def predict_latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent function at new points."""
        mean, var = self._laws(X)[0]
        return mean, np.sqrt(var)

    def log_predictive_density(self, X, y) -> np.ndarray:
        """log p(y | x, the table) for each new row."""
        mean, var = self._laws(X)[0]
        y = column_or_1d(y, dtype=np.float64)
        check_consistent_length(mean, y)
        assert_all_finite(y, input_name="y")
        with matching(self._fitted_dtype()):
            y = np.asarray(y, mean.dtype)
            return per_point(_log_predictive, self.fits_[0].hyper.likelihood, y, mean, var)

    def _first_likelihood(self, spread: float) -> Likelihood:
        if isinstance(self.likelihood, Likelihood):
            need_one_output(self.likelihood, "GaussianProcessRegressor")
            return self.likelihood
        scale = float(np.sqrt(FIRST_NOISE)) * spread
        made = {
            "normal": lambda: Normal(scale**2),
            "laplace": lambda: Laplace(scale),
            "student_t": lambda: StudentT(4.0, scale),
            "poisson": Poisson,
        }
        if not isinstance(self.likelihood, str) or self.likelihood not in made:
            raise ValueError(
                f"likelihood must be one of {', '.join(made)} or a Likelihood; got {self.likelihood!r}."
            )
        return made[self.likelihood]()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood == "poisson"
        return tags


@partial(documented, parameters=PARAMETERS)
class GaussianProcessClassifier(ClassifierMixin, GaussianProcess):
    """Classification with a Gaussian process prior over the log-odds.

    Three classes or more are learned one against the rest, each with hyperparameters of its own; their
    probabilities are those of the separate processes divided by their sum.

    PARAMETERS
    link : {"logit", "probit"}, default "logit"
        How the latent function becomes a probability.

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

    def __init__(
        self,
        kernel=None,
        *,
        link="logit",
        mean=0.0,
        optimizer="lbfgs",
        grid=None,
        n_restarts_optimizer=0,
        sparse=False,
        n_inducing=256,
        batch_size=None,
        max_passes=500,
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        super().__init__(
            kernel,
            mean=mean,
            optimizer=optimizer,
            grid=grid,
            n_restarts_optimizer=n_restarts_optimizer,
            sparse=sparse,
            n_inducing=n_inducing,
            batch_size=batch_size,
            max_passes=max_passes,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
        )
        self.link = link

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "GaussianProcessClassifier":
        """Learn from a table."""
        if not isinstance(self.link, str) or self.link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(LINKS)}; got {self.link!r}.")
        X, y = self._checked(X, y, y_numeric=False)
        check_classification_targets(y)
        weight = self._weights(sample_weight, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        seen = np.unique(y[weight > 0]) if np.any(weight > 0) else self.classes_
        if len(seen) < 2:
            raise ValueError(
                "GaussianProcessClassifier needs two classes or more; got 1 class: "
                f"{seen.tolist()}. Give rows of all, with weights above 0."
            )
        ones = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        likelihood = LINKS[self.link]()
        self.fits_ = [
            self._fit_one(X, (codes == k).astype(float), weight, likelihood, 0.0, 1.0) for k in ones
        ]
        self._warn()
        return self

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, the uncertainty of the latent function averaged over."""
        laws = self._laws(X)
        pairs = zip(self.fits_, laws, strict=True)
        with matching(self._fitted_dtype()):
            found = [per_point(_moments, fit.hyper.likelihood, *law)[0] for fit, law in pairs]
        columns = np.clip(np.column_stack(found), 0, 1)
        if len(self.classes_) == 2:
            return np.column_stack([1 - columns[:, 0], columns[:, 0]])
        # where every class denies a row, the least denial counts
        columns = np.maximum(columns, np.finfo(float).tiny)
        return columns / columns.sum(axis=1, keepdims=True)

    def predict(self, X) -> np.ndarray:
        """The most probable class."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent function at new points; for three classes or more, a
        column for each."""
        laws = self._laws(X)
        mean, var = (np.stack(part, axis=-1) for part in zip(*laws, strict=True))
        if len(laws) == 1:
            mean, var = mean[:, 0], var[:, 0]
        return mean, np.sqrt(var)

    def decision_function(self, X) -> np.ndarray:
        """The mean of the latent function; for three classes or more, a column for each."""
        return self.predict_latent(X)[0]


def _moments(likelihood: Likelihood, mean, var):
    return jax.vmap(lambda m, v: likelihood.predict(m, v))(mean, var)


def _log_predictive(likelihood: Likelihood, y, mean, var):
    return jax.vmap(lambda y, m, v: likelihood.log_predictive(y, m, v))(y, mean, var)


ATTRIBUTES = """kernel_ : the kernel as fitted, or a list of them, one a class
    likelihood_, mean_ : the likelihood and the constant of the mean as fitted, or lists of them
    log_marginal_likelihood_ : float
        The variational bound on log p(y) (`elbo_` is the same), summed over the classes' problems.
    regime_ : "exact" or "sparse"
        Whether every row has a latent of its own, or all go through inducing points.
    inducing_ : array, or a list of them; the inducing points of the sparse regime
    n_evaluations_ : int
        How often the bound was asked for in the search of hyperparameters.
    elbo_gap_ : float
        The squared natural-gradient norm where the ascent of the bound ended, in nats."""
for _model in (GaussianProcessRegressor, GaussianProcessClassifier):
    _model.__doc__ = (_model.__doc__ or "").replace("ATTRIBUTES", ATTRIBUTES)
