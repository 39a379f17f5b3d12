"""Likelihoods whose log-probability is a sum of softplus functions of one predictor.

With s = log(1 + eˣ) the softplus,

    log p(y | f) = a f − Σⱼ nⱼ s(f − tⱼ) + const,

where a, the counts n, the thresholds t and the constant depend on y. The Gaussian integrals of s and of its
derivatives are those of logistic regression (`logistic`), so expectations are closed, and their error is
Σ nⱼ times that of one of them (1e-8). log p is concave in f.

    Binomial           a = y,      n = 1,      t = 0         y a share of trials, their number the weight
    NegativeBinomial   a = y,      n = y + r,  t = log r     counts of mean eᶠ and variance eᶠ + e²ᶠ/r
    Ordinal            a = [y>0],  n = 1,      t = the cut points on both sides of y

The last holds because σ(u − f) − σ(l − f) = σ(u − f) σ(f − l) (1 − e^(l − u)).
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from kalvi.likelihoods import logistic
from kalvi.likelihoods.implicit import average, solve_implicit
from kalvi.likelihoods.likelihood import (
    COUNTS,
    Moments,
    ScalarLikelihood,
    Support,
    Unbounded,
)
from kalvi.likelihoods.logistic import ScaleMixture
from kalvi.likelihoods.sites import Expected, Site
from kalvi.numerics.expectations import log_expect_exp
from kalvi.numerics.namespaces import AnyArray, Scalar, Setting, Values, as_setting, namespace_of

INTEGRALS = ScaleMixture()
SHARES = Support("shares, from 0 to 1", lambda y: (y >= 0) & (y <= 1))


class Terms(NamedTuple):
    """log p(y | f) = slope · f − Σ counts · softplus(f − thresholds) + constant."""

    slope: Scalar
    counts: Float[Array, " j"]
    thresholds: Float[Array, " j"]
    constant: Scalar


class LogitSum(ScalarLikelihood, Unbounded):
    """A likelihood that is a sum of softplus functions of its predictor."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True

    @abstractmethod
    def terms(self, y: Scalar) -> Terms:
        """The terms of log p(y | f)."""

    @abstractmethod
    def peak(self, y: Scalar) -> tuple[Scalar, Scalar]:
        """The f at which log p(y | f) is highest, or bends most if it has no maximum, and the width
        there."""

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        slope, counts, thresholds, constant = self.terms(y)
        return slope * f - counts @ jax.nn.softplus(f - thresholds) + constant

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        slope, counts, thresholds, constant = self.terms(y)
        away = mean - thresholds
        plus = jax.vmap(lambda m: logistic.softplus(m, var))(away)
        tail = jax.vmap(lambda m: INTEGRALS.tail(-m, var))(away)
        value = slope * mean - counts @ plus + constant
        return Expected(value, slope - counts @ tail.value, counts @ tail.slope)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        peak = self.peak(y)[0]
        return solve_implicit(lambda m, v: self.expect(y, m, v), mean, var, weight, peak, thorough)

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        centre, width = self.peak(y)
        return log_expect_exp(
            lambda f: weight * self.log_prob(f, y), mean, jnp.sqrt(var), centre, width
        )


class Binomial(LogitSum):
    """Shares y of trials, with log-odds f: the weight of a row is its number of trials.

    log p leaves out the number of ways in which the trials can come out, which does not depend on f.
    """

    support: ClassVar[Support] = SHARES

    def terms(self, y: Scalar) -> Terms:
        one = jnp.ones((1,), jnp.result_type(y))
        return Terms(y, one, 0 * one, jnp.zeros_like(y))

    def peak(self, y: Scalar) -> tuple[Scalar, Scalar]:
        inside = jnp.clip(y, 0.01, 0.99)
        return jnp.log(inside / (1 - inside)), jnp.ones_like(y)

    def moments(self, f: Scalar) -> Moments:
        p = jax.nn.sigmoid(f)
        return p, p * jax.nn.sigmoid(-f)

    def information(self, f: Scalar) -> Scalar:
        return self.moments(f)[1]

    def predict(self, mean: Values, var: Values) -> Moments:
        """The moments of a single trial."""
        p = INTEGRALS.value(-mean, var)
        return p, p * (1 - p)

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return INTEGRALS.tail(mean, var).slope


class NegativeBinomial(LogitSum):
    """Counts y with log-rate f and variance eᶠ + e²ᶠ/r: r is the number of failures, `dispersion` = 1/r."""

    log_link: ClassVar[bool] = True
    support: ClassVar[Support] = COUNTS

    dispersion: Setting = eqx.field(converter=as_setting, default=1.0)

    def terms(self, y: Scalar) -> Terms:
        r = 1 / self.dispersion
        total = jnp.reshape(y + r, (1,))
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        level = jnp.broadcast_to(jnp.log(r), (1,)).astype(total.dtype)
        return Terms(y, total, level, ways - y * jnp.log(r))

    def peak(self, y: Scalar) -> tuple[Scalar, Scalar]:
        count = jnp.maximum(y, 0.5)
        return jnp.log(count), jnp.sqrt(1 / count + self.dispersion)

    def moments(self, f: Scalar) -> Moments:
        rate = jnp.exp(f)
        return rate, rate + self.dispersion * rate**2

    def information(self, f: Scalar) -> Scalar:
        return jax.nn.sigmoid(-f - jnp.log(self.dispersion)) * jnp.exp(f)

    def predict(self, mean: Values, var: Values) -> Moments:
        xp = namespace_of(mean, var)
        rate = xp.exp(mean + var / 2)
        return rate, rate + rate**2 * (xp.expm1(var) + self.dispersion * xp.exp(var))

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        rate = jnp.exp(mean + var / 2)
        return rate + self.dispersion * rate**2 * jnp.exp(var)


class Ordinal(LogitSum):
    """Ordered classes y = 0, 1, …, with P(y > k) = σ(f − cₖ) for increasing cut points c."""

    cut_points: Float[AnyArray, " k"]

    def __init__(self, cut_points):
        found = np.asarray(cut_points, float)
        if found.ndim != 1 or not found.size or np.any(np.diff(found) <= 0):
            raise ValueError(
                "Ordinal needs increasing cut points, one fewer than there are classes; "
                f"got {found.tolist()}."
            )
        self.cut_points = found

    @property
    def support(self) -> Support:
        most = len(self.cut_points)
        return Support(
            f"classes, numbered from 0 to {most}",
            lambda y: (y >= 0) & (y <= most) & (y == np.floor(y)),
        )

    def terms(self, y: Scalar) -> Terms:
        cuts = jnp.asarray(self.cut_points, jnp.result_type(y))
        index = jnp.arange(len(cuts))
        below, above = index == y - 1, index == y  # the cut points on both sides of the class
        lower, upper = below @ cuts, above @ cuts
        inner = (y > 0) & (y < len(cuts))
        gap = jnp.where(inner, upper - lower, 1.0)
        width = jnp.where(inner, jnp.log(-jnp.expm1(-gap)), 0)
        slope, counts = (y > 0).astype(cuts.dtype), (below | above).astype(cuts.dtype)
        return Terms(slope, counts, cuts, width - lower)  # −s(l − f) = f − l − s(f − l)

    def peak(self, y: Scalar) -> tuple[Scalar, Scalar]:
        cuts = jnp.asarray(self.cut_points, jnp.result_type(y))
        ends = jnp.concatenate([cuts[:1] - 1, cuts, cuts[-1:] + 1])
        k = y.astype(int)
        return (ends[k] + ends[k + 1]) / 2, jnp.ones_like(y)

    def moments(self, f: Scalar) -> Moments:
        return _moments(jax.nn.sigmoid(f - jnp.asarray(self.cut_points, jnp.result_type(f))))

    def information(self, f: Scalar) -> Scalar:
        away = f - jnp.asarray(self.cut_points, jnp.result_type(f))
        above, bend = jax.nn.sigmoid(away), jax.nn.sigmoid(away) * jax.nn.sigmoid(-away)
        one, none = jnp.ones((1,), above.dtype), jnp.zeros((1,), above.dtype)
        classes = jnp.concatenate([one, above]) - jnp.concatenate([above, none])
        return bend @ (classes[1:] + classes[:-1])

    def exceeding(self, mean: Values, var: Values) -> Values:
        """P(y > k) for each cut point, on the last axis."""
        xp = namespace_of(mean, var)
        cuts = xp.asarray(self.cut_points, mean.dtype).reshape((1,) * mean.ndim + (-1,))
        away = cuts - mean[..., None]
        return INTEGRALS.value(away, xp.broadcast_to(var[..., None], away.shape))

    def probabilities(self, mean: Values, var: Values) -> Values:
        """The probability of each class, on the last axis."""
        above = self.exceeding(mean, var)
        xp = namespace_of(above)
        edge = xp.ones_like(above[..., :1])
        return xp.concatenate([edge, above], -1) - xp.concatenate([above, 0 * edge], -1)

    def predict(self, mean: Values, var: Values) -> Moments:
        return _moments(self.exceeding(mean, var))

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        def terms(f):
            variance = self.moments(f)[1]
            return Expected(variance, variance, variance)

        middle = jnp.mean(jnp.asarray(self.cut_points, jnp.result_type(mean)))
        return average(terms, mean, var, middle, jnp.ones_like(mean)).value


def _moments(above: Values) -> Moments:
    """Mean and variance of y from P(y > k), k = 0, 1, …: E y = Σ P(y > k), E y² = Σ (2k + 1) P(y > k)."""
    mean = above.sum(-1)
    odd = namespace_of(above).asarray(2 * np.arange(above.shape[-1]) + 1, above.dtype)
    return mean, above @ odd - mean**2
