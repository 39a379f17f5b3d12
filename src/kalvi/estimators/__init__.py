"""scikit-learn estimators."""

from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.estimators.linear import LinearRegression, LogisticRegression, PoissonRegression
from kalvi.estimators.neural import NeuralClassifier, NeuralRegressor

__all__ = [
    "FactorAnalysis",
    "LinearRegression",
    "LogisticRegression",
    "NeuralClassifier",
    "NeuralRegressor",
    "PoissonRegression",
]
