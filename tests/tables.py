"""Every structure, likelihood and scheme, each with the oracle that judges it.

A new one is one row here, and inherits the laws.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from kalvi.algorithms import sites
from kalvi.custom import Custom
from kalvi.gaussians import Dense, Diagonal, Gaussian, LowRankCovariance, LowRankPrecision
from kalvi.likelihoods import (
    Bernoulli,
    Laplace,
    Likelihood,
    Normal,
    Poisson,
    Probit,
    StudentT,
)
from kalvi.logistic import InverseProbit
from kalvi.projections import Eigen
from tests import oracles, problems

DIM = 6
RANK = 2


class Known(NamedTuple):
    """A Gaussian of the library, and its mean and covariance as NumPy arrays."""

    q: Gaussian
    mean: np.ndarray
    cov: np.ndarray


class Structure(NamedTuple):
    name: str
    make: Callable[[np.random.Generator], Known]
    updatable: bool


def _dense(rng, d=DIM):
    mean, cov = rng.normal(size=d), problems.spd(rng, d)
    return Known(Dense(mean, cov), mean, cov)


def _diagonal(rng, d=DIM):
    mean, var = rng.normal(size=d), np.exp(rng.normal(size=d))
    return Known(Diagonal(mean, var), mean, np.diag(var))


def _low_rank_covariance(rng, d=DIM, p=RANK):
    mean, factor, diag = rng.normal(size=d), rng.normal(size=(d, p)), np.exp(rng.normal(size=d))
    return Known(LowRankCovariance(mean, factor, diag), mean, factor @ factor.T + np.diag(diag))


def _low_rank_precision(rng, d=DIM, p=RANK):
    mean, factor, diag = rng.normal(size=d), rng.normal(size=(d, p)), np.exp(rng.normal(size=d))
    cov = np.linalg.inv(factor @ factor.T + np.diag(diag))
    # without polish the projection keeps the diagonal of the precision exactly, which a law tests
    return Known(LowRankPrecision(mean, factor, diag, Eigen(0)), mean, cov)


STRUCTURES = [
    Structure("dense", _dense, True),
    Structure("diagonal", _diagonal, True),
    Structure("low-rank covariance", _low_rank_covariance, False),
    Structure("low-rank precision", _low_rank_precision, True),
]


class Observed(NamedTuple):
    """A likelihood, and what SciPy says of it."""

    name: str
    likelihood: Likelihood
    log_prob: Callable[[np.ndarray, float], np.ndarray]  # of f and y
    moments: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # of y given f
    labels: tuple[float, ...]
    feature: Callable[[float], float]  # where log p bends, as a function of y
    concave: bool = True
    fisher: Callable[[float], float] | None = None


def _logistic(f, y):
    return special.log_expit((2 * y - 1) * f)


def _logistic_moments(f):
    return special.expit(f), special.expit(f) * special.expit(-f)


VARIANCE, SCALE, DF = 0.7, 0.6, 4.0

LIKELIHOODS = [
    Observed(
        "normal",
        Normal(VARIANCE),
        lambda f, y: stats.norm.logpdf(y, f, np.sqrt(VARIANCE)),
        lambda f: (f, VARIANCE + 0 * f),
        (-1.3, 0.4, 6.0),
        lambda y: y,
        fisher=lambda f: 1 / VARIANCE,
    ),
    Observed(
        "bernoulli",
        Bernoulli(),
        _logistic,
        _logistic_moments,
        (0.0, 1.0),
        lambda y: 0.0,
        fisher=lambda f: _logistic_moments(f)[1],
    ),
    Observed(
        "probit",
        Probit(),
        lambda f, y: special.log_ndtr((2 * y - 1) * f),
        lambda f: (special.ndtr(f), special.ndtr(f) * special.ndtr(-f)),
        (0.0, 1.0),
        lambda y: 0.0,
        fisher=lambda f: stats.norm.pdf(f) ** 2 / (special.ndtr(f) * special.ndtr(-f)),
    ),
    Observed(
        "poisson",
        Poisson(),
        lambda f, y: y * f - np.exp(f) - special.gammaln(y + 1),
        lambda f: (np.exp(f), np.exp(f)),
        (0.0, 1.0, 7.0),
        lambda y: np.log(max(y, 0.5)),
        fisher=np.exp,
    ),
    Observed(
        "laplace",
        Laplace(SCALE),
        lambda f, y: stats.laplace.logpdf(y, f, SCALE),
        lambda f: (f, 2 * SCALE**2 + 0 * f),
        (-1.3, 0.4, 6.0),
        lambda y: y,
        fisher=lambda f: SCALE**-2,
    ),
    Observed(
        "student",
        StudentT(DF, SCALE),
        lambda f, y: stats.t.logpdf(y, DF, f, SCALE),
        lambda f: (f, SCALE**2 * DF / (DF - 2) + 0 * f),
        (-1.3, 0.4, 6.0),
        lambda y: y,
        concave=False,
        fisher=lambda f: (DF + 1) / ((DF + 3) * SCALE**2),
    ),
    Observed(
        "custom",
        Custom(
            lambda f, y: jax.nn.log_sigmoid((2 * y - 1) * f),
            lambda f: (jax.nn.sigmoid(f), jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)),
        ),
        _logistic,
        _logistic_moments,
        (0.0, 1.0),
        lambda y: 0.0,
        fisher=lambda f: _logistic_moments(f)[1],
    ),
]


class Filter(NamedTuple):
    """A scheme, and the per-row recursion it must reproduce for the paper's logistic integrals."""

    name: str
    scheme: sites.Scheme
    site: Callable[[float, float, float], tuple[float, float]]


FILTERS = [
    Filter("implicit", sites.Implicit(), oracles.implicit_site),
    Filter("explicit", sites.Explicit(), oracles.explicit_site),
    Filter("mirror prox", sites.MirrorProx(), oracles.mirror_prox_site),
    Filter("ekf", sites.EKF(), oracles.ekf_site),
    Filter("qkf", sites.QKF(), oracles.qkf_site),
]

PAPER = Bernoulli(InverseProbit())
BOUNDED = {
    "normal",
    "bernoulli",
    "laplace",
    "student",
}  # what the quadratic Kalman filter can serve
"""Names of the likelihoods with a quadratic lower bound."""


def serves(scheme: sites.Scheme, observed: Observed) -> bool:
    """Whether a scheme is defined for a likelihood."""
    return not isinstance(scheme, sites.QKF) or observed.name in BOUNDED


def name(row) -> str:
    return row.name


def scalars(*values, dtype=np.float64):
    """Zero-dimensional JAX arrays."""
    return tuple(jnp.asarray(v, dtype) for v in values)
