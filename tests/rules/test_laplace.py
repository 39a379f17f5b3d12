import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli, Poisson, Probit
from kalvi.likelihoods.vector import Softmax
from kalvi.predictors import linear_predictor
from kalvi.rules.laplace import laplace
from kalvi.rules.vga import vga
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import same_gaussian
from tests.problems import batch
from tests.tables import BY_NAME, NOISY, name, task

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


@pytest.mark.parametrize(
    "name",
    [
        "poisson",
        *(
            pytest.param(n, marks=pytest.mark.slow(reason="a Hessian operation by operation"))
            for n in CASES
            if n != "poisson"
        ),
    ],
)
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


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_exact_for_a_linear_model(observed):
    p = task(observed, 40, 4 // observed.outputs)
    predictor = linear_predictor(observed.outputs)
    found = run.call(_laplace, observed.likelihood, predictor, p.prior, batch(p.x, p.y))
    same_gaussian(found.posterior, *oracles.linear_posterior(*p.linear), 1e-10)
    # the log joint at the mode plus the Gaussian's volume is the evidence
    volume = found.posterior.logdet() / 2 + 2 * np.log(2 * np.pi)
    wanted = oracles.linear_log_evidence(*p.linear)
    np.testing.assert_allclose(found.log_joint + volume, wanted, rtol=1e-11)


def _laplace(likelihood, predictor, prior, rows):
    return laplace(likelihood, prior, rows, predictor=predictor)


def test_classes_against_scipys_mode_and_a_dense_hessian():
    """A softmax of three classes, its weights those of a Newton iteration that knows no row."""
    observed = BY_NAME["softmax"]
    p, weight = task(observed, 12), np.linspace(0, 2, 12)
    rows = batch(p.x, p.y, weight)
    found = run.call(_laplace, observed.likelihood, linear_predictor(3), p.prior, rows)
    inverse, design = np.linalg.inv(p.cov), p.design

    def parts(theta):
        """Minus the log joint density, its gradient and its Hessian, summed over the rows in NumPy."""
        value, gradient, hessian = 0.0, inverse @ (theta - p.mean), inverse.copy()
        value += (theta - p.mean) @ gradient / 2 + np.linalg.slogdet(2 * np.pi * p.cov)[1] / 2
        for row, y, w in zip(design, p.y, weight, strict=True):
            f = row @ theta
            value -= w * observed.log_prob(f, y)
            gradient = gradient - w * row.T @ (np.eye(3)[int(y)] - special.softmax(f))
            hessian = hessian + w * row.T @ observed.fisher(f) @ row
        return value, gradient, hessian

    best = optimize.minimize(
        lambda t: parts(t)[0],
        p.mean,
        jac=lambda t: parts(t)[1],
        hess=lambda t: parts(t)[2],
        method="trust-exact",
        options={"gtol": 1e-12},
    )
    assert found.converged
    np.testing.assert_allclose(found.posterior.mean, best.x, atol=1e-9)
    cov = np.linalg.inv(parts(best.x)[2])
    np.testing.assert_allclose(found.posterior.cov, cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.log_joint, -best.fun, rtol=1e-11)


@pytest.mark.parametrize(
    "fit",
    [laplace, lambda likelihood, prior, rows: vga(likelihood, prior, rows, prior)],
    ids=["laplace", "vga"],
)
def test_a_predictor_of_other_outputs_is_refused(fit):
    p = task(BY_NAME["softmax"], 4)
    with pytest.raises(ValueError, match="Linear gives 1 numbers for an input and Softmax needs 3"):
        fit(Softmax(3), p.prior, batch(p.x, p.y))


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
