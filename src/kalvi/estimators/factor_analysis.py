"""Factor analysis for streams and tables, as a scikit-learn estimator."""

from collections.abc import Iterator
from itertools import chain
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

from kalvi import streams
from kalvi.estimators import factor_methods as methods
from kalvi.estimators import settings
from kalvi.estimators.common import all_or_nothing, counted
from kalvi.estimators.states import check_names, fits_together
from kalvi.gaussians import LowRankCovariance
from kalvi.numerics import sharding
from kalvi.numerics.precision import matching
from kalvi.rules import factor_analysis as fa
from kalvi.rules.base import Batch
from kalvi.streams import run

STRUCTURAL = (
    *("method", "loops", "prior_rows", "block_size"),
    *("warm_up", "scaled", "step_size", "step_decay"),
)
"""The parameters that a state depends on, besides its sizes."""


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
    method : {"eigen", "recursive_em", "online_em", "incremental_em", "sga", "batch_em"}
        "eigen", the default, projects each block of rows by an eigendecomposition and two EM
        iterations: one pass, usually close to the optimum. The next four go row by row from a random
        start: "recursive_em" is Algorithm 1 of L-RVGA; "online_em" weighs the rows' statistics in
        proportion to their numbers; "incremental_em" and "sga" are Algorithms 2 (equal weights) and
        1 (gradient ascent) of Brownlie. "batch_em" goes on from "eigen" to the maximum likelihood,
        with the table in memory and no `partial_fit`.
    prior_rows : float, default 1
        How many rows the start counts as, whose variances are those of the first block. Used by
        "eigen" and "recursive_em".
    loops : int, default 3
        EM iterations a row of "recursive_em".
    block_size : "auto" or int, default "auto"
        Rows absorbed by one projection of "eigen" and "recursive_em"; "auto" is a power of two from
        2 n_components on for the first and 1 for the second.
    warm_up : int, default 100
        Rows through which "online_em" and "incremental_em" keep to their start in the E-step, and
        through which "sga" moves nothing but the mean.
    scaled : bool, default True
        Whether "online_em", "incremental_em" and "sga" start from the variances of the warm-up rows
        and the last bounds its steps and takes them in these units; False is Brownlie's start from
        variances of 1, and steps in the units of the rows, as long as they come.
    step_size, step_decay : float, default 0.005 and 0.001
        Steps of "sga" are step_size/(1 + step_decay t) for row t; Brownlie has 0.001 and 0.
    tol : float, default 1e-8
        "batch_em" ends where a pass gains less than this in log-likelihood a row.
    max_iter : int, default 1000
        Passes of "batch_em" at most.
    dtype : {"float64", "float32"}, default "float64"
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        For the start of the methods that go row by row.
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
        warm_up=100,
        scaled=True,
        step_size=0.005,
        step_decay=0.001,
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
        self.warm_up = warm_up
        self.scaled = scaled
        self.step_size = step_size
        self.step_decay = step_decay
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
        rule = methods.rule(self.structure_, self._n_features_out)
        if state is None:
            first = next(batches, None)
            if first is None:
                return None
            key = jr.key(self._seed) if self.method in methods.RANDOM else None
            kind = self.method in methods.WARMED, bool(self.scaled)
            start = run.call(methods.start, first, self._n_features_out, key, *kind)
            state, batches = rule.init(sharding.spread(start)), chain([first], batches)
        return run.resume(rule, state, batches)

    def _current(self) -> Any:
        """The state with the waiting rows absorbed, of which the next call knows nothing."""
        rest = self.buffer_.rest(self._schedule(), **self._layout())
        return self.state_ if rest is None else self._pass(self.state_, iter([rest]))

    def _schedule(self) -> streams.Schedule:
        """How many rows wait for each other."""
        return streams.Schedule(methods.fed(self.structure_, self._n_features_out), growing=False)

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
        methods.check(self.get_params())
        self._check_structure()
        rows = self._validated(x, reset=False, least=1)
        n = rows.shape[0]
        with matching(self.dtype):
            batches = streams.array_batches(
                rows, np.zeros(n), block_size=methods.FED_ROWS, **self._layout()
            )
            parts = [np.asarray(run.call(function, self.gaussian_, b.x)) for b in batches]
        return np.concatenate(parts)[:n]

    def _check_settings(self) -> None:
        """Refuse parameters that mean nothing, whatever the rows."""
        methods.check(self.get_params())

    def _check_rows(self, x, *, reset: bool, least: int) -> Any:
        self._check_settings()
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
            **{name: getattr(self, name) for name in STRUCTURAL},
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
        if self.__sklearn_is_fitted__():
            check_names(self)
            fits_together(isinstance(self.buffer_, streams.Buffer), self, "buffer_")
            named = {"n_components", "dtype", *STRUCTURAL} == set(self.structure_)
            fits_together(named, self, "structure_")

    def __sklearn_is_fitted__(self) -> bool:
        return "structure_" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _climbed(batch: Batch, start: LowRankCovariance, max_passes, tolerance) -> fa.Optimum:
    return fa.batch_em(batch, start, max_passes=max_passes, tolerance=tolerance)
