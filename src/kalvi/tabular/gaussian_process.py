"""Gaussian processes of a table: all rows at once, of classes for labels and of numbers otherwise."""

from typing import Any

import numpy as np

from kalvi.columns.targets import Classes, Target
from kalvi.estimators.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from kalvi.evaluation import intervals
from kalvi.tabular.choices import new_estimator
from kalvi.tabular.nonlinear import NonlinearModel
from kalvi.tabular.record import LEVELS
from kalvi.tabular.rows import dense
from kalvi.tabular.target_predictions import Prediction

FIRST_ROWS = 16
"""Rows below which no scores are expected."""


class GaussianProcessModel(NonlinearModel):
    """A Gaussian process of a table."""

    __slots__ = ()

    MODEL = "gp"

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        classes = isinstance(target, Classes)
        kind = GaussianProcessClassifier if classes else GaussianProcessRegressor
        return new_estimator(kind, {"random_state": 0, **parameters})

    def streams(self) -> bool:
        return False

    def first_rows(self) -> int:
        return FIRST_ROWS

    def prediction(self, x: Any) -> Prediction:
        x = dense(x)
        if isinstance(self.target, Classes):
            p = self.estimator.predict_proba(x)
            if p.shape[1] > 2:
                return Prediction(p, None)

            def spread(level: float) -> intervals.Spread:
                mean, std = self.estimator.predict_latent(x)
                return intervals.probability(mean, std, level)

            return Prediction(p, spread)
        mean, std = self.estimator.predict(x, return_std=True)
        return Prediction(
            mean,
            lambda level: intervals.normal(mean, std, level),
            lambda y: intervals.normal_holds(y, mean, std, LEVELS),
        )

    def shape(self) -> dict[str, Any]:
        """Kernel and hyperparameters of each latent function, and the bound on the evidence."""
        estimator = self.estimator
        sparse = estimator.regime_ == "sparse"
        return {
            "kind": "process",
            "latent": [_latent(fit) for fit in estimator.fits_],
            "regime": estimator.regime_,
            "inducing": int(estimator.fits_[0].inducing.shape[0]) if sparse else None,
            "bound": float(estimator.log_marginal_likelihood_),
            "gap": _finite(estimator.elbo_gap_),
        }


def _latent(fit: Any) -> dict[str, Any]:
    """One latent function: its kernel, its constant mean, its likelihood and what was fitted of them."""
    hyper = fit.hyper
    values = {name: _finite(value) for name, value in hyper.values.items()}
    return {
        "kernel": type_names(hyper.covariance.kernel),
        "likelihood": type(hyper.likelihood).__name__,
        "mean": _finite(hyper.mean.constant),
        "hyperparameters": values,
    }


def type_names(kernel: Any) -> str:
    """A kernel as a formula of the names of its parts: Scaled(RBF), RBF + White."""
    parts = [part for part in vars(kernel).values() if _is_kernel(part)]
    name = type(kernel).__name__
    joined = {"Sum": " + ", "Product": " × "}.get(name)
    if joined and len(parts) == 2:
        return joined.join(map(type_names, parts))
    return f"{name}({', '.join(map(type_names, parts))})" if parts else name


def _is_kernel(part: Any) -> bool:
    return any(base.__name__ == "Kernel" for base in type(part).__mro__)


def _finite(value: Any) -> Any:
    """A number, or a list of them, as JSON has it; None where there is none."""
    if value is None:
        return None
    array = np.asarray(value, float)
    if array.ndim:
        return [_finite(part) for part in array]
    return float(array) if np.isfinite(array) else None
