"""Factor analysis for streams and tables, as a scikit-learn estimator."""

from collections.abc import Iterator
from itertools import chain
from numbers import Real
from typing import Any
from warnings import warn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from kalvi import run, streams
from kalvi.algorithms import factor_analysis as fa
from kalvi.algorithms.base import Batch, Rule
from kalvi.estimators import settings
from kalvi.estimators.common import all_or_nothing, counted
from kalvi.gaussians import LowRankCovariance
from kalvi.precision import matching
from kalvi.projections import EM

METHODS = ("eigen", "recursive_em", "online_em", "batch_em")
RANDOM = ("recursive_em", "online_em")
"""The methods that need a random start."""
LARGEST_BLOCK = 256
"""block_size="auto" absorbs at most this many rows by one projection."""
FED_ROWS = 16
"""Rows are fed, and a stream is started from, a multiple of this many at a time."""


def _one_pass(self: "FactorAnalysis") -> bool:
    if self.method == "batch_em":
        raise AttributeError(
            "partial_fit needs a method of one pass, but method='batch_em' revisits its rows; "
            "use fit, or method='eigen'."
        )
    return True


class FactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Rows as a Gaussian N(mean, F Fᵀ + diag ψ), learned in one pass or to the maximum likelihood.

    The covariance is never formed: memory is d (n_components + 2) numbers. How a stream is cut into
    calls of `partial_fit` makes no difference.

    Parameters
    ----------
    n_components : int or None, default None
        How many factors; None is one for each feature.
    method : {"eigen", "recursive_em", "online_em", "batch_em"}, default "eigen"
        "eigen" projects each block of rows by an eigendecomposition and two EM iterations: one pass,
        usually close to the optimum. "recursive_em" is Algorithm 1 of L-RVGA, "online_em" that of
        Cappé and Moulines with averaging, both row by row from a random start. "batch_em" goes on
        from "eigen" to the maximum likelihood, with the table in memory and no `partial_fit`.
    prior_rows : float, default 1
        How many rows the start counts as, whose variances are those of the first block. Not used by
        "online_em", nor in the end by "batch_em".
    loops : int, default 3
        EM iterations a row of "recursive_em".
    block_size : "auto" or int, default "auto"
        Rows absorbed by one projection of "eigen" and "recursive_em"; "auto" is a power of two near
        n_components for the first and 1 for the second.
    tol : float, default 1e-8
        "batch_em" ends where a pass gains less than this in log-likelihood a row.
    max_iter : int, default 1000
        Passes of "batch_em" at most.
    dtype : {"float64", "float32"}, default "float64"
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        For the start of "recursive_em" and "online_em".
    verbose : bool, default False
        Show a progress bar.

    Attributes
    ----------
    gaussian_ : LowRankCovariance
        The distribution of a row, with `sample`, `log_prob`, `variance` and more.
    components_ : array of shape (n_components, n_features)
        Fᵀ, turned so that Fᵀ Ψ⁻¹ F is diagonal, the strongest factor first.
    noise_variance_ : array of shape (n_features,)
        ψ.
    mean_ : array of shape (n_features,)
    n_samples_seen_ : int
    n_iter_ : int
        Passes over the rows: 1, or those of "batch_em" after its first.
    log_likelihood_ : float
        Of "batch_em": the average over the rows.

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 1)) @ [[3.0, 2.0, 1.0, 0.0]] + rng.normal(size=(1000, 4))
    >>> model = kalvi.FactorAnalysis(n_components=1).fit(x)
    >>> np.abs(model.components_).round(1)
    array([[2.8, 2. , 1. , 0. ]])
    """

    n_features_in_: int
    state_: Any  # None until the first rows fill a block
    buffer_: streams.Buffer
    n_samples_seen_: int
    n_iter_: int
    log_likelihood_: float

    def __init__(
        self,
        n_components=None,
        *,
        method="eigen",
        prior_rows=1.0,
        loops=3,
        block_size="auto",
        tol=1e-8,
        max_iter=1000,
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.method = method
        self.prior_rows = prior_rows
        self.loops = loops
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X, y=None) -> "FactorAnalysis":
        """Forget everything and learn from a table; y is ignored."""
        X = self._check_rows(X, reset=True, least=2)
        self._begin(X.shape[1])
        self._learn(X)
        if self.method == "batch_em":
            self._climb(X)
        return self

    @available_if(_one_pass)
    @all_or_nothing
    def partial_fit(self, X, y=None) -> "FactorAnalysis":
        """Learn from further rows; y is ignored."""
        fresh = not self.__sklearn_is_fitted__()
        X = self._check_rows(X, reset=fresh, least=1)
        if fresh:
            self._begin(X.shape[1])
        return self._learn(X)

    def transform(self, X) -> np.ndarray:
        """The expected factors of each row, E[z | x]."""
        return self._each(fa.factors, X)

    def score_samples(self, X) -> np.ndarray:
        """The log density of each row."""
        return self._each(fa.log_densities, X)

    def score(self, X, y=None) -> float:
        """The average log density of a row."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> np.ndarray:
        """The covariance written out, d × d."""
        with matching(self.dtype):
            return np.asarray(self.gaussian_.covariance.to_dense())

    def get_precision(self) -> np.ndarray:
        """The inverse of the covariance written out, d × d."""
        with matching(self.dtype):
            return np.asarray(self.gaussian_.precision.to_dense())

    @property
    def gaussian_(self) -> LowRankCovariance:
        """The distribution of a row; rows that wait for their block are counted, but not committed."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("gaussian_ is there after fit or partial_fit.")
        if "gaussian" not in self._published:
            with matching(self.dtype):
                found = self._current().posterior
                self._published["gaussian"] = run.call(fa.canonical, found)
        return self._published["gaussian"]

    @property
    def components_(self) -> np.ndarray:
        return np.asarray(self.gaussian_.covariance.factor).T

    @property
    def noise_variance_(self) -> np.ndarray:
        return np.asarray(self.gaussian_.covariance.diag)

    @property
    def mean_(self) -> np.ndarray:
        return np.asarray(self.gaussian_.mean)

    @property
    def _n_features_out(self) -> int:
        return self.structure_["n_components"]

    def _begin(self, n_features: int) -> None:
        """Nothing learned, and nothing waiting."""
        self.__dict__.pop("log_likelihood_", None)
        self.structure_ = self._structure(n_features)
        self.state_, self.n_samples_seen_, self.n_iter_ = None, 0, 1
        self.buffer_ = streams.Buffer()
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn(self, x) -> "FactorAnalysis":
        """Commit the rows that fill blocks, and let the others wait for theirs."""
        n, rows = x.shape[0], (x, np.zeros(x.shape[0]), np.ones(x.shape[0]))
        self._published, self.n_samples_seen_ = {}, self.n_samples_seen_ + n
        hidden = not self.verbose
        with matching(self.dtype), tqdm(total=n, unit=" rows", disable=hidden) as bar:
            batches, self.buffer_ = self.buffer_.push(rows, self._schedule(), **self._layout())
            self.state_ = self._pass(self.state_, counted(batches, bar, n))
            bar.update(n - bar.n)
        return self

    def _pass(self, state: Any, batches: Iterator[Batch]) -> Any:
        """The state after further rows; where there is none, the first of them make a start."""
        rule = self._rule()
        if state is None:
            first = next(batches, None)
            if first is None:
                return None
            key = jr.key(self._seed) if self.method in RANDOM else None
            start = run.call(_started, first, self.structure_["n_components"], key)
            state, batches = rule.init(start), chain([first], batches)
        return run.resume(rule, state, batches)

    def _current(self) -> Any:
        """The state with the waiting rows absorbed, of which the next call knows nothing."""
        rest = self.buffer_.rest(self._schedule(), **self._layout())
        return self.state_ if rest is None else self._pass(self.state_, iter([rest]))

    def _rule(self) -> Rule:
        if self.method == "online_em":
            return fa.OnlineEM()
        shared = {"prior_rows": float(self.prior_rows), "block_size": self._block()}
        if self.method == "recursive_em":
            return fa.RecursiveFA(EM(int(self.loops)), **shared)
        return fa.RecursiveFA(**shared)

    def _block(self) -> int:
        """How many rows wait for each other."""
        if self.method == "online_em":
            return 1
        if self.block_size != "auto":
            return int(self.block_size)
        if self.method == "recursive_em":
            return 1
        needed = int(np.ceil(np.log2(self.structure_["n_components"])))
        return int(np.clip(2**needed, FED_ROWS, LARGEST_BLOCK))

    def _schedule(self) -> streams.Schedule:
        """How many rows wait for each other: whole blocks, and enough to start from."""
        size = self._block()
        return streams.Schedule(size * -(-FED_ROWS // size), growing=False)

    def _layout(self) -> dict[str, Any]:
        return {"intercept": False, "dtype": self.dtype}

    def _climb(self, x) -> None:
        """From the result of one pass to the maximum likelihood."""
        n = x.shape[0]
        with matching(self.dtype):
            batch = streams.whole_batch(x, np.zeros(n), np.ones(n), **self._layout())
            limits = jnp.asarray(self.max_iter), jnp.asarray(self.tol, self.dtype)
            found: fa.Optimum = run.call(_climbed, batch, self.gaussian_, *limits)
            self.state_ = fa.Factored(found.posterior, jnp.asarray(n, self.dtype))
        self.buffer_, self._published = streams.Buffer(), {}
        self.n_iter_, self.log_likelihood_ = int(found.passes), float(found.log_likelihood)
        if not found.converged:
            warn(
                f"the likelihood had not converged after {self.n_iter_} passes; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _each(self, function: Any, x) -> np.ndarray:
        """A function of the Gaussian and of rows, some rows at a time."""
        check_is_fitted(self)
        _check_settings(self.get_params())
        self._check_structure()
        rows = self._validated(x, reset=False, least=1)
        n = rows.shape[0]
        with matching(self.dtype):
            batches = streams.array_batches(
                rows, np.zeros(n), block_size=FED_ROWS, **self._layout()
            )
            parts = [np.asarray(run.call(function, self.gaussian_, b.x)) for b in batches]
        return np.concatenate(parts)[:n]

    def _check_rows(self, x, *, reset: bool, least: int) -> Any:
        _check_settings(self.get_params())
        if not reset:
            self._check_structure()
        rows = self._validated(x, reset=reset, least=least)
        self._structure(rows.shape[1])
        return rows

    def _validated(self, x, *, reset: bool, least: int) -> Any:
        with settings.located(X=x):
            return validate_data(
                self,
                x,
                reset=reset,
                accept_sparse="csr",
                dtype=np.dtype(self.dtype),
                ensure_min_samples=least,
            )

    def _structure(self, n_features: int) -> dict[str, Any]:
        """What a state depends on."""
        rank = n_features if self.n_components is None else int(self.n_components)
        if rank > n_features:
            raise ValueError(
                f"n_components={rank} exceeds the {n_features} features; "
                f"choose n_components ≤ {n_features}."
            )
        return {
            "n_components": rank,
            "method": self.method,
            "loops": self.loops,
            "prior_rows": self.prior_rows,
            "block_size": self.block_size,
            "dtype": np.dtype(self.dtype).name,
        }

    def _check_structure(self) -> None:
        for name, now in self._structure(self.n_features_in_).items():
            if now != self.structure_[name]:
                raise ValueError(
                    f"{name} was {self.structure_[name]!r} when this model was fitted and is {now!r} now; "
                    "call fit to start again, or set it back."
                )

    def __getstate__(self) -> dict[str, Any]:
        """JAX arrays travel as NumPy arrays: unpickling must not depend on JAX's global precision."""
        kept: Any = super().__getstate__()
        if "_published" in kept:
            kept = kept | {"_published": {}}
        return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        with matching(self.dtype):
            if isinstance(self.__dict__.get("state_"), eqx.Module):
                self.state_ = jax.tree.map(jnp.asarray, self.state_)

    def __sklearn_is_fitted__(self) -> bool:
        return "structure_" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _check_settings(given: dict[str, Any]) -> None:
    """Refuse parameters that mean nothing, with what was needed."""
    if given["method"] not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {given['method']!r}.")
    if given["n_components"] is not None:
        _check_count("n_components", given["n_components"], "None or ")
    if given["block_size"] != "auto":
        _check_count("block_size", given["block_size"], "'auto' or ")
    for name in ("loops", "max_iter"):
        _check_count(name, given[name], "")
    for name in ("prior_rows", "tol"):
        value = given[name]
        if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise ValueError(f"{name} must be a non-negative number; got {value!r}.")
    if given["dtype"] not in ("float32", "float64", np.float32, np.float64):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {given['dtype']!r}.")


def _check_count(name: str, value: Any, otherwise: str) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"{name} must be {otherwise}a positive integer; got {value!r}.")


def _started(first: Batch, rank: int, key) -> LowRankCovariance:
    variance = fa.variances(first)
    return fa.start(jnp.zeros_like(variance), variance, rank, key=key)


def _climbed(batch: Batch, start: LowRankCovariance, max_passes, tolerance) -> fa.Optimum:
    return fa.batch_em(batch, start, max_passes=max_passes, tolerance=tolerance)
