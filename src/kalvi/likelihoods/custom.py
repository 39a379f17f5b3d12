"""Likelihoods made from a log-probability only, by differentiation and quadrature or by sampling."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods.implicit import average, solve_implicit
from kalvi.likelihoods.likelihood import Likelihood, Moments, Unbounded
from kalvi.likelihoods.sites import Between, Expected, Predictors, Site
from kalvi.numerics import linalg
from kalvi.numerics.expectations import log_expect_exp, panels
from kalvi.numerics.namespaces import Scalar


class Custom(Unbounded):
    """A likelihood from a function log_prob(f, y), by automatic differentiation and quadrature.

    Parameters
    ----------
    log_prob : callable (f, y) -> log p(y | f), twice differentiable in f
    moments : callable f -> (mean, variance) of y given f; needed for predictions and for the EKF
    centre, width : callables of y; where log p bends as a function of f, which helps if predictors are wide
    """

    log_prob_fn: Callable[[Scalar, Scalar], Scalar]
    moments_fn: Callable[[Scalar], Moments]
    centre: Callable[[Scalar], Scalar]
    width: Callable[[Scalar], Scalar]

    def __init__(self, log_prob, moments=None, centre=jnp.zeros_like, width=jnp.ones_like):
        self.log_prob_fn = log_prob
        self.moments_fn = _no_moments if moments is None else moments
        self.centre = centre
        self.width = width

    @property
    def outputs(self) -> int:
        return 1

    @property
    def label_shape(self) -> None:
        return None

    def log_prob(self, f: Scalar, y: Scalar) -> Scalar:
        return self.log_prob_fn(f, y)

    def moments(self, f: Scalar) -> Moments:
        return self.moments_fn(f)

    def information(self, f: Scalar) -> Scalar:
        slope = jax.grad(lambda f: self.moments_fn(f)[0])(f)
        return slope**2 / self.moments_fn(f)[1]

    def expect(self, y: Scalar, mean: Scalar, var: Scalar) -> Expected:
        def terms(f):
            slope = jax.grad(self.log_prob_fn)
            return Expected(self.log_prob_fn(f, y), slope(f, y), -jax.grad(slope)(f, y))

        return average(terms, mean, var, self.centre(y), self.width(y))

    def implicit(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        peak = self.centre(y)
        return solve_implicit(lambda m, v: self.expect(y, m, v), mean, var, weight, peak, thorough)

    def predict(self, mean: Scalar, var: Scalar) -> Moments:
        zero, one = jnp.zeros_like(mean), jnp.ones_like(mean)
        points, weights = panels(mean, jnp.sqrt(var), zero, one)
        means, variances = jax.vmap(lambda f: self.moments_fn(f))(points)
        average = weights @ means
        return average, weights @ (variances + (means - average) ** 2)

    def noise(self, mean: Scalar, var: Scalar) -> Scalar:
        points, weights = panels(mean, jnp.sqrt(var), jnp.zeros_like(mean), jnp.ones_like(mean))
        return weights @ jax.vmap(lambda f: jnp.asarray(self.moments_fn(f)[1], f.dtype))(points)

    def log_predictive(
        self, y: Scalar, mean: Scalar, var: Scalar, weight: Scalar | float = 1.0
    ) -> Scalar:
        return log_expect_exp(
            lambda f: weight * self.log_prob_fn(f, y),
            mean,
            jnp.sqrt(var),
            self.centre(y),
            self.width(y),
        )


class Sampled(Unbounded):
    """A likelihood with expectations as averages over f = mean + A zₖ, where A Aᵀ = var and zₖ are given
    draws.

    Parameters
    ----------
    likelihood : Likelihood
    draws : array of shape (k,), or (k, c) for c predictors; draws of N(0, I)
    """

    likelihood: Likelihood
    draws: Float[Array, "k *c"]

    @property
    def outputs(self) -> int:
        return self.likelihood.outputs

    @property
    def label_shape(self) -> tuple[int, ...] | None:
        return self.likelihood.label_shape

    def log_prob(self, f: Predictors, y: Array) -> Scalar:
        return self.likelihood.log_prob(f, y)

    def moments(self, f: Predictors) -> Moments:
        return self.likelihood.moments(f)

    def information(self, f: Predictors) -> Between:
        return self.likelihood.information(f)

    def expect(self, y: Array, mean: Predictors, var: Between) -> Expected:
        def value(f: Predictors) -> Scalar:
            return self.likelihood.log_prob(f, y)

        if mean.ndim == 0:
            f = mean + jnp.sqrt(var) * self.draws
        else:
            f = mean[None, :] + self.draws @ linalg.semidefinite_root(var).T
        terms = jax.vmap(value)(f), jax.vmap(jax.grad(value))(f), jax.vmap(jax.hessian(value))(f)
        value_mean, gradient, hessian = (jnp.mean(term, axis=0) for term in terms)
        return Expected(value_mean, gradient, -hessian)

    def implicit(
        self, y: Array, mean: Predictors, var: Between, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        raise ValueError(
            "the implicit scheme needs integrals, which samples do not give; "
            "use scheme=Explicit() or MirrorProx() with samples."
        )

    def predict(self, mean: Predictors, var: Between) -> Moments:
        return self.likelihood.predict(mean, var)

    def noise(self, mean: Predictors, var: Between) -> Predictors:
        return self.likelihood.noise(mean, var)

    def log_predictive(
        self, y: Array, mean: Predictors, var: Between, weight: Scalar | float = 1.0
    ) -> Scalar:
        return self.likelihood.log_predictive(y, mean, var, weight)


def _no_moments(f: Scalar) -> Moments:
    raise TypeError(
        "this Custom likelihood was given no moments, so it cannot predict y; "
        "pass moments=lambda f: (mean of y given f, variance of y given f)."
    )
