"""Bayesian neural networks of a table: a classifier if the target is labels, otherwise a regressor."""

from typing import Any

import numpy as np

from kalvi.columns.targets import Classes, Target
from kalvi.estimators.neural import NeuralClassifier, NeuralRegressor
from kalvi.evaluation import intervals
from kalvi.evaluation.intervals import Spread
from kalvi.tabular.choices import new_estimator
from kalvi.tabular.nonlinear import NonlinearModel
from kalvi.tabular.rows import dense
from kalvi.tabular.target_predictions import Prediction, normal_prediction


class NeuralModel(NonlinearModel):
    """A neural network fitted to a table."""

    __slots__ = ()

    MODEL = "neural"
    first_rows = 256  # from which a network takes its scales

    @classmethod
    def new_estimator(cls, target: Target, width: int, parameters: dict[str, Any]) -> Any:
        kind = NeuralClassifier if isinstance(target, Classes) else NeuralRegressor
        return new_estimator(kind, {"method": "lrvga", "random_state": 0, **parameters})

    def streams(self) -> bool:
        return self.choices.parameters.get("method", "lrvga") == "lrvga"

    def prediction(self, x: Any) -> Prediction:
        mean, epistemic, aleatoric = self.estimator.predict_parts(dense(x))
        if isinstance(self.target, Classes):
            return Prediction(mean, lambda level: _within_0_and_1(mean, np.sqrt(epistemic), level))
        return normal_prediction(self.target, mean, np.sqrt(epistemic + aleatoric))

    def shape(self) -> dict[str, Any]:
        """The layers, the method that found the posterior, and the number of parameters."""
        estimator, perceptron = self.estimator, self.estimator.perceptron_
        bound = getattr(estimator, "elbo_", None)
        return {
            "kind": "network",
            "layers": [int(size) for size in perceptron.sizes],
            "activation": str(estimator.activation),
            "method": str(estimator.method),
            "posterior": type(estimator.posterior_).__name__,
            "parameters": int(perceptron.n_parameters()),
            "bound": None if bound is None else float(bound),
        }


def _within_0_and_1(mean: np.ndarray, std: np.ndarray, level: float) -> Spread:
    """Normal intervals of probabilities, cut off at 0 and 1; for two classes, those of the second."""
    if mean.shape[1] == 2:
        mean, std = mean[:, 1], std[:, 1]
    ends = intervals.normal(mean, std, level)
    return Spread(ends.std, np.maximum(ends.lower, 0), np.minimum(ends.upper, 1))
