"""What the Gaussian process estimators share: rows checked, hyperparameters found, the posterior kept."""

from abc import abstractmethod
from typing import Any
from warnings import warn

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kalvi import kernels
from kalvi.estimators import settings
from kalvi.estimators.gp_covariances import (
    Covariance,
    covariance,
    derivative_squares,
    padded_size,
)
from kalvi.estimators.gp_fits import Exact, ExactProblem, Hyper, Mean, Table, cast, search
from kalvi.estimators.gp_settings import check_memory, check_settings, check_sparse_memory
from kalvi.estimators.gp_sparse import Sparse, SparseProblem
from kalvi.estimators.states import check_names, fits_together
from kalvi.likelihoods import Likelihood
from kalvi.numerics.linalg import cholesky
from kalvi.numerics.precision import matching
from kalvi.streams import run

INDEFINITE = 1e-8
"""Negative eigenvalues of a kernel matrix that rounding explains, as a share of its largest entry."""
CHECKED_ROWS = 512


class GaussianProcess(BaseEstimator):
    """A Gaussian process prior over a latent function, or several, and their variational posteriors."""

    n_features_in_: int
    n_evaluations_: int
    fits_: list[Any]

    def __init__(
        self,
        kernel: Any = None,
        *,
        mean: Any = 0.0,
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
        self.kernel = kernel
        self.mean = mean
        self.optimizer = optimizer
        self.grid = grid
        self.n_restarts_optimizer = n_restarts_optimizer
        self.sparse = sparse
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.max_passes = max_passes
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def fit(self, X, y, sample_weight=None) -> Any:
        """Fit to all rows."""

    @property
    def kernel_(self) -> Any:
        """The kernel as fitted; a list, one a class, for three classes or more."""
        return self._each(lambda fit: fit.hyper.covariance.kernel)

    @property
    def likelihood_(self) -> Any:
        """The likelihood as fitted."""
        return self._each(lambda fit: fit.hyper.likelihood)

    @property
    def mean_(self) -> Any:
        """The constant of the prior mean as fitted."""
        return self._each(lambda fit: fit.hyper.mean.constant)

    @property
    def hyperparameters_(self) -> Any:
        """The free hyperparameters by name, as fitted."""
        return self._each(lambda fit: fit.hyper.values)

    @property
    def inducing_(self) -> Any:
        """The inducing points of the sparse regime."""
        if self.regime_ != "sparse":
            raise AttributeError("inducing_ is there after fit with sparse=True.")
        return self._each(lambda fit: np.asarray(fit.inducing))

    @property
    def log_marginal_likelihood_(self) -> float:
        """The variational bound on log p(y), summed over the problems of the classes."""
        self._require_fitted("log_marginal_likelihood_")
        return float(sum(fit.elbo for fit in self.fits_))

    @property
    def elbo_(self) -> float:
        """The same."""
        return self.log_marginal_likelihood_

    @property
    def elbo_gap_(self) -> float:
        """The squared natural-gradient norm where the ascent of the bound ended, or a bound on it, in nats.

        NaN after minibatches.
        """
        self._require_fitted("elbo_gap_")
        return float(max(float(fit.gap) for fit in self.fits_))

    @property
    def regime_(self) -> str:
        """Whether every row has a latent of its own ("exact") or all go through inducing points."""
        self._require_fitted("regime_")
        return self.fits_[0].regime

    def _each(self, part) -> Any:
        self._require_fitted("what was fitted")
        found = [part(fit) for fit in self.fits_]
        return found[0] if len(found) == 1 else found

    def _require_fitted(self, name: str) -> None:
        if "fits_" not in self.__dict__:
            raise AttributeError(f"{name} is there after fit.")

    def _check_settings(self) -> None:
        """Refuse parameters that mean nothing, whatever the rows."""
        check_settings(self.get_params(deep=False))
        if self.kernel is not None:
            with matching(self.dtype):
                covariance(self.kernel, self.dtype)

    def _checked(self, x, y, *, y_numeric: bool) -> tuple[np.ndarray, np.ndarray]:
        self.n_evaluations_ = 0
        self._check_settings()
        with settings.located(X=x, y=y):
            checked: Any = validate_data(self, x, y, dtype=np.float64, y_numeric=y_numeric)
        if not self.sparse:
            check_memory(len(checked[0]), self.dtype, derivative_squares(self.kernel))
        elif self.batch_size is None:
            check_sparse_memory(len(checked[0]), int(self.n_inducing), self.dtype)
        return checked

    def _weights(self, sample_weight, x) -> np.ndarray:
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
        bad = np.flatnonzero(weight < 0)
        if bad.size:
            raise ValueError(
                f"sample_weight must be non-negative; row {bad[0]} has {weight[bad[0]]:g}. "
                "Give rows to ignore the weight 0."
            )
        return weight

    def _fit_one(
        self,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        likelihood: Likelihood,
        centre: float,
        spread: float,
    ) -> Any:
        """The fit of one latent function; `centre` and `spread` are the scales it will have."""
        with matching(self.dtype):
            kept = weight > 0
            table = Table(x[kept], y[kept], weight[kept]) if np.any(kept) else Table(x, y, weight)
            cov = self._covariance(table, spread)
            hyper = Hyper(cov, cast(likelihood, self.dtype), self._mean(centre, spread))
            self._check_kernel(cov, table.x)
            rng = check_random_state(self.random_state)
            problem = self._problem(table, hyper, rng)
            if self.optimizer is not None:
                hyper, count = search(
                    problem,
                    hyper,
                    self.optimizer,
                    self.grid,
                    int(self.n_restarts_optimizer),
                    rng,
                    bool(self.verbose),
                )
                self.n_evaluations_ += count
            fit = problem.fit(hyper)
        if not np.isfinite(fit.elbo):
            raise ValueError(
                f"the variational bound does not exist for {hyper.values}; "
                "is the kernel positive definite, and are its scales those of the data?"
            )
        return fit

    def _problem(self, table: Table, hyper: Hyper, rng: np.random.RandomState) -> Any:
        if not self.sparse:
            return ExactProblem(table, self.dtype, int(self.max_passes))
        return SparseProblem(
            table,
            hyper,
            self.dtype,
            int(self.max_passes),
            int(self.n_inducing),
            self.batch_size,
            rng,
        )

    def _covariance(self, table: Table, spread: float) -> Covariance:
        if self.kernel is not None:
            return covariance(self.kernel, self.dtype)
        length = float(np.linalg.norm([moments(x, table.weight)[1] for x in table.x.T])) or 1.0
        return covariance(spread**2 * kernels.RBF(length), self.dtype)

    def _mean(self, centre: float, spread: float) -> Mean:
        if callable(self.mean):
            return Mean(0.0, False, function=self.mean)
        if self.mean == "constant":
            return Mean(centre, True, spread)
        return Mean(float(self.mean), False)

    def _check_kernel(self, cov: Covariance, x: np.ndarray) -> None:
        """Refuse a kernel that is no covariance: seen on a few hundred rows."""
        some = x[:: -(-len(x) // CHECKED_ROWS)]
        gram = cov.gram(some, padded_size(len(some)))
        finite, symmetric, positive = run.call(_covariance_signs, gram)
        if not finite:
            raise ValueError("the kernel gives NaN or infinity for some pairs of rows.")
        if not (symmetric and positive):
            matrix = np.asarray(gram, np.float64)[: len(some), : len(some)]
            least = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
            raise ValueError(
                "the kernel must be symmetric and positive semidefinite; the matrix of "
                f"{len(some)} rows has the eigenvalue {least:.3g} and differs from its transpose by "
                f"{float(np.max(np.abs(matrix - matrix.T))):.3g}."
                + " In float32 distances between far rows are rounded: dtype='float64' may do."
                * (np.dtype(self.dtype) == np.float32)
            )

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
        warn(text, ConvergenceWarning, stacklevel=4)

    def _laws(self, x) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and variance of each latent function at new points."""
        check_is_fitted(self)
        with settings.located(X=x):
            rows: Any = validate_data(self, x, reset=False, dtype=np.float64)
        with matching(self._fitted_dtype()):
            return [fit.latent(rows) for fit in self.fits_]

    def _fitted_dtype(self) -> Any:
        """That of the fit: parameters set later are for the next one."""
        return self.fits_[0].hyper.covariance.dtype

    def __getstate__(self) -> dict[str, Any]:
        """JAX arrays travel as NumPy arrays: unpickling must not depend on JAX's global precision."""
        return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, vars(self))

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        if "fits_" not in self.__dict__:
            return
        check_names(self)
        fits_together(isinstance(self.fits_, list) and bool(self.fits_), self, "fits_")
        for fit in self.fits_:
            fits_together(isinstance(fit, Exact | Sparse), self, "fits_")
            rows = fit.x if isinstance(fit, Exact) else fit.inducing
            shape = rows.ndim == 2 and rows.shape[1] == self.n_features_in_
            fits_together(shape, self, "n_features_in_ and fits_")


def moments(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation, rows counted by their weights."""
    if not np.any(weight > 0):
        return float(values.mean()), float(values.std())
    mean = float(np.average(values, weights=weight))
    return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weight)))


def _covariance_signs(gram):
    """Whether a matrix is finite, symmetric, and positive semidefinite but for rounding."""
    size, largest = gram.shape[0], jnp.max(jnp.abs(gram))
    share = INDEFINITE if gram.dtype == jnp.float64 else 1e-3
    raised = (gram + gram.T) / 2 + share * largest * jnp.eye(size, dtype=gram.dtype)
    symmetric = jnp.max(jnp.abs(gram - gram.T)) <= share * largest
    return jnp.isfinite(largest), symmetric, jnp.all(jnp.isfinite(cholesky(raised)))
