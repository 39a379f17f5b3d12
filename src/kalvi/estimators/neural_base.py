"""What the neural estimators share: a network, its posterior by one of the methods, and predictions."""

from abc import abstractmethod
from typing import Any
from warnings import warn

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kalvi.estimators import settings
from kalvi.estimators.neural_fits import FITS, Fitted, Problem, fit_lrvga
from kalvi.estimators.neural_settings import check_settings
from kalvi.estimators.states import check_names, fits_together
from kalvi.evaluation.predictions import Predicted, ensemble, linearised, merged
from kalvi.gaussians.mixture import Mixture
from kalvi.numerics.precision import matching
from kalvi.predictors.networks import Perceptron
from kalvi.rules.base import Batch
from kalvi.rules.evidence import SMALLEST_NOISE
from kalvi.streams import run

FULL_COVARIANCE = 1500
"""rank="auto" keeps the full covariance of at most this many parameters."""
LOW_RANK = 20
SMALL_TABLE, SMALL_BATCH, LARGE_BATCH = 5000, 128, 512
SMALL_STEPS, LARGE_STEPS, FEWEST, MOST = 8000, 16000, 20, 4000
"""epochs="auto" makes about so many steps of training, in epochs between the other two."""
PREDICTED_NUMBERS, PREDICTED_ROWS = 2**23, 1024
"""Predictions are made for at most so many numbers of the Jacobian, and rows, at once."""


def streams(self: "NeuralEstimator") -> bool:
    """Whether the method can go on with further rows."""
    if self.method != "lrvga":
        raise AttributeError(
            f"partial_fit needs a method of one pass, but method={self.method!r} revisits its rows; "
            "use fit, or method='lrvga'."
        )
    return True


class NeuralEstimator(BaseEstimator):
    """A network whose parameters have a Gaussian posterior."""

    n_features_in_: int
    fitted_: Fitted
    elbo_: float

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
        n_members=5,
        predictive="auto",
        n_draws=30,
        dtype="auto",
        random_state=None,
        verbose=False,
    ):
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.method = method
        self.rank = rank
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.prior_precision = prior_precision
        self.n_members = n_members
        self.predictive = predictive
        self.n_draws = n_draws
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _outputs(self) -> int:
        """How many numbers the network gives for an input."""

    @abstractmethod
    def _likelihood(self) -> Any:
        """The likelihood that training begins with."""

    @abstractmethod
    def _learns_noise(self) -> bool:
        """Whether the variance of the noise is learned."""

    @property
    def posterior_(self) -> Any:
        """The Gaussian over the flat vector of parameters, or a mixture of Gaussians."""
        self._require_fitted("posterior_")
        return self.fitted_.posterior

    @property
    def n_parameters_(self) -> int:
        """How many parameters the network has."""
        return self.posterior_.dim

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the parameters, one a row."""
        check_is_fitted(self)
        chosen = self.random_state if random_state is None else random_state
        key = jr.key(check_random_state(chosen).randint(2**31 - 1))
        with matching(self.dtype_):
            return np.asarray(self.posterior_.sample(key, n_samples))

    def _learn(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, *, fresh: bool, shuffle: bool
    ) -> Any:
        """The posterior of checked, standardised rows, written to `fitted_`."""
        some = weight > 0
        x, y, weight = x[some], y[some], weight[some]
        if fresh:
            sizes = (x.shape[1], *(int(h) for h in self.hidden_sizes), self._outputs())
            self.perceptron_ = Perceptron(sizes, self.activation)
            self.dtype_ = self._chosen_dtype(self.perceptron_.n_parameters())
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.structure_ = self._structure()
        else:
            self._check_structure()
        if shuffle:  # a table may be sorted, and one pass remembers best what came last
            order = np.random.default_rng(self._seed).permutation(len(y))
            x, y, weight = x[order], y[order], weight[order]
        with matching(self.dtype_):
            problem = self._problem(x, y, weight)
            if self.method == "lrvga":
                self.fitted_ = fit_lrvga(problem, None if fresh else self.fitted_)
            else:
                extra = (int(self.n_members),) if self.method == "multiswag" else ()
                self.fitted_ = FITS[self.method](problem, *extra)
        self.__dict__.pop("elbo_", None)
        if self.fitted_.elbo is not None:
            self.elbo_ = self.fitted_.elbo
        self._check_outcome()
        return self

    def _check_outcome(self) -> None:
        """Refuse a posterior that is not finite, and say what the user must know of one that is."""
        q, noise = self.fitted_.posterior, self.fitted_.model.noise_variance()
        numbers = [q.mean, q.variance(), jnp.zeros(1) if noise is None else noise]
        if not all(np.all(np.isfinite(np.asarray(a))) for a in numbers):
            raise FloatingPointError(
                "the training diverged; lower learning_rate, or use dtype='float64'."
            )
        unsolved = 0 if self.fitted_.state is None else int(self.fitted_.state.unsolved)
        if unsolved:
            warn(
                f"the implicit equations of {unsolved} rows were not solved to precision.",
                ConvergenceWarning,
                stacklevel=5,
            )
        if (
            noise is not None
            and self._learns_noise()
            and np.any(np.asarray(noise) <= SMALLEST_NOISE)
        ):
            warn(
                "the network fits y exactly, so the noise cannot be learned and is taken as "
                f"{np.sqrt(SMALLEST_NOISE):g} deviations of y; give noise_scale= if it is known.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _structure(self) -> dict[str, Any]:
        """The parameters that a posterior depends on and that must not change between calls."""
        return {
            "hidden_sizes": tuple(self.hidden_sizes),
            "activation": self.activation,
            "method": self.method,
            "rank": self.rank,
            "dtype": self.dtype,
        }

    def _problem(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Problem:
        n = len(y)
        size = (
            (SMALL_BATCH if n < SMALL_TABLE else LARGE_BATCH) if self.batch_size == "auto" else None
        )
        # a small table is padded to a power of two, so that tables of about its size compile once
        size = min(size or int(self.batch_size), 1 << max(n - 1, 1).bit_length())
        missing = -n % size
        parts = [
            np.pad(a.astype(self.dtype_), [(0, missing)] + [(0, 0)] * (a.ndim - 1))
            for a in (x, y, weight)
        ]
        steps = SMALL_STEPS if n < SMALL_TABLE else LARGE_STEPS
        auto = int(np.clip(steps * min(size / n, 1), FEWEST, MOST))
        prior = self.prior_precision
        return Problem(
            self.perceptron_,
            jax.tree.map(lambda a: jnp.asarray(a, self.dtype_), self._likelihood()),
            Batch(*(jnp.asarray(part) for part in parts)),
            float(weight.sum()),
            size,
            auto if self.epochs == "auto" else int(self.epochs),
            float(self.learning_rate),
            self._chosen_rank(self.perceptron_.n_parameters()),
            prior == "auto",
            self._learns_noise(),
            1.0 if prior == "auto" else float(prior),
            np.dtype(self.dtype_),
            jr.key(self._seed),
            bool(self.verbose),
        )

    def _chosen_rank(self, dim: int) -> int | None:
        swag = self.method in ("swag", "multiswag")
        if self.rank == "auto":
            return min(LOW_RANK, dim) if swag or dim > FULL_COVARIANCE else None
        if self.rank is None and swag:
            raise ValueError(
                f"method={self.method!r} needs a rank of at least 2, or 'auto'; got rank=None."
            )
        if self.rank is not None and int(self.rank) > dim:
            raise ValueError(
                f"rank={self.rank} exceeds the {dim} parameters; choose rank ≤ {dim}, or None."
            )
        return None if self.rank is None else int(self.rank)

    def _chosen_dtype(self, dim: int) -> str:
        if self.dtype != "auto":
            return np.dtype(self.dtype).name
        return "float64" if self._chosen_rank(dim) is None else "float32"

    def _predicted(self, x) -> Predicted:
        """Predictions for raw inputs, in the units of standardised y."""
        check_is_fitted(self)
        check_settings(self.get_params())
        with settings.located(X=x):
            rows: Any = validate_data(self, x, reset=False, dtype=np.float64)
        rows = self._cast((rows - self.x_mean_) / self.x_scale_)
        how = self.predictive
        if how == "auto":
            how = "ensemble" if self.structure_["method"] in ("swag", "multiswag") else "linearised"
        model, q = self.fitted_.model, self.fitted_.posterior
        width = self.perceptron_.n_parameters() * self._outputs()
        few = max(1 << max(len(rows) - 1, 0).bit_length(), 8)
        size = min(few, int(np.clip(PREDICTED_NUMBERS // width, 1, PREDICTED_ROWS)))
        with matching(self.dtype_):
            draws = None
            if how == "ensemble":
                draws = q.sample(jr.key(self._seed), int(self.n_draws)).astype(self.dtype_)
            parts = []
            for first in range(0, len(rows), size):
                block = rows[first : first + size]
                padded = jnp.asarray(np.pad(block, [(0, size - len(block)), (0, 0)]))
                found = _one_block(model, q, draws, padded)
                parts.append([np.asarray(a)[: len(block)] for a in found])
        whole: Any = [np.concatenate(part) for part in zip(*parts, strict=True)]
        return Predicted(*whole)

    def _scaled(self, x: np.ndarray, weight: np.ndarray, *, fresh: bool) -> np.ndarray:
        if fresh:
            if len(x) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs two rows or more to learn their scales; got 1 sample."
                )
            self.x_mean_, self.x_scale_ = standard(x, weight)
        return (x - self.x_mean_) / self.x_scale_

    def _cast(self, rows: np.ndarray) -> np.ndarray:
        """Standardised rows in the network's precision."""
        limit = float(np.sqrt(np.finfo(self.dtype_).max))
        far = np.flatnonzero(np.any(np.abs(rows) > limit, axis=1))
        if far.size:
            raise ValueError(
                f"row {far[0]} of X is more than {limit:.0e} deviations from the rows of the fit; "
                "check its units."
            )
        return rows.astype(self.dtype_)

    def _require_fitted(self, name: str) -> None:
        if "fitted_" not in self.__dict__:
            raise AttributeError(f"{name} is there after fit.")

    def _check_structure(self) -> None:
        if self.structure_ != self._structure():
            raise ValueError(
                f"the network was begun with {self.structure_} and the parameters say "
                f"{self._structure()} now; call fit to start again, or set them back."
            )

    def _check_settings(self) -> None:
        """Refuse parameters that mean nothing, whatever the rows."""
        check_settings(self.get_params())

    def _checked(self, x, y, *, reset: bool, **how: Any) -> tuple[np.ndarray, np.ndarray]:
        self._check_settings()
        with settings.located(X=x, y=y):
            checked: Any = validate_data(self, x, y, reset=reset, dtype=np.float64, **how)
        return checked

    def _weights(self, sample_weight, x) -> np.ndarray:
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
        if np.any(weight < 0) or not np.any(weight > 0):
            raise ValueError("sample_weight must be non-negative, and some of it positive.")
        return weight

    def __getstate__(self) -> dict[str, Any]:
        """JAX arrays travel as NumPy arrays: unpickling must not depend on JAX's global precision."""
        kept: Any = super().__getstate__()
        return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        if "fitted_" in self.__dict__:
            with matching(self.dtype_):
                self.fitted_ = jax.tree.map(
                    lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, self.fitted_
                )
            self._check_restored()

    def _check_restored(self) -> None:
        """Refuse what no fit has left."""
        check_names(self)
        parts = isinstance(self.fitted_, Fitted) and isinstance(self.perceptron_, Perceptron)
        fits_together(parts, self, "fitted_ and perceptron_")
        sizes = self.perceptron_.sizes[0] == self.n_features_in_ == len(self.x_mean_)
        fits_together(sizes, self, "n_features_in_ and perceptron_")
        counts = self.fitted_.posterior.dim == self.perceptron_.n_parameters()
        fits_together(counts, self, "posterior_ and perceptron_")


def _one_block(model, q, draws, x) -> Predicted:
    if draws is not None:
        return run.call(ensemble, model, draws, x)
    if isinstance(q, Mixture):
        return run.call(_mixed, model, q.components, x)
    return run.call(linearised, model, q, x)


def _mixed(model, components, x) -> Predicted:
    return merged([linearised(model, q, x) for q in components])


def standard(columns: np.ndarray, weight: np.ndarray) -> tuple[Any, Any]:
    """Means and standard deviations; one where a column does not vary."""
    largest = np.abs(columns).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # squares of the columns themselves might overflow
    mean = np.average(columns / unit, axis=0, weights=weight)
    std = np.sqrt(np.average((columns / unit - mean) ** 2, axis=0, weights=weight))
    still = std <= 8 * np.finfo(float).eps
    return mean * unit, np.where(still, 1.0, std * unit)
