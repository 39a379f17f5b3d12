"""Likelihoods of one predictor: normal, logistic, probit, Poisson, gamma, Laplace and Student t."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, gammaln, log_ndtr, ndtr
from jaxtyping import Float

from kalvi.likelihoods import logistic
from kalvi.likelihoods.implicit import average, solve_implicit, solve_poisson
from kalvi.likelihoods.likelihood import (
    BINARY,
    COUNTS,
    POSITIVE,
    Moments,
    ScalarLikelihood,
    Support,
    Unbounded,
)
from kalvi.likelihoods.logistic import LogisticIntegrals, ScaleMixture
from kalvi.likelihoods.sites import Expected, Site
from kalvi.numerics.expectations import log_expect_exp, mills_ratio
from kalvi.numerics.namespaces import (
    AnyArray,
    Scalar,
    Setting,
    Values,
    as_setting,
    namespace_of,
    scipy_of,
)


class Normal(ScalarLikelihood):
    """y = f + noise of the given variance; every scheme is then the Kalman filter."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True
    noisy: ClassVar[bool] = True

    variance: Setting = eqx.field(converter=as_setting, default=1.0)

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return _normal_log_density(y - f, self.variance)

    def moments(self, f: Scalar) -> Moments:
        return f, self.variance

    def information(self, f: Scalar) -> Scalar:
        return 1 / self.variance

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        value = self.log_prob(mean, y) - var / (2 * self.variance)
        return Expected(value, (y - mean) / self.variance, 1 / self.variance)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        step = weight * (y - mean) / (self.variance + weight * var)
        return Site(step, weight / self.variance, jnp.asarray(True))

    def predict(self, mean: Values, var: Values) -> Moments:
        return mean, var + self.variance

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return jnp.broadcast_to(self.variance, jnp.shape(mean))

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        shared = self.variance + weight * var
        spread = (weight - 1) * jnp.log(self.variance) + jnp.log(shared)
        constant = weight * float(np.log(2 * np.pi))
        return -(weight * (y - mean) ** 2 / shared + spread + constant) / 2

    def bound(self, y: Scalar) -> tuple[Scalar, Scalar]:
        return y, jnp.zeros_like(y)

    def bound_curvature(self, z: Scalar) -> Scalar:
        return 1 / self.variance


class Bernoulli(ScalarLikelihood):
    """y ∈ {0, 1} with log-odds f; `integrals` chooses the accurate or the paper's Gaussian integrals."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True
    support: ClassVar[Support] = BINARY

    integrals: LogisticIntegrals = ScaleMixture()

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return jax.nn.log_sigmoid((2 * y - 1) * f)

    def moments(self, f: Scalar) -> Moments:
        p = jax.nn.sigmoid(f)
        return p, p * jax.nn.sigmoid(-f)

    def information(self, f: Scalar) -> Scalar:
        return jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        sign = 2 * y - 1
        tail = self.integrals.tail(sign * mean, var)
        return Expected(-logistic.softplus(-sign * mean, var), sign * tail.value, tail.slope)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        sign = 2 * y - 1
        margin = self.integrals.implicit(sign * mean, var, weight, thorough=thorough)
        return Site(weight * sign * margin.tail, weight * margin.slope, margin.solved)

    def predict(self, mean: Values, var: Values) -> Moments:
        p = self.integrals.value(-mean, var)
        return p, p * (1 - p)

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return self.integrals.tail(mean, var).slope

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        return weight * logistic.log_sigmoid((2 * y - 1) * mean, var)

    def bound(self, y: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.zeros_like(y), y - 0.5

    def bound_curvature(self, z: Scalar) -> Scalar:
        small = z < 1e-2
        safe = jnp.where(small, 1.0, z)
        return jnp.where(small, 0.25 - z**2 / 48, jnp.tanh(safe / 2) / (2 * safe))


class Probit(ScalarLikelihood, Unbounded):
    """y ∈ {0, 1} with P(y = 1) = Φ(f)."""

    log_concave: ClassVar[bool] = True
    support: ClassVar[Support] = BINARY

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return log_ndtr((2 * y - 1) * f)

    def moments(self, f: Scalar) -> Moments:
        return ndtr(f), ndtr(f) * ndtr(-f)

    def information(self, f: Scalar) -> Scalar:
        return jnp.exp(-(f**2) - log_ndtr(f) - log_ndtr(-f)) / (2 * np.pi)

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        def terms(f):
            a = (2 * y - 1) * f
            ratio, excess = mills_ratio(a)
            return Expected(log_ndtr(a), (2 * y - 1) * ratio, ratio * excess)

        return average(terms, mean, var, jnp.zeros_like(mean), jnp.ones_like(mean))

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        return solve_implicit(lambda m, v: self.expect(y, m, v), mean, var, weight, mean, thorough)

    def predict(self, mean: Values, var: Values) -> Moments:
        u = mean / namespace_of(mean, var).sqrt(1 + var)
        p, other = (scipy_of(u).special.ndtr(a) for a in (u, -u))
        return p, p * other

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        def terms(f):
            return Expected(ndtr(f) * ndtr(-f), f, f)

        return average(terms, mean, var, jnp.zeros_like(mean), jnp.ones_like(mean)).value

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        return weight * log_ndtr((2 * y - 1) * mean / jnp.sqrt(1 + var))


class Poisson(ScalarLikelihood, Unbounded):
    """Counts y with log-rate f."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    support: ClassVar[Support] = COUNTS

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return y * f - jnp.exp(f) - gammaln(y + 1)

    def moments(self, f: Scalar) -> Moments:
        return jnp.exp(f), jnp.exp(f)

    def information(self, f: Scalar) -> Scalar:
        return jnp.exp(f)

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        rate = jnp.exp(mean + var / 2)
        return Expected(y * mean - rate - gammaln(y + 1), y - rate, rate)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        return solve_poisson(y, mean, var, weight, thorough)

    def predict(self, mean: Values, var: Values) -> Moments:
        xp = namespace_of(mean, var)
        rate = xp.exp(mean + var / 2)
        return rate, rate + rate**2 * xp.expm1(var)

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return jnp.exp(mean + var / 2)

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        count = jnp.maximum(y, 0.5)
        centre, width = jnp.log(count), jax.lax.rsqrt(count)
        return log_expect_exp(
            lambda f: weight * self.log_prob(f, y), mean, jnp.sqrt(var), centre, width
        )


class Gamma(ScalarLikelihood, Unbounded):
    """Positive y with log-mean f and variance e²ᶠ/shape; shape 1 is the exponential distribution.

    With g = log(shape y) − f, log p(y | f) = shape g − eᵍ + const: that of a Poisson count `shape` in g.
    """

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    support: ClassVar[Support] = POSITIVE

    shape: Setting = eqx.field(converter=as_setting, default=1.0)

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return self._constant(y) - self.shape * (f + y * jnp.exp(-f))

    def _constant(self, y: Scalar) -> Scalar:
        a = self.shape
        return a * jnp.log(a) - gammaln(a) + (a - 1) * jnp.log(y)

    def moments(self, f: Scalar) -> Moments:
        return jnp.exp(f), jnp.exp(2 * f) / self.shape

    def information(self, f: Scalar) -> Scalar:
        return self.shape + jnp.zeros_like(f)

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        bend = self.shape * y * jnp.exp(var / 2 - mean)
        return Expected(self._constant(y) - self.shape * mean - bend, bend - self.shape, bend)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        count = jnp.broadcast_to(jnp.asarray(self.shape, mean.dtype), mean.shape)
        site = solve_poisson(count, jnp.log(self.shape * y) - mean, var, weight, thorough)
        return site._replace(step=-site.step)

    def predict(self, mean: Values, var: Values) -> Moments:
        xp = namespace_of(mean, var)
        rate = xp.exp(mean + var / 2)
        return rate, rate**2 * (xp.expm1(var) + xp.exp(var) / self.shape)

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return jnp.exp(2 * mean + 2 * var) / self.shape

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        width = jnp.broadcast_to(1 / jnp.sqrt(self.shape), mean.shape).astype(mean.dtype)
        return log_expect_exp(
            lambda f: weight * self.log_prob(f, y), mean, jnp.sqrt(var), jnp.log(y), width
        )


class Laplace(ScalarLikelihood):
    """y = f + double-exponential noise of the given scale b: median regression."""

    log_concave: ClassVar[bool] = True
    closed: ClassVar[bool] = True

    scale: Setting = eqx.field(converter=as_setting, default=1.0)

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return -jnp.abs(y - f) / self.scale - jnp.log(2 * self.scale)

    def moments(self, f: Scalar) -> Moments:
        return f, 2 * self.scale**2

    def information(self, f: Scalar) -> Scalar:
        return self.scale**-2

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        away = mean - y
        std = jnp.sqrt(jnp.maximum(var, jnp.finfo(var.dtype).tiny))
        z = away / std
        density = jnp.exp(-(z**2) / 2) / float(np.sqrt(2 * np.pi))
        sign = erf(z / float(np.sqrt(2)))
        value = -(away * sign + 2 * std * density) / self.scale - jnp.log(2 * self.scale)
        return Expected(value, -sign / self.scale, 2 * density / (std * self.scale))

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        return solve_implicit(lambda m, v: self.expect(y, m, v), mean, var, weight, y, thorough)

    def predict(self, mean: Values, var: Values) -> Moments:
        return mean, var + 2 * self.scale**2

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return jnp.broadcast_to(2 * self.scale**2, jnp.shape(mean))

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        # ∫ N e^{−w|y−f|/b}: one shifted half-Gaussian on each side of y
        std = jnp.sqrt(jnp.maximum(var, jnp.finfo(var.dtype).tiny))
        away, shift = (mean - y) / std, weight * std / self.scale
        above = -away * shift + log_ndtr(away - shift)
        below = away * shift + log_ndtr(-away - shift)
        return jnp.logaddexp(above, below) + shift**2 / 2 - weight * jnp.log(2 * self.scale)

    def bound(self, y: Scalar) -> tuple[Scalar, Scalar]:
        return y, jnp.zeros_like(y)

    def bound_curvature(self, z: Scalar) -> Scalar:
        return 1 / (self.scale * jnp.maximum(z, jnp.finfo(z.dtype).tiny))


class StudentT(ScalarLikelihood):
    """y = f + heavy-tailed noise; not log-concave, so its curvature is negative for outliers.

    A stream sets negative curvatures to 0 and counts their rows.
    """

    df: Setting = eqx.field(converter=as_setting, default=4.0)
    scale: Setting = eqx.field(converter=as_setting, default=1.0)

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        nu = self.df
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - jnp.log(nu * np.pi) / 2
        square = ((y - f) / self.scale) ** 2 / nu
        return constant - jnp.log(self.scale) - (nu + 1) / 2 * jnp.log1p(square)

    def moments(self, f: Scalar) -> Moments:
        return f, self._variance()

    def _variance(self) -> Float[AnyArray, ""]:
        xp, wide = namespace_of(self.df, self.scale), self.df > 2
        variance = self.scale**2 * self.df / xp.where(wide, self.df - 2, 1.0)
        return xp.where(wide, variance, xp.inf)

    def information(self, f: Scalar) -> Scalar:
        return (self.df + 1) / ((self.df + 3) * self.scale**2)

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        width = self.scale**2 * self.df

        def terms(f):
            away = f - y
            share = (self.df + 1) / (width + away**2)
            curvature = share * (width - away**2) / (width + away**2)
            return Expected(self.log_prob(f, y), -share * away, curvature)

        return average(terms, mean, var, y, self.scale)

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        return solve_implicit(lambda m, v: self.expect(y, m, v), mean, var, weight, y, thorough)

    def predict(self, mean: Values, var: Values) -> Moments:
        return mean, var + self._variance()

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        return jnp.broadcast_to(self._variance(), jnp.shape(mean))

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        return log_expect_exp(
            lambda f: weight * self.log_prob(f, y), mean, jnp.sqrt(var), y, self.scale
        )

    def bound(self, y: Scalar) -> tuple[Scalar, Scalar]:
        return y, jnp.zeros_like(y)

    def bound_curvature(self, z: Scalar) -> Scalar:
        return (self.df + 1) / (self.df * self.scale**2 + z**2)


def _normal_log_density(away: Scalar, variance: Setting) -> Scalar:
    return -(away**2 / variance + jnp.log(2 * np.pi * variance)) / 2
