"""Smooth binary matrix factorisation as a scikit-learn estimator."""

from typing import Any, NamedTuple
from warnings import warn

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from kalvi.estimators import binary_fits as fits
from kalvi.estimators import binary_predictions as predictions
from kalvi.estimators import binary_settings as settings
from kalvi.estimators import binary_tables as tables
from kalvi.estimators.binary_places import Axis, axis
from kalvi.estimators.common import all_or_nothing
from kalvi.estimators.states import check_names, fits_together
from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.numerics.precision import matching
from kalvi.rules.silk import Side, Silk, log_likelihood
from kalvi.rules.silk.model import double_sum
from kalvi.streams import run


class Smoothness(NamedTuple):
    """Correlation lengths of the factors, in units of the locations."""

    rows: np.ndarray
    cols: np.ndarray


class BinaryFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A binary matrix as a few factors of its rows and columns that vary smoothly along their order.

    An entry is 1 with probability σ(⟨uᵣ, α_c⟩). Each factor is a Gaussian process along the locations of
    the rows (or columns) whose correlations fall exponentially with distance; its mean, variance and
    correlation length are learned. Missing entries are left out, and predictions average over the
    posterior of the factors. Means, variances and lengths of the priors are learned as single numbers, so
    that next to no data, or data without any zero, make the model surer than it should be.

    Parameters
    ----------
    n_factors : int or "auto", default "auto"
        How many factors; "auto" begins with `max_factors` and drops those that the bound on the log
        evidence does not ask for.
    row_locations, col_locations : None, array or "unordered", default None
        Where the rows and columns are: numbers or dates in any order. None is the order of the matrix,
        0, 1, 2, …; "unordered" has no smoothness along that side.
    posterior : {"chains", "mean_field", "coupled"}, default "chains"
        What the posterior may correlate: each factor along its locations, nothing at all (faster, and
        too sure of smooth factors), or everything of one side.
    solver : {"exact", "jacobi", "jacobi_search"}, default "exact"
        How a sweep finds the means; the others take a damped step, of a fixed or of the best length.
    ties : {"share", "spread"}, default "share"
        Rows at one location share their factors, or are drawn apart evenly up to the next location.
    unstored : {None, "zero", "missing"}, default None
        What entries are that a sparse X does not store. None is zero if X stores nothing but ones, and
        an error otherwise.
    max_factors : int or None, default None
        Where n_factors="auto" begins; None is 10, or the smaller side of the matrix.
    batch_size : int, (int, int) or None, default None
        None sweeps over all entries. For matrices too large for that, the rows and columns of the random
        pieces that are read instead, one a step; the bound then rises with noise, and the fit ends where
        five passes' worth of pieces raise it by no more than that, whatever `tol` says.
    max_sweeps : int, default 1000
        At most; with batch_size, passes' worth of pieces.
    tol : float, default 1e-5
        The fit ends where five sweeps raise the bound by less than this many nats for each number in
        the factors, of which there are (rows + columns) × factors; 0 goes on to `max_sweeps`.
    dtype : {"float64", "float32"}, default "float64"
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        For the start, by randomised singular vectors.
    verbose : bool, default False
        Show a progress bar.

    Attributes
    ----------
    row_factors_, col_factors_ : arrays of shape (n_rows, n_factors_) and (n_cols, n_factors_)
        Posterior means, in the order of X; the factors by their share of the logits, largest first.
    row_stds_, col_stds_ : arrays of the same shapes
        Posterior standard deviations.
    smoothness_ : Smoothness(rows, cols)
        Correlation lengths 2/ρ of the factors, in units of the locations (days, of dates); 0 without
        smoothness, and meaningless for a factor whose prior variance has gone to nothing.
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
        The bound at the start and after every sweep; with batch_size, its estimate in every pass, and
        the bound at the end. With n_factors="auto" that of the last number of factors tried.
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

    n_features_in_: int
    posterior_: Silk
    elbo_history_: np.ndarray
    converged_: bool
    _axes: tuple[Axis, Axis]

    def __init__(
        self,
        n_factors="auto",
        *,
        row_locations=None,
        col_locations=None,
        posterior="chains",
        solver="exact",
        ties="share",
        unstored=None,
        max_factors=None,
        batch_size=None,
        max_sweeps=1000,
        tol=1e-5,
        dtype="float64",
        random_state=None,
        verbose=False,
    ):
        self.n_factors = n_factors
        self.row_locations = row_locations
        self.col_locations = col_locations
        self.posterior = posterior
        self.solver = solver
        self.ties = ties
        self.unstored = unstored
        self.max_factors = max_factors
        self.batch_size = batch_size
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X, y=None, *, mask=None, weight=None, start=None) -> "BinaryFactorization":
        """Learn from a matrix of 0, 1 and NaN (missing); y is ignored.

        mask is True where an entry was observed. An entry of weight w counts as w entries. start is a first
        guess of the factors of the rows and of the columns, two arrays, such as those of another fit; None
        takes singular vectors, which know little of matrices whose rows share hardly any columns.
        """
        how = settings.settings(self.get_params())
        X = self._checked(X, reset=True)
        shape = tables.shape_of(X)
        n_factors = settings.most_factors(self.get_params(), shape)
        rows = axis("row_locations", self.row_locations, shape[0], self.ties)
        axes = rows, axis("col_locations", self.col_locations, shape[1], self.ties)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with matching(how.dtype):
            observed = tables.read(X, mask, weight, self.unstored, axes, how.dtype).observed
            layout = fits.Layout(*(side.places.laid(how.dtype) for side in axes))
            settings.check_piece(how, observed, n_factors)
            if start is None:
                first = fits.begin(observed, layout, n_factors, how, jr.key(seed))
            else:
                first = fits.given(settings.started(start, axes, n_factors, how), layout, how)
            found = self._climbed(first, observed, how, jr.key(seed + 1))
        self._axes, self.posterior_ = axes, found.silk
        self.elbo_history_, self.converged_ = found.history, found.converged
        if not found.converged:
            self._warn(f"the bound still rose after {self.n_sweeps_} sweeps")
        return self

    def fit_transform(self, X, y=None, *, mask=None, weight=None, start=None) -> np.ndarray:
        """Fit, and the factors of the rows."""
        return self.fit(X, y, mask=mask, weight=weight, start=start).row_factors_

    def transform(self, X, *, row_locations=None, mask=None, weight=None) -> np.ndarray:
        """The factors of the rows of another matrix with the same columns, given theirs and the priors.

        row_locations are needed where those of `fit` were given and the number of rows has changed.
        """
        check_is_fitted(self)
        how = settings.settings(self.get_params())
        X = self._checked(X, reset=False)
        n = tables.shape_of(X)[0]
        given = self.row_locations if row_locations is None else row_locations
        rows = axis("row_locations", given, n, self.ties)
        self._check_order(rows)
        how = how._replace(dtype=self._dtype.name)
        with matching(self._dtype):
            axes = rows, self._axes[1]
            observed = tables.read(X, mask, weight, self.unstored, axes, self._dtype).observed
            layout = fits.Layout(*(side.places.laid(how.dtype) for side in axes))
            found, converged = fits.transformed(self.posterior_, observed, layout, how)
        if not converged:
            self._warn(f"the factors of the rows still moved after {how.max_sweeps} sweeps")
        return np.asarray(found.rows.posterior.mean)[rows.at]

    def predict_proba(
        self, rows=None, cols=None, *, row_locations=None, col_locations=None
    ) -> np.ndarray:
        """Probabilities that entries are 1, averaged over the posterior of the factors.

        Of the whole matrix; of some rows or some columns of it; of entries, if both rows and cols are
        given, which are then taken side by side; or of rows or columns at new locations, between the
        known ones or beyond.
        """
        check_is_fitted(self)
        silk, (row_axis, col_axis) = self.posterior_, self._axes
        of = predictions.matrix if rows is None or cols is None else predictions.pairs
        with matching(self._dtype):
            u = predictions.moments(silk.rows, row_axis, "row", rows, row_locations)
            v = predictions.moments(silk.cols, col_axis, "col", cols, col_locations)
            return of(u, v, silk.rows.posterior.adds_mean)

    def score(self, X, y=None, *, mask=None, weight=None) -> float:
        """The mean log predictive probability of observed entries of the matrix that was fitted.

        Hide entries by mask to judge the model by them. Folds of rows, as `cross_val_score` makes them, are
        other matrices: their scores mean nothing.
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        shape, fitted = tables.shape_of(X), tuple(a.n for a in self._axes)
        if shape != fitted:
            raise ValueError(
                f"score needs entries of the matrix that was fitted, of shape {fitted}; got {shape}. "
                "Fit all rows, with those to be judged hidden by mask."
            )
        with matching(self._dtype):
            seen = tables.read(X, mask, weight, self.unstored, self._axes, self._dtype)
            return double_sum(run.call(log_likelihood, self.posterior_, seen.observed)) / seen.total

    def factors_at(
        self, *, row_locations=None, col_locations=None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the factors at new locations of rows, or of columns."""
        check_is_fitted(self)
        if (row_locations is None) == (col_locations is None):
            raise ValueError("factors_at needs row_locations or col_locations, one of them.")
        i, name, where = 0, "row", row_locations
        if row_locations is None:
            i, name, where = 1, "col", col_locations
        side = (self.posterior_.rows, self.posterior_.cols)[i]
        with matching(self._dtype):
            law, var = predictions.bridged(side, self._axes[i], name, where)
            return np.asarray(law.mean), np.sqrt(np.asarray(var))

    @property
    def row_factors_(self) -> np.ndarray:
        return np.asarray(self._side(0).posterior.mean)[self._axes[0].at]

    @property
    def col_factors_(self) -> np.ndarray:
        return np.asarray(self._side(1).posterior.mean)[self._axes[1].at]

    @property
    def row_stds_(self) -> np.ndarray:
        return np.sqrt(np.asarray(self._side(0).posterior.var))[self._axes[0].at]

    @property
    def col_stds_(self) -> np.ndarray:
        return np.sqrt(np.asarray(self._side(1).posterior.var))[self._axes[1].at]

    @property
    def row_prior_(self) -> OrnsteinUhlenbeck:
        return self._side(0).prior

    @property
    def col_prior_(self) -> OrnsteinUhlenbeck:
        return self._side(1).prior

    @property
    def row_rates_(self) -> np.ndarray:
        return np.asarray(self.row_prior_.rate)

    @property
    def col_rates_(self) -> np.ndarray:
        return np.asarray(self.col_prior_.rate)

    @property
    def smoothness_(self) -> Smoothness:
        return Smoothness(2 / self.row_rates_, 2 / self.col_rates_)

    @property
    def n_factors_(self) -> int:
        return len(self._side(0).prior.mean)

    @property
    def elbo_(self) -> float:
        self._side(0)
        return float(self.elbo_history_[-1])

    @property
    def n_sweeps_(self) -> int:
        self._side(0)
        return len(self.elbo_history_) - 1

    @property
    def _n_features_out(self) -> int:
        return self.n_factors_

    @property
    def _dtype(self) -> np.dtype:
        """Of the fit, whatever the parameter is now."""
        return np.dtype(self.posterior_.rows.posterior.mean.dtype)

    def _side(self, i: int) -> Side:
        if "posterior_" not in self.__dict__:
            raise AttributeError("what was learned is there after fit.")
        return (self.posterior_.rows, self.posterior_.cols)[i]

    def _climbed(self, first: Silk, observed: Any, how: fits.Settings, key: Any) -> fits.Climbed:
        climb = fits.sought if settings.is_auto(self.get_params()) else fits.climb
        with tqdm(unit=" sweeps", disable=not self.verbose) as bar:

            def tell(elbo: float) -> None:
                bar.set_postfix(elbo=f"{elbo:.3f}", refresh=False)
                bar.update()

            if how.piece is not None:
                return fits.sampled(first, observed, how.piece, how, key, tell)
            return climb(first, observed, how, tell)

    def _checked(self, X, *, reset: bool) -> Any:
        """X as it is, its columns counted and named."""
        X = tables.array_like(X)
        tables.shape_of(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _check_order(self, rows: Axis) -> None:
        if rows.places.ordered != self.posterior_.rows.ordered:
            raise ValueError(
                "row_locations must be 'unordered' where they were in fit, and only there; call fit again."
            )

    @staticmethod
    def _warn(what: str) -> None:
        warn(f"{what}; raise max_sweeps or tol.", ConvergenceWarning, stacklevel=4)

    def __getstate__(self) -> dict[str, Any]:
        """JAX arrays travel as NumPy arrays: unpickling must not depend on JAX's global precision."""
        kept: Any = super().__getstate__()
        return jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, kept)

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        if "posterior_" in self.__dict__:
            with matching(np.asarray(self.posterior_.rows.posterior.mean).dtype):
                self.posterior_ = jax.tree.map(jnp.asarray, self.posterior_)
            check_names(self)
            sides = isinstance(self.posterior_, Silk) and len(self._axes) == 2
            fits_together(sides, self, "posterior_")
            places = all(isinstance(side, Axis) for side in self._axes)
            fits_together(places and self._axes[1].n == self.n_features_in_, self, "columns")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True  # two categories: 0 and 1
        return tags
