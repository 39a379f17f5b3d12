"""Factor analysis for streams and tables, as a scikit-learn estimator."""

from dataclasses import field
from typing import Any
from warnings import warn

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kalvi.estimators.constraints import (
    DTYPE,
    FLAG,
    NON_NEGATIVE,
    Constraint,
    auto,
    check_parameters,
    check_unchanged,
    integer,
    one_of,
    optional,
)
from kalvi.estimators.decorators import all_or_nothing, parametrised
from kalvi.estimators.factor_analysis.fit import PARTS, FactorFit, restore_fit
from kalvi.estimators.factor_analysis.methods import METHODS, FactorSettings
from kalvi.estimators.input_checks import checked_table, seed_of
from kalvi.estimators.pickling import PickledInParts
from kalvi.gaussians import LowRankCovariance
from kalvi.numerics.precision import matching_precision

CONSTRAINTS: dict[str, Constraint] = {
    "method": one_of(METHODS),
    "n_components": optional(integer(1)),
    "block_size": auto(integer(1)),
    "loops": integer(1),
    "max_iter": integer(1),
    "warm_up": integer(1),
    "prior_rows": NON_NEGATIVE,
    "tol": NON_NEGATIVE,
    "step_size": NON_NEGATIVE,
    "step_decay": NON_NEGATIVE,
    "scaled": FLAG,
    "dtype": DTYPE,
}


def _learns_in_one_pass(self: "FactorAnalysis") -> bool:
    if self.method == "batch_em":
        raise AttributeError(
            "partial_fit needs a method of one pass, but method='batch_em' revisits its rows; "
            "use fit, or method='eigen'."
        )
    return True


@parametrised
class FactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PickledInParts[FactorFit]):
    """Rows as a Gaussian N(mean, F Fᵀ + diag ψ), learned in one pass or to the maximum likelihood.

    The covariance is never formed: memory is d (n_components + 2) numbers. The result does not depend on
    how a stream is cut into calls of `partial_fit`.

    Parameters
    ----------
    n_components : int or None, default None
        The number of factors; None is one for each feature.
    method : {"eigen", "recursive_em", "online_em", "incremental_em", "sga", "batch_em"}
        "eigen", the default, projects each block of rows by an eigendecomposition and two EM
        iterations: one pass, usually close to the optimum. The next four go row by row from a random start:
        "recursive_em" is Algorithm 1 of L-RVGA; "online_em" weights the statistics of rows in proportion to
        their numbers; "incremental_em" and "sga" are Algorithms 2 (equal weights) and 1 (gradient ascent)
        of Brownlie. "batch_em" continues from "eigen" to the maximum likelihood, with the table in memory
        and without `partial_fit`.
    prior_rows : float, default 1
        The number of rows that the start counts as; its variances are those of the first block. Used by
        "eigen" and "recursive_em".
    loops : int, default 3
        The number of EM iterations for each row in "recursive_em".
    block_size : "auto" or int, default "auto"
        The number of rows that one projection of "eigen" or "recursive_em" absorbs; "auto" is a power of
        two of at least 2 n_components for the first and 1 for the second.
    warm_up : int, default 100
        The number of first rows during which "online_em" and "incremental_em" use their start in the
        E-step, and "sga" moves only the mean.
    scaled : bool, default True
        Whether "online_em", "incremental_em" and "sga" start from the variances of the warm-up rows, and
        "sga" takes bounded steps in these units. False is Brownlie's start from variances of 1, with
        unbounded steps in the units of the rows.
    step_size, step_decay : float, default 0.005 and 0.001
        The step of "sga" is step_size/(1 + step_decay t) for row t; Brownlie uses 0.001 and 0.
    tol : float, default 1e-8
        "batch_em" ends when a pass gains less than this in log-likelihood a row.
    max_iter : int, default 1000
        The most passes of "batch_em".
    dtype : {"float64", "float32"}, default "float64"
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        The seed of the start of the methods that go row by row.
    verbose : bool, default False
        Show a progress bar.

    Attributes
    ----------
    gaussian_ : LowRankCovariance
        The distribution of a row, with `sample`, `log_prob`, `variance` and more.
    components_ : array of shape (n_components, n_features)
        Fᵀ, rotated so that Fᵀ Ψ⁻¹ F is diagonal, with the strongest factor first.
    noise_variance_ : array of shape (n_features,)
        ψ.
    mean_ : array of shape (n_features,)
    n_samples_seen_ : int
    n_iter_ : int
        Passes over the rows: 1, or those of "batch_em" after its first.
    log_likelihood_ : float
        After "batch_em": the average over the rows.

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

    fit_parts = PARTS

    n_components: Any = field(default=None, kw_only=False)
    method: Any = "eigen"
    prior_rows: Any = 1.0
    loops: Any = 3
    block_size: Any = "auto"
    warm_up: Any = 100
    scaled: Any = True
    step_size: Any = 0.005
    step_decay: Any = 0.001
    tol: Any = 1e-8
    max_iter: Any = 1000
    dtype: Any = "float64"
    random_state: Any = None
    verbose: Any = False

    @all_or_nothing
    def fit(self, X, y=None) -> "FactorAnalysis":
        """Forget everything and learn from a table; y is ignored."""
        X = self._check_rows(X, reset=True, least=2)
        fit = self._begin().learn(X, bool(self.verbose))
        if METHODS[self.method].revisits:
            fit = fit.maximise(X, self.max_iter, self.tol)
        self.fit_ = fit
        if not fit.converged:
            warn(
                f"the likelihood had not converged after {fit.n_passes} passes; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    @available_if(_learns_in_one_pass)
    @all_or_nothing
    def partial_fit(self, X, y=None) -> "FactorAnalysis":
        """Learn from further rows; y is ignored."""
        fresh = "fit_" not in vars(self)
        X = self._check_rows(X, reset=fresh, least=1)
        self.fit_ = (self._begin() if fresh else self.fit_).learn(X, bool(self.verbose))
        return self

    def transform(self, X) -> np.ndarray:
        """The expected factors of each row, E[z | x]."""
        X = self._check_new_rows(X)
        return self.fit_.factors(X)

    def score_samples(self, X) -> np.ndarray:
        """The log density of each row."""
        X = self._check_new_rows(X)
        return self.fit_.log_densities(X)

    def score(self, X, y=None) -> float:
        """The average log density of a row."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> np.ndarray:
        """The covariance as a d × d matrix."""
        with matching_precision(self.dtype):
            return np.asarray(self.gaussian_.covariance.to_dense())

    def get_precision(self) -> np.ndarray:
        """The inverse of the covariance as a d × d matrix."""
        with matching_precision(self.dtype):
            return np.asarray(self.gaussian_.precision.to_dense())

    @property
    def gaussian_(self) -> LowRankCovariance:
        """The distribution of a row, including rows that wait for their block."""
        return self._fitted("gaussian_").gaussian

    @property
    def components_(self) -> np.ndarray:
        """The factors Fᵀ, one in each row."""
        return np.asarray(self.gaussian_.covariance.factor).T

    @property
    def noise_variance_(self) -> np.ndarray:
        """The variance ψ of the noise of each feature."""
        return np.asarray(self.gaussian_.covariance.diag)

    @property
    def mean_(self) -> np.ndarray:
        """The mean of each feature."""
        return np.asarray(self.gaussian_.mean)

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows learned so far, including those that wait for their block."""
        return self._fitted("n_samples_seen_").n_rows

    @property
    def n_iter_(self) -> int:
        """Passes over the rows."""
        return self._fitted("n_iter_").n_passes

    @property
    def log_likelihood_(self) -> float:
        """The average log density of the rows, after method="batch_em"."""
        found = self._fitted("log_likelihood_").log_likelihood
        if found is None:
            raise AttributeError("log_likelihood_ exists only after fit with method='batch_em'.")
        return found

    @property
    def _n_features_out(self) -> int:
        return self.fit_.settings.n_components

    def check_settings(self) -> None:
        """Refuse parameters that are invalid for any rows."""
        check_parameters(self.get_params(), CONSTRAINTS)

    def check_structure(self) -> None:
        """Refuse parameters that differ from those of the fit and that its state depends on."""
        check_unchanged(self.fit_.settings._asdict(), self._settings()._asdict())

    def _begin(self) -> FactorFit:
        """A fit that has learned nothing yet."""
        seed = seed_of(self.random_state)
        return FactorFit(self._settings(), seed)

    def _settings(self) -> FactorSettings:
        """The parameters on which a fit with so many features depends."""
        rank = self.n_features_in_ if self.n_components is None else int(self.n_components)
        if rank > self.n_features_in_:
            raise ValueError(
                f"n_components={rank} exceeds the {self.n_features_in_} features; "
                f"choose n_components ≤ {self.n_features_in_}."
            )
        own = {"n_components": rank, "dtype": np.dtype(self.dtype).name}
        given = self.get_params()
        return FactorSettings(**{name: given[name] for name in FactorSettings._fields} | own)

    def _check_rows(self, x, *, reset: bool, least: int) -> Any:
        """Rows to learn from; parameters are checked first."""
        self.check_settings()
        if not reset:
            self.check_structure()
        how = {"accept_sparse": "csr", "dtype": np.dtype(self.dtype), "ensure_min_samples": least}
        return checked_table(self, x, reset=reset, **how)

    def _check_new_rows(self, x) -> Any:
        """Rows to predict."""
        check_is_fitted(self)
        return self._check_rows(x, reset=False, least=1)

    def _fit_of(self, parts: dict[str, Any]) -> FactorFit:
        return restore_fit(parts, self)

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_" in vars(self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
