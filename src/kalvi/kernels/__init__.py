"""Covariance functions of Gaussian processes, and their hyperparameters as one vector.

A kernel is the covariance of the values of a random function at rows x and z::

    kernel(x, z)         the covariances (n, m) of the function at x and at other rows z
    kernel.diagonal(x)   the variances (n,)
    kernel.gram(x)       the covariance matrix (n, n) of the function at the rows x: kernel(x, x) with its
                         diagonal from `diagonal`

kernel.gram(x) and kernel(x, x) differ only by noise: `White` noise is independent at every row, so that two
rows with equal x have different noise, and kernel(x, z) contains none. `+` and `*` combine kernels with
each other and with numbers: `1.4 * RBF(2.0) + White(0.1)`.

All hyperparameters are positive. They are kept as they are given and take the dtype of the rows when used.
`flatten` gives the logarithms of those that are learned, and `names` their names.
"""

from kalvi.kernels.hyperparameters import flatten, log_slopes, names
from kalvi.kernels.kernel import Constant, Fixed, Kernel, Product, Sum
from kalvi.kernels.ornstein_uhlenbeck import OrnsteinUhlenbeck
from kalvi.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Stationary,
)
from kalvi.kernels.without_distance import Function, Linear, White

__all__ = [
    "RBF",
    "Constant",
    "Fixed",
    "Function",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OrnsteinUhlenbeck",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "White",
    "flatten",
    "log_slopes",
    "names",
]
