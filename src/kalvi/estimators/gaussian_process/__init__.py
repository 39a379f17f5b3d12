"""Gaussian processes with any scalar likelihood.

models           the estimators that users see: regression and classification
estimator        what they share: parameters and rows are checked, fits are made, results are published
parameters       what the parameters mean, and which values they may have
placement        the choice between NumPy and compiled programs
memory           checks that a fit has room on this machine
fitting          one latent function fitted to a table: its kernel, its prior mean, its hyperparameters
hyperparameters  kernel, likelihood and prior mean, and their free numbers as one vector
covariances      kernels of the library and of scikit-learn, as fits use them
problem          the bound of a table as a function of hyperparameters
search           the hyperparameters with the highest bound
exact            a fit with a latent value for every row
sparse           a fit through inducing points
predictions      of y at new points, from a fit
"""

from kalvi.estimators.gaussian_process.models import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
)

__all__ = ["GaussianProcessClassifier", "GaussianProcessRegressor"]
