"""Smooth binary matrix factorisation as a scikit-learn estimator."""

from dataclasses import field
from typing import Any
from warnings import warn

import jax.random as jr
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from kalvi.estimators.binary_factorization.entries import (
    Axes,
    ReadEntries,
    array_like,
    read_entries,
    shape_of,
)
from kalvi.estimators.binary_factorization.fit import PARTS, MatrixFit, Wanted, restore_fit
from kalvi.estimators.binary_factorization.learned import LearnedFactors
from kalvi.estimators.binary_factorization.locations import SortedAxis, laid_out, sort_axis
from kalvi.estimators.binary_factorization.parameters import (
    check_piece,
    first_n_factors,
    make_settings,
    sort_guess,
)
from kalvi.estimators.binary_factorization.placement import is_small
from kalvi.estimators.binary_factorization.starts import best_start
from kalvi.estimators.binary_factorization.sweeps import (
    SweepResult,
    SweepSettings,
    climb,
    climb_by_pieces,
    climb_expected,
    select_n_factors,
    take_guess,
)
from kalvi.estimators.decorators import all_or_nothing, parametrised
from kalvi.estimators.input_checks import seed_of
from kalvi.numerics.namespaces import on_device
from kalvi.numerics.precision import matching_precision
from kalvi.rules.silk import Observed
from kalvi.streams import engines

REMEDY = "raise max_sweeps or tol."


@parametrised
class BinaryFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LearnedFactors):
    """A binary matrix as a few factors of its rows and columns that vary smoothly along their order.

    An entry is 1 with probability σ(⟨uᵣ, α_c⟩). Each factor is a Gaussian process along the locations of
    the rows (or columns), with correlations that fall exponentially with distance; its mean, variance and
    correlation length are learned. Missing entries are left out, and predictions average over the posterior
    of the factors. The means, variances and lengths of the priors are learned as point estimates, so with
    very little data, or data without zeros, the model is surer than it should be.

    Parameters
    ----------
    n_factors : int or "auto", default "auto"
        The number of factors. "auto" begins with `max_factors` and drops those that do not raise the bound
        on the log evidence.
    row_locations, col_locations : None, array or "unordered", default None
        The locations of the rows and columns: numbers or dates in any order. None means the order of the
        matrix, 0, 1, 2, …; "unordered" means no smoothness along this side.
    row_groups, col_groups : None or array, default None
        The group of each row (or column), a name or a number, if the same people or places appear at
        several locations: factors are smooth along the locations of one group, and independent between
        groups.
    posterior : {"chains", "mean_field", "coupled"}, default "chains"
        The correlations that the posterior keeps: of each factor along its locations, none (faster, and too
        sure of smooth factors), or all of one side.
    solver : {"exact", "jacobi", "jacobi_search"}, default "exact"
        How a sweep finds the means; "jacobi" takes a damped step of a fixed length, "jacobi_search" one of
        the best length.
    bound : {"expected", "polya_gamma"}, default "expected"
        The bound at the end of the fit. "polya_gamma" is the bound of the paper, which is fast but loose if
        probabilities are near 0 or 1: priors become too narrow and predictions too cautious. "expected"
        continues from its optimum with the expected log-likelihood itself, treating logits as Gaussian.
    ties : {"share", "spread"}, default "share"
        Whether rows at one location share their factors, or are spread evenly up to the next location.
    unstored : {None, "zero", "missing"}, default None
        The meaning of entries that a sparse X does not store. None means zero if X stores only ones, and
        raises an error otherwise.
    max_factors : int or None, default None
        The number of factors with which n_factors="auto" begins; None is 10, or the smaller side of the
        matrix.
    batch_size : int, (int, int) or None, default None
        None sweeps over all entries. For matrices that are too large for this, each step reads a random
        piece with so many rows and columns; the bound then rises with noise, and the fit ends when five
        passes' worth of pieces raise it by no more than the noise, whatever `tol` is.
    max_sweeps : int, default 1000
        The most sweeps, or with batch_size the most passes' worth of pieces.
    tol : float, default 1e-5
        The fit ends when five sweeps raise the bound by less than this many nats for each of the (rows +
        columns) × factors numbers in the factors; 0 continues to `max_sweeps`. Sweeps with bound="expected"
        end at a gain a hundred times larger.
    dtype : {"float64", "float32"}, default "float64"
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        The seed of the start, by randomised singular vectors.
    verbose : bool, default False
        Show a progress bar.

    Attributes
    ----------
    row_factors_, col_factors_ : arrays of shape (n_rows, n_factors_) and (n_cols, n_factors_)
        Posterior means, in the order of X; factors are sorted by their share of the logits, largest first.
    row_stds_, col_stds_ : arrays of the same shapes
        Posterior standard deviations.
    smoothness_ : Smoothness(rows, cols)
        Correlation lengths 2/ρ of the factors, in units of the locations (days for dates); 0 without
        smoothness, and meaningless for a factor whose prior variance is almost zero.
    row_rates_, col_rates_ : arrays of shape (n_factors_,)
        ρ: the correlation at distance d is exp(−ρd/2).
    row_prior_, col_prior_ : OrnsteinUhlenbeck
        The learned priors, with `mean`, `variance` and `rate`.
    posterior_ : Silk
        Both sides, rows and columns sorted by location.
    n_factors_ : int
    elbo_ : float
        The bound on the log evidence.
    elbo_history_ : array
        The bound at the start and after every sweep; with batch_size, its estimate in every pass, and the
        bound at the end. With n_factors="auto" it is that of the last number of factors tried.
    n_sweeps_ : int
    converged_ : bool

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> wave = np.sin(np.arange(60) / 10)
    >>> X = np.random.default_rng(0).random((60, 40)) < 1 / (1 + np.exp(-4 * wave[:, None]))
    >>> model = kalvi.BinaryFactorization(n_factors=1, col_locations="unordered").fit(X)
    >>> bool(np.corrcoef(model.row_factors_[:, 0], wave)[0, 1] > 0.99)
    True
    >>> model.predict_proba(row_locations=[60, 61, 62]).shape
    (3, 40)
    """

    fit_parts = PARTS

    n_factors: Any = field(default="auto", kw_only=False)
    row_locations: Any = None
    col_locations: Any = None
    row_groups: Any = None
    col_groups: Any = None
    posterior: Any = "chains"
    solver: Any = "exact"
    bound: Any = "expected"
    ties: Any = "share"
    unstored: Any = None
    max_factors: Any = None
    batch_size: Any = None
    max_sweeps: Any = 1000
    tol: Any = 1e-5
    dtype: Any = "float64"
    random_state: Any = None
    verbose: Any = False

    @all_or_nothing
    def fit(self, X, y=None, *, mask=None, weight=None, start=None) -> "BinaryFactorization":
        """Learn from a matrix of 0, 1 and NaN (missing); y is ignored.

        `mask` is True where an entry was observed. An entry of weight w counts as w entries. `start` is a
        first guess, two arrays with the factors of the rows and of the columns, such as those of another
        fit. None takes singular vectors, which say little if rows share hardly any columns; with groups, it
        also tries factors that do not change within a group, and continues from the better start.
        """
        settings, X = make_settings(self.get_params()), self._check_matrix(X, reset=True)
        shape = shape_of(X)
        n_factors = first_n_factors(self.get_params(), shape)
        axes = self._rows(shape[0]), self._cols(shape[1])
        with matching_precision(settings.dtype):
            entries = self._read(X, mask, weight, axes, settings.dtype)
            check_piece(settings, entries.observed, n_factors)
            found = self._climb(entries.observed, axes, n_factors, settings, start)
            found = found._replace(silk=on_device(found.silk))
        self.fit_ = MatrixFit(found.silk, axes, found.history, found.converged)
        if not found.converged:
            _warn(f"the bound still rose after {self.n_sweeps_} sweeps; {REMEDY}")
        for complaint in self.fit_.complaints(entries):
            _warn(complaint)
        return self

    def fit_transform(self, X, y=None, *, mask=None, weight=None, start=None) -> np.ndarray:
        """Fit, and return the factors of the rows."""
        return self.fit(X, y, mask=mask, weight=weight, start=start).row_factors_

    def transform(
        self, X, *, row_locations=None, row_groups=None, mask=None, weight=None
    ) -> np.ndarray:
        """The factors of the rows of another matrix with the same columns, given theirs and the priors.

        `row_locations` and `row_groups` are needed if `fit` was given them and the number of rows has
        changed.
        """
        check_is_fitted(self)
        settings, X = make_settings(self.get_params()), self._check_matrix(X, reset=False)
        rows = self._rows(shape_of(X)[0], row_locations, row_groups)
        with matching_precision(self.fit_.dtype):
            entries = self._read(X, mask, weight, (rows, self.fit_.axes[1]), self.fit_.dtype)
        found, converged = self.fit_.transform(entries, rows, settings)
        if not converged:
            _warn(
                f"the factors of the rows still moved after {settings.max_sweeps} sweeps; {REMEDY}"
            )
        return found

    def predict_proba(
        self,
        rows=None,
        cols=None,
        *,
        row_locations=None,
        col_locations=None,
        row_groups=None,
        col_groups=None,
    ) -> np.ndarray:
        """Probabilities that entries are 1, averaged over the posterior of the factors.

        Without arguments they are those of the whole matrix; with `rows` or `cols` those of some rows or
        columns; with both, those of single entries (rows[i], cols[i]). With locations they are those of
        rows or columns at new locations, between the known ones or beyond, in these groups if there are
        groups.
        """
        check_is_fitted(self)
        return self.fit_.predict(
            Wanted(rows, row_locations, row_groups), Wanted(cols, col_locations, col_groups)
        )

    def score(self, X, y=None, *, mask=None, weight=None) -> float:
        """The mean log predictive probability of observed entries of the matrix that was fitted.

        Hide entries with `mask` in `fit` to score the model on them. Folds of rows, as made by
        `cross_val_score`, are other matrices, and their scores mean nothing.
        """
        check_is_fitted(self)
        X = self._check_matrix(X, reset=False)
        shape, fitted = shape_of(X), tuple(axis.n for axis in self.fit_.axes)
        if shape != fitted:
            raise ValueError(
                f"score needs entries of the matrix that was fitted, of shape {fitted}; got {shape}. "
                "Fit all rows, with those to be judged hidden by mask."
            )
        with matching_precision(self.fit_.dtype):
            entries = self._read(X, mask, weight, self.fit_.axes, self.fit_.dtype)
        return self.fit_.mean_log_likelihood(entries)

    def factors_at(
        self, *, row_locations=None, col_locations=None, row_groups=None, col_groups=None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the factors at new locations of rows, or of columns.

        With groups, give also the group of each location.
        """
        check_is_fitted(self)
        if (row_locations is None) == (col_locations is None):
            raise ValueError("factors_at needs row_locations or col_locations, one of them.")
        if col_locations is None:
            return self.fit_.factors_at(self.fit_.rows, row_locations, row_groups)
        return self.fit_.factors_at(self.fit_.cols, col_locations, col_groups)

    @property
    def _n_features_out(self) -> int:
        return self.n_factors_

    def _climb(
        self, observed: Observed, axes: Axes, n_factors: int, settings: SweepSettings, start: Any
    ) -> SweepResult:
        """Sweeps from a first guess: the user's, or one by singular vectors."""
        seed = seed_of(self.random_state)
        small = settings.piece is None and is_small(observed, n_factors)
        observed = engines.placed(observed, small)
        if start is None:
            first = best_start(observed, axes, n_factors, settings, jr.key(seed))
        else:
            guess = sort_guess(start, axes, n_factors, settings.dtype)
            first = take_guess(guess, laid_out(axes, settings.dtype, observed), settings)
        with tqdm(unit=" sweeps", disable=not self.verbose) as bar:

            def tell(elbo: float) -> None:
                bar.set_postfix(elbo=f"{elbo:.3f}", refresh=False)
                bar.update()

            if settings.piece is not None:
                return climb_by_pieces(first, observed, settings, jr.key(seed + 1), tell)
            to_optimum = select_n_factors if self.n_factors == "auto" else climb
            found = to_optimum(first, observed, settings, tell)
            if settings.bound == "polya_gamma":
                return found
            return climb_expected(found, observed, settings, tell)

    def _rows(self, n: int, locations: Any = None, groups: Any = None) -> SortedAxis:
        given = self.row_locations if locations is None else locations
        groups = self.row_groups if groups is None else groups
        return sort_axis("row_locations", given, n, self.ties, groups)

    def _cols(self, n: int) -> SortedAxis:
        return sort_axis("col_locations", self.col_locations, n, self.ties, self.col_groups)

    def _check_matrix(self, X, *, reset: bool) -> Any:
        """X unchanged, after recording the number and names of its columns."""
        X = array_like(X)
        shape_of(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _read(self, X, mask, weight, axes: Axes, dtype: Any) -> ReadEntries:
        return read_entries(X, mask, weight, self.unstored, axes, dtype)

    def _fit_of(self, parts: dict[str, Any]) -> MatrixFit:
        return restore_fit(parts, self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True  # two categories: 0 and 1
        return tags


def _warn(complaint: str) -> None:
    warn(complaint, ConvergenceWarning, stacklevel=4)
