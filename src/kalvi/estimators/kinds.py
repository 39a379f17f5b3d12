"""What regressors share, and what models share whose likelihood has nothing to learn."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from kalvi.estimators import settings
from kalvi.estimators.base import StreamingEstimator
from kalvi.estimators.common import all_or_nothing
from kalvi.gaussians import Gaussian
from kalvi.rules.rvga import Streaming


class StreamingRegressor(RegressorMixin, StreamingEstimator):
    """What the regressors share: numbers as targets, predictions with a standard deviation."""

    def _outputs(self) -> int:
        return 1

    @all_or_nothing
    def fit(self, X, y, sample_weight=None) -> "StreamingRegressor":
        """Forget everything and learn from a table."""
        X, y = self._check_rows(X, y, reset=True, y_numeric=True)
        self.__dict__.pop("state_", None)
        return self._learn(X, self._targets(y), sample_weight, revisit=True)

    @all_or_nothing
    def partial_fit(self, X, y, sample_weight=None) -> "StreamingRegressor":
        """Learn from further rows."""
        X, y = self._check_rows(X, y, reset=not hasattr(self, "state_"), y_numeric=True)
        return self._learn(X, self._targets(y), sample_weight, revisit=False)

    def predict(self, X, return_std: bool = False):
        """The mean of y and, if asked, its standard deviation, noise included."""
        mean, variance, _ = self._predictive(X)
        return (mean, np.sqrt(variance)) if return_std else mean

    @property
    def coef_(self) -> np.ndarray:
        return np.asarray(self._on_host()[2].mean)[: self.n_features_in_]

    @property
    def intercept_(self) -> float:
        return float(self._on_host()[2].mean[-1]) if self.fit_intercept else 0.0


class FixedLikelihood(StreamingEstimator):
    """What models share whose likelihood has nothing to learn."""

    def _fitted_likelihood(self) -> Any:
        return self._stream_likelihood()

    def _evidence(self, state: Streaming) -> float:
        return float(state.log_evidence)

    def _in_units(self, q: Gaussian, state: Streaming) -> Gaussian:
        return q

    def _refitted(self, state: Streaming, prior: Gaussian, rows: tuple) -> Streaming:
        return state

    def _complaint(self, state: Streaming) -> str | None:
        return None

    def _scales(self) -> np.ndarray:
        return settings.SCALES

    def _one_pass_is_exact(self) -> bool:
        return False
