"""Linear models of streams and tables: linear, logistic and Poisson regression.

models       the estimators that users see
estimator    the common part: checks of parameters and rows, and published results
families     the properties of each kind of y
settings     the parameters of an estimator as a fit uses them
fit          a fit: the state of the stream, the waiting rows, the posterior in the user's units
stream       the rule, the prior, the blocks and the engine for the rows of a fit
grids        the settings of the copies of a stream that learns its settings
clock        the times of rows, between which coefficients drift
predictions  predictions of rows, a block at a time
predictive   the distribution of one prediction, averaged over the copies of a stream
refinement   from one pass over the rows to the optimum of the variational bound
fit_results  the states from which the results of a fit are read
shards       merging fits of parts of the rows, and further passes over rows in many places
widening     a fit with room for further features
diagnostics  draws of the coefficients, and how good the Gaussian is
restoring    checks of fits from a file

`learned_settings` has what a stream has learned about its settings, for users and plots.
"""

from kalvi.estimators.linear.models import (
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
)

__all__ = ["LinearRegression", "LogisticRegression", "PoissonRegression"]
