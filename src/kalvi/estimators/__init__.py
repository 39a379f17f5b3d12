"""scikit-learn's interface to all of it, a package for each family of estimators.

linear                linear, logistic and Poisson regression, of streams and tables
gaussian_process      Gaussian processes, exact or through inducing points
neural                neural networks with a posterior over their parameters
factor_analysis       factor analysis of streams and tables
binary_factorization  binary matrices as a few smooth factors

A family imports no other. What they share:

constraints        tables of what parameters may be
input_checks       checks of rows, and of what comes out of a file
decorators         common parameters in docstrings; calls that happen whole or not at all
pickling           pickles that do not depend on JAX's precision
prediction_blocks  predictions for any number of rows, some at a time
progress           progress bars over rows

In each family a frozen fit owns what was learned and what can be computed from it; the estimator checks
its input, calls the fit and publishes its results as attributes.
"""
