"""Linear models of streams and tables: linear, logistic and Poisson regression.

models       the estimators that users see
estimator    what they share: parameters and rows are checked, a fit is made, results are published
families     what is special about each kind of y
settings     the parameters of an estimator as a fit uses them
fit          a fit: the state of the stream, the rows that wait, the posterior in the user's units
predictions  of rows, a block at a time
refinement   from one pass over the rows to the optimum of the variational bound
shards       fits of parts of the rows as one, and further passes over rows in many places
diagnostics  draws of the coefficients, and how good the Gaussian is
restoring    checks of fits that come out of a file
"""

from kalvi.estimators.linear.models import (
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
)

__all__ = ["LinearRegression", "LogisticRegression", "PoissonRegression"]
