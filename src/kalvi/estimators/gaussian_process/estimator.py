"""The common part of the Gaussian process estimators: checks of parameters and rows, and published
results."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar
from warnings import warn

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kalvi.estimators.constraints import Constraint
from kalvi.estimators.decorators import parametrised
from kalvi.estimators.gaussian_process.covariances import derivative_squares, make_covariance
from kalvi.estimators.gaussian_process.exact import ExactFit
from kalvi.estimators.gaussian_process.fitting import Scales, fit_latent
from kalvi.estimators.gaussian_process.memory import check_memory, check_sparse_memory
from kalvi.estimators.gaussian_process.parameters import ProcessSettings, check_settings
from kalvi.estimators.gaussian_process.problem import TrainingRows
from kalvi.estimators.gaussian_process.sparse import SparseFit
from kalvi.estimators.input_checks import check_feature_names, checked_table, require_consistent
from kalvi.estimators.pickling import PickledAsNumPy
from kalvi.likelihoods import Likelihood
from kalvi.numerics.precision import matching_precision


@parametrised
class GaussianProcess(PickledAsNumPy):
    """A Gaussian process prior over a latent function, or several, and their variational posteriors."""

    constraints: ClassVar[dict[str, Constraint]]

    kernel: Any = field(default=None, kw_only=False)
    mean: Any = 0.0
    optimizer: Any = "lbfgs"
    grid: Any = None
    n_restarts_optimizer: Any = 0
    sparse: Any = False
    n_inducing: Any = 256
    batch_size: Any = None
    max_passes: Any = 500
    dtype: Any = "float64"
    random_state: Any = None
    verbose: Any = False

    @abstractmethod
    def fit(self, X, y, sample_weight=None) -> Any:
        """Fit to all rows."""

    @property
    def kernel_(self) -> Any:
        """The fitted kernel; for three classes or more a list with one for each class."""
        return self._each(lambda fit: fit.hyper.covariance.kernel)

    @property
    def likelihood_(self) -> Any:
        """The fitted likelihood."""
        return self._each(lambda fit: fit.hyper.likelihood)

    @property
    def mean_(self) -> Any:
        """The fitted constant of the prior mean."""
        return self._each(lambda fit: fit.hyper.mean.constant)

    @property
    def hyperparameters_(self) -> Any:
        """The fitted values of the free hyperparameters, by name."""
        return self._each(lambda fit: fit.hyper.values)

    @property
    def inducing_(self) -> Any:
        """The inducing points of the sparse regime."""
        if self.regime_ != "sparse":
            raise AttributeError("inducing_ exists only after fit with sparse=True.")
        return self._each(lambda fit: np.asarray(fit.inducing))

    @property
    def log_marginal_likelihood_(self) -> float:
        """The variational bound on log p(y), summed over the problems of the classes."""
        self._require_fitted("log_marginal_likelihood_")
        return float(sum(fit.elbo for fit in self.fits_))

    @property
    def elbo_(self) -> float:
        """Another name for `log_marginal_likelihood_`."""
        return self.log_marginal_likelihood_

    @property
    def elbo_gap_(self) -> float:
        """The squared natural-gradient norm at the end of the ascent, or a bound on it, in nats.

        NaN after minibatches.
        """
        self._require_fitted("elbo_gap_")
        return float(max(float(fit.gap) for fit in self.fits_))

    @property
    def regime_(self) -> str:
        """Whether every row has its own latent value ("exact") or all use inducing points ("sparse")."""
        self._require_fitted("regime_")
        return self.fits_[0].regime

    def _each(self, part: Callable[[Any], Any]) -> Any:
        self._require_fitted("what was fitted")
        found = [part(fit) for fit in self.fits_]
        return found[0] if len(found) == 1 else found

    def _require_fitted(self, name: str) -> None:
        if "fits_" not in self.__dict__:
            raise AttributeError(f"{name} exists only after fit.")

    def check_settings(self) -> None:
        """Refuse parameters that are invalid for any rows."""
        check_settings(self.get_params(deep=False), self.constraints)
        if self.kernel is not None:
            with matching_precision(self.dtype):
                make_covariance(self.kernel, self.dtype)

    def _check_rows(self, x, y, *, y_numeric: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows to learn from; parameters are checked first."""
        self.check_settings()
        checked = checked_table(self, x, y, dtype=np.float64, y_numeric=y_numeric)
        if not self.sparse:
            check_memory(len(checked[0]), self.dtype, derivative_squares(self.kernel))
        elif self.batch_size is None:
            check_sparse_memory(len(checked[0]), int(self.n_inducing), self.dtype)
        return checked

    def _check_new_rows(self, x) -> np.ndarray:
        """Points to predict at."""
        check_is_fitted(self)
        return checked_table(self, x, reset=False, dtype=np.float64)

    def _learn(self, problems: list[TrainingRows], likelihood: Likelihood, scales: Scales) -> Any:
        """Fit a latent function to each of these problems."""
        settings = ProcessSettings(*(getattr(self, name) for name in ProcessSettings._fields))
        found = [
            fit_latent(rows, likelihood, scales, settings, check_random_state(self.random_state))
            for rows in problems
        ]
        self.fits_: list[ExactFit | SparseFit] = [fit for fit, _ in found]
        self.n_evaluations_ = sum(count for _, count in found)
        self._warn()
        return self

    def _warn(self) -> None:
        if all(fit.converged for fit in self.fits_):
            return
        if self.batch_size is not None:
            text = "some minibatches gave no step; give them more rows (batch_size)."
        else:
            text = (
                f"the variational bound had not converged (elbo_gap_ = {self.elbo_gap_:.2g} nats): "
                f"max_passes={self.max_passes} was not enough, or rounding allows no better."
            )
        warn(text, ConvergenceWarning, stacklevel=5)

    def _restore(self) -> None:
        if "fits_" not in vars(self):
            return
        check_feature_names(self)
        require_consistent(isinstance(self.fits_, list) and bool(self.fits_), self, "fits_")
        for fit in self.fits_:
            require_consistent(isinstance(fit, ExactFit | SparseFit), self, "fits_")
            shape = fit.points.ndim == 2 and fit.points.shape[1] == self.n_features_in_
            require_consistent(shape, self, "n_features_in_ and fits_")
