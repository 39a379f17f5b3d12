"""The attributes and results of a fitted binary matrix, under their public names."""

from numbers import Integral
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from kalvi.estimators.binary_factorization.fit import FactorDraws, MatrixFit, Wanted
from kalvi.estimators.binary_factorization.ideal_points import deviations_of, table_of
from kalvi.estimators.input_checks import seed_of
from kalvi.estimators.pickling import PickledInParts
from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk import Silk


class Smoothness(NamedTuple):
    """Correlation lengths of the factors, in units of the locations."""

    rows: np.ndarray
    cols: np.ndarray


class LearnedFactors(PickledInParts[MatrixFit]):
    """An estimator with the attributes of a fit of a binary matrix."""

    @property
    def posterior_(self) -> Silk:
        """The factors of both sides, rows and columns sorted by location."""
        return self._fitted("posterior_").silk

    @property
    def row_factors_(self) -> np.ndarray:
        """Posterior means of the factors of the rows."""
        return self._fitted("row_factors_").rows.factors

    @property
    def col_factors_(self) -> np.ndarray:
        """Posterior means of the factors of the columns."""
        return self._fitted("col_factors_").cols.factors

    @property
    def row_stds_(self) -> np.ndarray:
        """Posterior standard deviations of the factors of the rows."""
        return self._fitted("row_stds_").rows.stds

    @property
    def col_stds_(self) -> np.ndarray:
        """Posterior standard deviations of the factors of the columns."""
        return self._fitted("col_stds_").cols.stds

    @property
    def row_prior_(self) -> OrnsteinUhlenbeck:
        """The learned prior of the factors of the rows."""
        return self._fitted("row_prior_").silk.rows.prior

    @property
    def col_prior_(self) -> OrnsteinUhlenbeck:
        """The learned prior of the factors of the columns."""
        return self._fitted("col_prior_").silk.cols.prior

    @property
    def row_rates_(self) -> np.ndarray:
        """How fast the correlations of the factors of the rows fall."""
        return np.asarray(self.row_prior_.rate)

    @property
    def col_rates_(self) -> np.ndarray:
        """How fast the correlations of the factors of the columns fall."""
        return np.asarray(self.col_prior_.rate)

    @property
    def smoothness_(self) -> Smoothness:
        """Correlation lengths of the factors."""
        return Smoothness(2 / self.row_rates_, 2 / self.col_rates_)

    @property
    def n_factors_(self) -> int:
        """The number of factors."""
        return len(self.row_prior_.mean)

    @property
    def elbo_history_(self) -> np.ndarray:
        """The bound at the start and after every sweep."""
        return self._fitted("elbo_history_").history

    @property
    def elbo_(self) -> float:
        """The bound on the log evidence."""
        return float(self.elbo_history_[-1])

    @property
    def n_sweeps_(self) -> int:
        """The number of sweeps."""
        return len(self.elbo_history_) - 1

    def predict_interval(
        self, rows=None, cols=None, *, level: float = 0.95
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ends of credible intervals of the probabilities, at this level.

        Rows, columns and entries are chosen as in `predict_proba`.
        """
        z, fit = deviations_of(level), self._fitted("predict_interval")
        wanted = Wanted(rows, None, None), Wanted(cols, None, None)
        return fit.predict(*wanted, -z), fit.predict(*wanted, z)

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> FactorDraws:
        """Draws of the factors of `rows` and of `cols`, arrays of shape (n_samples, rows, factors).

        A draw of the probabilities is the logistic function of `rows[i] @ cols[i].T`.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a whole number, at least 1; got {n_samples!r}.")
        return self._fitted("sample_posterior").sample(
            int(n_samples), jr.key(seed_of(random_state))
        )

    def ideal_points(
        self, side: str = "row", *, names=None, anchors=None, level: float = 0.95
    ) -> Any:
        """The factors of the rows (side "row") or columns ("col") as a tidy table, with intervals.

        A data frame with a line for each row and factor: name, group, location, factor, mean, std, low and
        high. The default `names` are the columns of the fitted data frame, or numbers. The model does not
        determine signs and rotations of factors; `anchors` fix them. They are a dictionary from names to
        positions, such as {"Kennedy": -1, "Helms": 1}, with at least one more anchor than factors. The
        factors are moved by the linear map that brings the means of the anchors closest to these positions.
        Needs pandas.
        """
        fitted = self._fitted("ideal_points")
        if side not in ("row", "col"):
            raise ValueError(f"side must be 'row' or 'col'; got {side!r}.")
        if names is None and side == "col":
            names = getattr(self, "feature_names_in_", None)
        chosen = fitted.rows if side == "row" else fitted.cols
        return table_of(chosen, names, anchors, level)

    @property
    def converged_(self) -> bool:
        """Whether the sweeps ended because they gained little."""
        return self._fitted("converged_").converged
