"""scikit-learn estimators."""

from kalvi.estimators.linear import LinearRegression, LogisticRegression, PoissonRegression

__all__ = ["LinearRegression", "LogisticRegression", "PoissonRegression"]
