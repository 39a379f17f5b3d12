"""Gaussian processes of a table: a classifier if the target is labels, otherwise a regressor."""

from typing import Any

import numpy as np

from kalvi.columns.targets import Classes, Target
from kalvi.estimators.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from kalvi.evaluation import intervals
from kalvi.tabular.choices import new_estimator
from kalvi.tabular.nonlinear import NonlinearModel
from kalvi.tabular.rows import dense
from kalvi.tabular.target_predictions import Prediction, normal_prediction


class GaussianProcessModel(NonlinearModel):
    """A Gaussian process fitted to all rows of a table together."""

    __slots__ = ()

    MODEL = "gp"
    first_rows = 16  # with fewer, no scores are expected

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        classes = isinstance(target, Classes)
        kind = GaussianProcessClassifier if classes else GaussianProcessRegressor
        return new_estimator(kind, {"random_state": 0, **parameters})

    def streams(self) -> bool:
        return False

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
        return normal_prediction(self.target, *self.estimator.predict(x, return_std=True))

    def shape(self) -> dict[str, Any]:
        """The kernel and hyperparameters of each latent function, and the bound on the evidence."""
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
    """A latent function: its kernel, constant mean, likelihood, and fitted hyperparameters."""
    hyper = fit.hyper
    values = {name: _finite(value) for name, value in hyper.values.items()}
    return {
        "kernel": type_names(hyper.covariance.kernel),
        "likelihood": type(hyper.likelihood).__name__,
        "mean": _finite(hyper.mean.constant),
        "hyperparameters": values,
    }


def type_names(kernel: Any) -> str:
    """A kernel as a formula of class names, such as "Scaled(RBF)" or "RBF + White"."""
    parts = [part for part in vars(kernel).values() if _is_kernel(part)]
    name = type(kernel).__name__
    joined = {"Sum": " + ", "Product": " × "}.get(name)
    if joined and len(parts) == 2:
        return joined.join(map(type_names, parts))
    return f"{name}({', '.join(map(type_names, parts))})" if parts else name


def _is_kernel(part: Any) -> bool:
    return any(base.__name__ == "Kernel" for base in type(part).__mro__)


def _finite(value: Any) -> Any:
    """A number, or a list of numbers, as JSON; None if it is not finite."""
    if value is None:
        return None
    array = np.asarray(value, float)
    if array.ndim:
        return [_finite(part) for part in array]
    return float(array) if np.isfinite(array) else None
