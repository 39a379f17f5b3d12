"""Linear models of streams and tables: linear, logistic and Poisson regression.

models       the estimators that users see
estimator    the common part: checks of parameters and rows, and published results
families     the properties of each kind of y
settings     the parameters of an estimator as a fit uses them
fit          a fit: the state of the stream, the waiting rows, the posterior in the user's units
predictions  predictions of rows, a block at a time
refinement   from one pass over the rows to the optimum of the variational bound
shards       merging fits of parts of the rows, and further passes over rows in many places
diagnostics  draws of the coefficients, and how good the Gaussian is
restoring    checks of fits from a file
"""

from kalvi.estimators.linear.models import (
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
)

__all__ = ["LinearRegression", "LogisticRegression", "PoissonRegression"]
