"""scikit-learn estimators."""

from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.estimators.linear import LinearRegression, LogisticRegression, PoissonRegression

__all__ = ["FactorAnalysis", "LinearRegression", "LogisticRegression", "PoissonRegression"]
