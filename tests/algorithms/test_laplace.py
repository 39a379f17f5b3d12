import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi import run
from kalvi.algorithms.laplace import laplace
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli, Normal, Poisson, Probit
from tests import oracles, problems
from tests.laws import same_gaussian
from tests.problems import batch

CASES = {
    "bernoulli": (Bernoulli(), problems.binary()),
    "probit": (Probit(), problems.binary()),
    "poisson": (Poisson(), problems.counts()),
}


def log_joint(likelihood, p, weight):
    """The log joint density of θ and the labels, written plainly."""
    inverse = jnp.asarray(np.linalg.inv(p.cov))
    constant = np.linalg.slogdet(2 * np.pi * p.cov)[1] / 2

    def density(theta):
        terms = jax.vmap(likelihood.log_prob)(jnp.asarray(p.x) @ theta, jnp.asarray(p.y))
        away = theta - p.mean
        return jnp.asarray(weight) @ terms - away @ inverse @ away / 2 - constant

    return density


@pytest.mark.parametrize("name", CASES)
def test_gradient_vanishes_and_covariance_is_the_inverse_hessian(name):
    likelihood, p = CASES[name]
    weight = np.linspace(0, 2, len(p.y))
    found = run.call(laplace, likelihood, Dense(p.mean, p.cov), batch(p.x, p.y, weight))
    density = log_joint(likelihood, p, weight)
    mode = found.posterior.mean
    assert found.converged
    gradient, cov = jax.grad(density)(mode), np.linalg.inv(-jax.hessian(density)(mode))
    assert gradient @ cov @ gradient < 1e-15  # Newton's decrement, rounding of the log density
    np.testing.assert_allclose(found.posterior.cov, cov, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.log_joint, density(mode), rtol=1e-12)


def test_exact_for_a_linear_model():
    p = problems.linear()
    found = run.call(laplace, Normal(0.5), Dense(p.mean, p.cov), batch(p.x, p.y))
    same_gaussian(found.posterior, *oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5), 1e-10)
    # the log joint at the mode plus the Gaussian's volume is the evidence
    volume = found.posterior.logdet() / 2 + 2 * np.log(2 * np.pi)
    wanted = oracles.linear_log_evidence(p.mean, p.cov, p.x, p.y, 0.5)
    np.testing.assert_allclose(found.log_joint + volume, wanted, rtol=1e-11)


def test_separable_data_with_a_flat_prior():
    p = problems.binary()
    x, y = 100 * p.x, (p.x[:, 0] > 0).astype(float)
    prior = Dense(np.zeros(4), 1e4 * np.eye(4))
    found = run.call(laplace, Bernoulli(), prior, batch(x, y))
    assert found.converged
    flat = problems.Problem(x, y, np.zeros(4), 1e4 * np.eye(4))
    gradient = jax.grad(log_joint(Bernoulli(), flat, np.ones(40)))(found.posterior.mean)
    # in the prior's own coordinates, whose unit is a deviation of 100
    assert np.max(np.abs(gradient)) * 100 < 1e-6


def test_stopping_early_says_so():
    p = problems.binary()
    args = (Bernoulli(), Dense(p.mean, p.cov), batch(p.x, p.y))
    early = laplace(*args, max_steps=1)
    assert not early.converged and int(early.steps) == 1
