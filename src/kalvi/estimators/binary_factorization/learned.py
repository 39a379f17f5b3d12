"""What was learned of a binary matrix, by the names that users know."""

from typing import NamedTuple

import numpy as np

from kalvi.estimators.binary_factorization.fit import MatrixFit
from kalvi.estimators.pickling import PickledInParts
from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules.silk import Silk


class Smoothness(NamedTuple):
    """Correlation lengths of the factors, in units of the locations."""

    rows: np.ndarray
    cols: np.ndarray


class LearnedFactors(PickledInParts):
    """An estimator with the attributes of a fit of a binary matrix."""

    fit_: MatrixFit

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
        """How many factors there are."""
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
        """How many sweeps were made."""
        return len(self.elbo_history_) - 1

    @property
    def converged_(self) -> bool:
        """Whether the sweeps ended because they gained little."""
        return self._fitted("converged_").converged
