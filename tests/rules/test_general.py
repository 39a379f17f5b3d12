import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.rules.general import (
    FirstOrder,
    GaussHermite,
    GeneralRVGA,
    Sampling,
    SecondOrder,
    SigmaPoints,
    ZerothOrder,
)
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import Explicit
from kalvi.streams import run
from kalvi.streams.datasets import two_classes
from tests import laws, oracles, problems

FORMS = [SecondOrder(), FirstOrder(), ZerothOrder()]
BINARY = problems.binary(n=12, d=2)
LINEAR = problems.linear(n=12, d=3)


def logistic(theta, x, y):
    return jax.nn.log_sigmoid((2 * y - 1) * (x @ theta))


def gaussian(theta, x, y):
    return -((y - x @ theta) ** 2)  # noise variance one half


def name(value):
    return type(value).__name__


def fit(rule, problem, key=None):
    prior = Dense(problem.mean, problem.cov)
    return run.fit(rule, prior, [problems.batch(problem.x, problem.y)], key=key)


@pytest.mark.parametrize(
    "form",
    [
        FORMS[-1],
        *(
            pytest.param(f, marks=pytest.mark.slow(reason="compiles sixty nested iterations"))
            for f in FORMS[:-1]
        ),
    ],
    ids=name,
)
def test_forms_share_the_implicit_fixed_point(form):
    """Corollary 1.1, corrected: all orders end where the scalar implicit scheme does."""
    state = fit(GeneralRVGA(logistic, form, GaussHermite(40), iterations=60), BINARY)
    scalar = fit(RVGA(Bernoulli()), BINARY).posterior
    assert int(state.unsolved) == 0
    # the scale mixture of the scalar rule is exact to 1e-8
    laws.same_gaussian(state.posterior, np.asarray(scalar.mean), np.asarray(scalar.cov), rtol=1e-7)


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_one_iteration_is_the_explicit_scheme(form):
    state = fit(GeneralRVGA(logistic, form, GaussHermite(40), iterations=1), BINARY)
    scalar = fit(RVGA(Bernoulli(), Explicit()), BINARY).posterior
    laws.same_gaussian(state.posterior, np.asarray(scalar.mean), np.asarray(scalar.cov), rtol=1e-6)


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_sigma_points_are_exact_for_linear_models(form):
    state = fit(GeneralRVGA(gaussian, form, SigmaPoints(), iterations=1), LINEAR)
    mean, cov = oracles.linear_posterior(LINEAR.mean, LINEAR.cov, LINEAR.x, LINEAR.y, 0.5)
    laws.same_gaussian(state.posterior, mean, cov, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_printed_left_factor_is_wrong(form):
    """With the previous precision on the left (eqs. 17 and 19 as printed) the fixed point is missed."""
    q = fit(GeneralRVGA(logistic, form, GaussHermite(40), iterations=60), BINARY).posterior
    row = problems.batch(BINARY.x[:1], BINARY.y[:1])
    rule = GeneralRVGA(logistic, form, GaussHermite(40), iterations=60)
    new = run.fit(rule, q, [row]).posterior
    z, w = GaussHermite(40).standard(2, None)
    theta = np.asarray(new.mean) + z @ np.asarray(new.root).T
    slope = jax.vmap(jax.grad(logistic), (0, None, None))(jnp.asarray(theta), row.x[0], row.y[0])
    cross = (theta - np.asarray(new.mean)).T @ (w[:, None] * np.asarray(slope))
    before, after = np.linalg.inv(q.cov), np.linalg.inv(new.cov)
    np.testing.assert_allclose(after, before - after @ cross, rtol=1e-7)
    assert not np.allclose(after, before - before @ cross, rtol=1e-4)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(f, marks=pytest.mark.slow(reason="compiles an ascent of each form"))
        for f in FORMS[1:]
    ]
    + FORMS[:1],
    ids=name,
)
def test_a_wide_and_wrong_prior_is_no_trap(form):
    """Where plain iteration cycles, two thousand nats away (σ₀ = 100, |μ₀| = 10)."""
    x, y = two_classes(2, 100, 2.0, 2.0, 10)
    rows, prior = problems.batch(x, y), Dense(np.full(2, 50**0.5), 1e4 * np.eye(2))
    state = run.fit(GeneralRVGA(logistic, form, GaussHermite(50)), prior, [rows])
    scalar = run.fit(RVGA(Bernoulli()), prior, [rows]).posterior
    ours, theirs = (
        float(metrics.elbo(q, prior, Bernoulli(), rows)) for q in (state.posterior, scalar)
    )
    assert abs(ours - theirs) < 0.2  # the nodes are far apart beside the slope of σ at first
    assert int(state.unsolved) <= 2


def test_sampling_is_close_and_repeatable():
    rule = GeneralRVGA(logistic, SecondOrder(), Sampling(1000), iterations=15)
    scalar = fit(RVGA(Bernoulli()), BINARY).posterior
    first, again = fit(rule, BINARY, jr.key(0)), fit(rule, BINARY, jr.key(0))
    np.testing.assert_array_equal(first.posterior.mean, again.posterior.mean)
    away = (first.posterior.mean - scalar.mean) / np.sqrt(scalar.variance())
    assert np.max(np.abs(away)) < 0.05  # 2000 antithetic points, 12 rows


def test_sampling_asks_for_a_key():
    with pytest.raises(ValueError, match=r"pass key=jax.random.key\(seed\)"):
        fit(GeneralRVGA(logistic, SecondOrder(), Sampling(10)), BINARY)


def test_an_impossible_row_is_counted_and_skipped():
    def convex(theta, x, y):  # no Gaussian is closest: the precision would be negative at any step
        return 1e30 * (theta @ theta)

    state = fit(GeneralRVGA(convex, SecondOrder(), SigmaPoints(), iterations=1), BINARY)
    assert int(state.unsolved) == 12
    laws.same_gaussian(state.posterior, BINARY.mean, BINARY.cov, rtol=1e-10)


def test_weightless_rows_change_nothing():
    rule = GeneralRVGA(logistic, FirstOrder(), SigmaPoints(), iterations=3)
    prior = Dense(BINARY.mean, BINARY.cov)
    batch = problems.batch(BINARY.x, BINARY.y, np.zeros(12))
    posterior = run.fit(rule, prior, [batch]).posterior
    np.testing.assert_array_equal(posterior.mean, prior.mean)
    np.testing.assert_array_equal(posterior.root, prior.root)
