"""scikit-learn estimators."""

from kalvi.estimators.binary_factorization import BinaryFactorization
from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.estimators.gaussian_process import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
)
from kalvi.estimators.linear.models import LinearRegression, LogisticRegression, PoissonRegression
from kalvi.estimators.neural import NeuralClassifier, NeuralRegressor

__all__ = [
    "BinaryFactorization",
    "FactorAnalysis",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "LinearRegression",
    "LogisticRegression",
    "NeuralClassifier",
    "NeuralRegressor",
    "PoissonRegression",
]
