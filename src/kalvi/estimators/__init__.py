"""Estimators with scikit-learn's interface, a package for each family.

linear                linear, logistic and Poisson regression, of streams and tables
gaussian_process      Gaussian processes, exact or through inducing points
neural                neural networks with a posterior over their parameters
factor_analysis       factor analysis of streams and tables
binary_factorization  binary matrices as a few smooth factors

No family imports another. The modules that they share:

constraints        tables of valid parameters, and their check
input_checks       checks of rows, and of attributes from a file
decorators         shared parts of docstrings; methods that change nothing if they fail
pickling           pickles that do not depend on JAX's precision
prediction_blocks  predictions for any number of rows, in blocks of bounded size
progress           progress bars over rows

In each family, a frozen fit owns what was learned and computes predictions from it. The estimator checks
its input, calls the fit, and publishes the results as attributes.
"""
