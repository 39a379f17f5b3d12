"""Every structure, likelihood and scheme, each with the oracle that judges it.

A new one is one row here, and inherits the laws: a likelihood, of one predictor or of several, says what
NumPy and SciPy make of log p and of the moments of y, some labels and laws of f to try, and how to draw
labels, and is then put through tests/likelihoods/test_likelihood.py and, in streams, through tests/rules.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from kalvi.gaussians import Dense, Diagonal, Gaussian, LowRankCovariance, LowRankPrecision
from kalvi.likelihoods import (
    Bernoulli,
    Binomial,
    Gamma,
    Laplace,
    Likelihood,
    NegativeBinomial,
    Normal,
    Ordinal,
    Poisson,
    Probit,
    StudentT,
)
from kalvi.likelihoods.custom import Custom
from kalvi.likelihoods.logistic import InverseProbit
from kalvi.likelihoods.vector import MultiNormal, Softmax
from kalvi.numerics.projections import Eigen
from kalvi.predictors import linear_predictor
from kalvi.rules import schemes
from kalvi.rules.rvga import RVGA
from tests import oracles, problems
from tests.arrow import Arrow

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
    closed: bool = (
        True  # whether it holds its covariance plus a multiple of I, or only those variances
    )


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


def _arrow(rng, d=DIM, k=2):
    mean, slopes, own = (
        rng.normal(size=d),
        rng.normal(size=(d - k, k)),
        np.exp(rng.normal(size=d - k)),
    )
    corner = problems.spd(rng, k)
    tall = np.concatenate([slopes, np.eye(k)])
    cov = tall @ corner @ tall.T
    cov[: d - k, : d - k] += np.diag(own)
    parts = (mean, slopes, own, np.linalg.cholesky(corner))
    return Known(Arrow(*(jnp.asarray(a) for a in parts)), mean, cov)


STRUCTURES = [
    Structure("dense", _dense, True),
    Structure("diagonal", _diagonal, True),
    Structure("low-rank covariance", _low_rank_covariance, False),
    Structure("low-rank precision", _low_rank_precision, True),
    Structure("arrow", _arrow, True, closed=False),
]


NUMBERS = (-2.0, 0.01), (0.3, 1.0), (1.2, 4.0), (-0.5, 30.0)


class Observed(NamedTuple):
    """A likelihood, and what NumPy and SciPy say of it.

    f and its law are numbers where there is one predictor, and otherwise vectors and covariance matrices.
    Oracles take f one by one and, of several predictors, also as the rows of an array.
    """

    name: str
    likelihood: Likelihood
    log_prob: Callable[[Any, Any], Any]  # of f and y
    moments: Callable[[Any], tuple[Any, Any]]  # mean and (co)variance of y given f
    fisher: Callable[[Any], Any]
    labels: tuple[Any, ...]
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]  # labels for given f
    feature: Callable[[Any], float] = lambda y: y  # where log p of one predictor bends
    laws: tuple[tuple[Any, Any], ...] = NUMBERS  # of f: mean and (co)variance
    # what E[log p] and its derivatives, and then predictions, are off beside rounding, by the variance of f
    error: Callable[[float], float] = lambda variance: 0.0
    blur: Callable[[float], float] = lambda variance: 0.0
    concave: bool = True
    bounded: bool = False  # whether it has a quadratic lower bound, for the QKF
    searched: bool = False  # whether sites take a general search, which is long to compile
    whole: tuple[Any, ...] | None = None  # all labels there are, or all that have a probability
    tempered: bool = True  # whether evidence of a weight w is that of pʷ, or w times that of p

    @property
    def outputs(self) -> int:
        return self.likelihood.outputs

    def average(self, fn, mean, var, y=None):
        """E[fn(f)], f ~ N(mean, var), by quadrature with care where log p(y | f) bends."""
        if self.outputs > 1:
            return oracles.expect_vector(fn, mean, var)
        centre = 0.0 if y is None else self.feature(y)
        return oracles.expect(
            fn, mean, var, [*oracles.around(centre), centre + 1e-3, centre - 1e-3]
        )

    def expected(self, y, mean, var):
        """E[log p], E[∇ log p] and −E[∇² log p] by Stein's identities, which take no derivative:

        V E[∇ log p] = E[a log p],   V E[∇² log p] V = E[(a aᵀ − V) log p],   a = f − m.
        """
        inverse = 1 / var if self.outputs == 1 else np.linalg.inv(var)

        def second(f):
            return per_point(self.log_prob(f, y), squared(f - mean, self.outputs) - var)

        value = self.average(lambda f: self.log_prob(f, y), mean, var, y)
        first = self.average(lambda f: per_point(self.log_prob(f, y), f - mean), mean, var, y)
        bend = self.average(second, mean, var, y)
        if self.outputs == 1:
            return value, inverse * first, -(inverse**2) * bend
        return value, inverse @ first, -inverse @ bend @ inverse


def squared(a, outputs: int):
    """a², or a aᵀ of vectors."""
    return a**2 if outputs == 1 else a[..., :, None] * a[..., None, :]


def diagonal(a):
    """What belongs to each output of a number or a covariance matrix."""
    return a if np.ndim(a) < 2 else np.diagonal(a, axis1=-2, axis2=-1)


def per_point(number, a):
    """number · a, for one point or for a row each."""
    return np.reshape(number, np.shape(number) + (1,) * (np.ndim(a) - np.ndim(number))) * a


def _logistic(f, y):
    return special.log_expit((2 * y - 1) * f)


def _logistic_moments(f):
    return special.expit(f), special.expit(f) * special.expit(-f)


def _binary(probability):
    return lambda rng, f: (rng.uniform(size=f.shape) < probability(f)).astype(float)


def _softmax_moments(f):
    p = special.softmax(f, axis=-1)
    return p, p[..., :, None] * np.eye(p.shape[-1]) - squared(p, p.shape[-1])


def _coarse(variance):
    """The docstring's errors of a softmax, with room for other laws than those they were measured at."""
    return 1e-9 if variance < 0.1 else 1e-7 if variance < 2 else 5e-4


def _vectors(c, variances=(0.01, 1.0, 10.0)):
    """Laws of c predictors with about these variances."""
    rng = np.random.default_rng(0)
    found = []
    for variance in variances:
        cov = problems.spd(rng, c, 1.0)
        found.append((rng.normal(size=c), cov * variance / np.mean(np.diag(cov))))
    return tuple(found)


def _negative_binomial(f, y):
    """What SciPy's nbinom has, also where its probability of a failure underflows."""
    r = 1 / DISPERSION
    log_failure = -np.logaddexp(0, f - np.log(r))
    ways = special.gammaln(y + r) - special.gammaln(r) - special.gammaln(y + 1)
    return ways + (r + y) * log_failure + y * (f - np.log(r))


def _ordinal(f):
    """The probability of each class, on the last axis."""
    above = special.expit(np.asarray(f)[..., None] - CUTS)
    edge = np.ones((*np.shape(f), 1))
    return np.concatenate([edge, above], -1) - np.concatenate([above, 0 * edge], -1)


def _ordinal_log_prob(f, y):
    """A difference of probabilities, of those in the tail that f is not in."""
    edges = np.concatenate([[-np.inf], CUTS, [np.inf]])[int(y) : int(y) + 2]
    side = np.where(np.asarray(f) > 0, 1, -1)
    ends = [special.expit(side * (edge - f)) for edge in edges]
    return np.log(side * (ends[1] - ends[0]))


def _ordinal_moments(f):
    p, k = _ordinal(f), np.arange(len(CUTS) + 1)
    return p @ k, p @ k**2 - (p @ k) ** 2


def _ordinal_fisher(f):
    """The variance of the score, whose derivatives of probabilities are differences."""
    slope = special.expit(np.asarray(f)[..., None] - CUTS)
    slope = np.pad(slope * (1 - slope), [(0, 0)] * np.ndim(f) + [(1, 1)])
    return ((slope[..., :-1] - slope[..., 1:]) ** 2 / _ordinal(f)).sum(-1)


VARIANCE, SCALE, DF = 0.7, 0.6, 4.0
SHAPE, DISPERSION, CUTS = 2.5, 0.4, np.array([-1.0, 0.2, 1.7])
VARIANCES = np.array([0.4, 1.5])

LIKELIHOODS = [
    Observed(
        "normal",
        Normal(VARIANCE),
        lambda f, y: stats.norm.logpdf(y, f, np.sqrt(VARIANCE)),
        lambda f: (f, VARIANCE + 0 * f),
        lambda f: 1 / VARIANCE,
        (-1.3, 0.4, 6.0),
        lambda rng, f: f + np.sqrt(VARIANCE) * rng.normal(size=f.shape),
        bounded=True,
    ),
    Observed(
        "bernoulli",
        Bernoulli(),
        _logistic,
        _logistic_moments,
        lambda f: _logistic_moments(f)[1],
        (0.0, 1.0),
        _binary(special.expit),
        lambda y: 0.0,
        error=lambda variance: 1.2e-8,  # of the scale mixture
        bounded=True,
        whole=(0.0, 1.0),
        tempered=False,
    ),
    Observed(
        "probit",
        Probit(),
        lambda f, y: special.log_ndtr((2 * y - 1) * f),
        lambda f: (special.ndtr(f), special.ndtr(f) * special.ndtr(-f)),
        lambda f: stats.norm.pdf(f) ** 2 / (special.ndtr(f) * special.ndtr(-f)),
        (0.0, 1.0),
        _binary(special.ndtr),
        lambda y: 0.0,
        searched=True,
        whole=(0.0, 1.0),
        tempered=False,
    ),
    Observed(
        "poisson",
        Poisson(),
        lambda f, y: y * f - np.exp(f) - special.gammaln(y + 1),
        lambda f: (np.exp(f), np.exp(f)),
        np.exp,
        (0.0, 1.0, 7.0),
        lambda rng, f: rng.poisson(np.exp(f)).astype(float),
        lambda y: np.log(max(y, 0.5)),
        whole=tuple(np.arange(80.0)),  # for f below 2
    ),
    Observed(
        "gamma",
        Gamma(SHAPE),
        lambda f, y: stats.gamma.logpdf(y, SHAPE, scale=np.exp(f) / SHAPE),
        lambda f: (np.exp(f), np.exp(2 * f) / SHAPE),
        lambda f: SHAPE + 0 * f,
        (0.2, 1.0, 1.5),
        lambda rng, f: rng.gamma(SHAPE, np.exp(f) / SHAPE),
        np.log,
    ),
    Observed(
        "negative binomial",
        NegativeBinomial(DISPERSION),
        _negative_binomial,
        lambda f: (np.exp(f), np.exp(f) + DISPERSION * np.exp(2 * f)),
        lambda f: np.exp(f) / (1 + DISPERSION * np.exp(f)),
        (0.0, 1.0, 7.0),
        lambda rng, f: (
            rng.negative_binomial(1 / DISPERSION, 1 / (1 + DISPERSION * np.exp(f))) * 1.0
        ),
        lambda y: np.log(max(y, 0.5)),
        error=lambda variance: 1.2e-7,  # of the scale mixture, y + r times
        searched=True,
    ),
    Observed(
        "binomial",
        Binomial(),
        lambda f, y: y * f - np.logaddexp(0, f),
        _logistic_moments,
        lambda f: _logistic_moments(f)[1],
        (0.0, 0.3, 1.0),
        _binary(special.expit),
        lambda y: 0.0,
        error=lambda variance: 1.2e-8,
        searched=True,
        whole=(0.0, 1.0),
    ),
    Observed(
        "ordinal",
        Ordinal(CUTS),
        _ordinal_log_prob,
        _ordinal_moments,
        _ordinal_fisher,
        (0.0, 1.0, 3.0),
        lambda rng, f: (f[:, None] + rng.logistic(size=(len(f), 1)) > CUTS).sum(axis=1) * 1.0,
        lambda y: 0.0,
        error=lambda variance: 2.4e-8,  # of two integrals
        searched=True,
        whole=(0.0, 1.0, 2.0, 3.0),
    ),
    Observed(
        "laplace",
        Laplace(SCALE),
        lambda f, y: stats.laplace.logpdf(y, f, SCALE),
        lambda f: (f, 2 * SCALE**2 + 0 * f),
        lambda f: SCALE**-2,
        (-1.3, 0.4, 6.0),
        lambda rng, f: rng.laplace(f, SCALE),
        bounded=True,
        searched=True,
    ),
    Observed(
        "student",
        StudentT(DF, SCALE),
        lambda f, y: stats.t.logpdf(y, DF, f, SCALE),
        lambda f: (f, SCALE**2 * DF / (DF - 2) + 0 * f),
        lambda f: (DF + 1) / ((DF + 3) * SCALE**2),
        (-1.3, 0.4, 6.0),
        lambda rng, f: f + SCALE * rng.standard_t(DF, size=f.shape),
        concave=False,
        bounded=True,
        searched=True,
    ),
    Observed(
        "custom",
        Custom(
            lambda f, y: jax.nn.log_sigmoid((2 * y - 1) * f),
            lambda f: (jax.nn.sigmoid(f), jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)),
        ),
        _logistic,
        _logistic_moments,
        lambda f: _logistic_moments(f)[1],
        (0.0, 1.0),
        _binary(special.expit),
        lambda y: 0.0,
        searched=True,
        whole=(0.0, 1.0),
    ),
    Observed(
        "softmax",
        Softmax(3),
        lambda f, y: special.log_softmax(f, axis=-1)[..., int(y)],
        _softmax_moments,
        lambda f: _softmax_moments(f)[1],
        (0.0, 2.0),
        lambda rng, f: np.argmax(f + rng.gumbel(size=f.shape), axis=-1).astype(float),
        laws=_vectors(3),
        error=_coarse,
        blur=_coarse,
        searched=True,
        whole=(0.0, 1.0, 2.0),
        tempered=False,
    ),
    Observed(
        "multinormal",
        MultiNormal(VARIANCES),
        lambda f, y: stats.norm.logpdf(np.asarray(y), f, np.sqrt(VARIANCES)).sum(axis=-1),
        lambda f: (f, np.broadcast_to(np.diag(VARIANCES), (*f.shape, 2))),
        lambda f: np.diag(1 / VARIANCES),
        ((0.3, -2.0), (1.0, 4.0)),
        lambda rng, f: f + np.sqrt(VARIANCES) * rng.normal(size=f.shape),
        laws=_vectors(2),
    ),
]
BY_NAME = {row.name: row for row in LIKELIHOODS}
NOISY = [row for row in LIKELIHOODS if row.likelihood.noisy]
"""One output and several with normal noise, for which every filter is the Kalman filter."""


class Task(NamedTuple):
    """Rows that a likelihood could have produced, and a prior of the parameters of a linear predictor."""

    observed: Observed
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    cov: np.ndarray

    @property
    def prior(self) -> Dense:
        return Dense(self.mean, self.cov)

    @property
    def design(self) -> np.ndarray:
        """What takes the parameters to the predictors of a row: its inputs, or a matrix for each row."""
        c = self.observed.outputs
        return self.x if c == 1 else np.stack([np.kron(np.eye(c), row) for row in self.x])

    @property
    def linear(self) -> tuple[np.ndarray, ...]:
        """The arguments of an oracle of linear regression."""
        likelihood: Any = self.observed.likelihood
        return self.mean, self.cov, self.design, self.y, np.asarray(likelihood.variance)


def task(observed: Observed, n: int = 9, features: int = 2, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    c = observed.outputs
    x, theta = 0.7 * rng.normal(size=(n, features)), rng.normal(size=(c, features))
    f = x @ theta[0] if c == 1 else x @ theta.T
    mean, cov = rng.normal(size=c * features) / 3, problems.spd(rng, c * features, 0.5)
    return Task(observed, x, observed.draw(rng, f), mean, cov)


def rule_of(observed: Observed, scheme: schemes.Scheme | None = None, **settings) -> RVGA:
    """The streaming rule of a likelihood, with the linear predictor of as many outputs."""
    predictor = linear_predictor(observed.outputs)
    return RVGA(observed.likelihood, scheme or schemes.Implicit(), predictor=predictor, **settings)


class Filter(NamedTuple):
    """A scheme, and the per-row recursion it must reproduce for the paper's logistic integrals."""

    name: str
    scheme: schemes.Scheme
    site: Callable[[float, float, float], tuple[float, float]]


FILTERS = [
    Filter("implicit", schemes.Implicit(), oracles.implicit_site),
    Filter("explicit", schemes.Explicit(), oracles.explicit_site),
    Filter("mirror prox", schemes.MirrorProx(), oracles.mirror_prox_site),
    Filter("ekf", schemes.EKF(), oracles.ekf_site),
    Filter("qkf", schemes.QKF(), oracles.qkf_site),
]

PAPER = Bernoulli(InverseProbit())


def serves(scheme: schemes.Scheme, observed: Observed) -> bool:
    """Whether a scheme is defined for a likelihood."""
    return not isinstance(scheme, schemes.QKF) or observed.bounded


def name(row) -> str:
    return row.name


def scalars(*values, dtype=np.float64):
    """Zero-dimensional JAX arrays."""
    return tuple(jnp.asarray(v, dtype) for v in values)
