"""The optimum in function space, against dense algebra, quadrature and SciPy's optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Laplace, Normal, Poisson, Probit, StudentT
from kalvi.rules.klprox.evidence import evidence_gradient
from kalvi.rules.klprox.function_space import (
    LatentPrior,
    Sites,
    climb_sites,
    condition,
    first_sites,
    klprox,
    predict,
    sites_at,
)
from kalvi.rules.klprox.weights import in_function_space
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.rules.vga import vga
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import same_gaussian

N = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
X[1] = X[0]  # a duplicate: K is singular
TRUTH = np.sin(2 * X[:, 0]) + X[:, 1]
BINARY = (RNG.uniform(size=N) < special.expit(2 * TRUTH)).astype(float)
ROUGH = TRUTH + 0.3 * RNG.standard_t(2, size=N)
COUNTS = RNG.poisson(np.exp(TRUTH)).astype(float)
WEIGHT = jnp.ones(N)


def _count(f, y):
    return y * f - np.exp(f) - special.gammaln(y + 1)


LIKELIHOODS = {  # the likelihood, the rows, and log p(y | f) by SciPy
    "bernoulli": (Bernoulli(), BINARY, lambda f, y: special.log_expit((2 * y - 1) * f)),
    "probit": (Probit(), BINARY, lambda f, y: special.log_ndtr((2 * y - 1) * f)),
    "poisson": (Poisson(), COUNTS, _count),
    "laplace": (Laplace(0.3), ROUGH, lambda f, y: stats.laplace.logpdf(y, f, 0.3)),
    "student": (StudentT(3.0, 0.3), ROUGH, lambda f, y: stats.t.logpdf(y, 3, f, 0.3)),
    "normal": (Normal(0.2), ROUGH, lambda f, y: stats.norm.logpdf(y, f, np.sqrt(0.2))),
}


def rbf(log_std=0.5, log_length=0.3, x=X, z=X):
    square = np.sum((x[:, None] - z[None]) ** 2, axis=-1)
    return np.exp(2 * log_std - square / (2 * np.exp(2 * log_length)))


def solve(name, cov, start=None, mean=0.2, max_passes=500, tolerance=1e-14):
    likelihood, y, _ = LIKELIHOODS[name]
    prior = LatentPrior(jnp.full(N, mean), jnp.asarray(cov))
    limits = jnp.asarray(max_passes), jnp.asarray(tolerance)
    return run.call(_klprox, likelihood, prior, jnp.asarray(y), WEIGHT, start, *limits)


def _klprox(likelihood, prior, y, weight, start, max_passes, tolerance):
    return klprox(likelihood, prior, y, weight, start, max_passes=max_passes, tolerance=tolerance)


def dense_law(found, cov):
    """Mean and covariance of the sites by a plain solve."""
    pull, gamma = (np.asarray(a) for a in found.sites)
    matrix = np.eye(N) + cov * gamma[None, :]
    v = np.linalg.solve(matrix, cov)
    return 0.2 + v @ (pull - 0.2 * gamma), v


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sites_are_those_that_their_own_gaussian_asks_for(name):
    cov = rbf()
    found = solve(name, cov)
    _, y, log_prob = LIKELIHOODS[name]
    mean, v = dense_law(found, cov)
    assert found.converged
    np.testing.assert_allclose(found.mean, mean, atol=1e-10)
    np.testing.assert_allclose(found.var, np.diag(v), rtol=1e-9)
    np.testing.assert_allclose(found.mean, 0.2 + cov @ found.coefficients, atol=1e-11)
    # Stein's identities turn the derivatives of log p into moments of log p itself
    for i in (0, 5, 11):
        m, s2, cut = mean[i], v[i, i], oracles.around(y[i] if y is ROUGH else 0.0)
        away = oracles.expect(lambda f: log_prob(f, y[i]) * (f - m), m, s2, cut) / s2  # noqa: B023
        bend = oracles.expect(
            lambda f: log_prob(f, y[i]) * ((f - m) ** 2 / s2 - 1),  # noqa: B023
            m,
            s2,
            cut,
        )
        np.testing.assert_allclose(found.coefficients[i], away, atol=2e-6)
        np.testing.assert_allclose(found.sites.curvature[i], -bend / s2, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["bernoulli", "student"])
def test_bound_is_its_definition(name):
    cov = rbf(0.4, -0.5) + 1e-6 * np.eye(N)  # so that a dense KL exists
    found = solve(name, cov)
    _, y, log_prob = LIKELIHOODS[name]
    mean, v = dense_law(found, cov)
    fit = sum(
        oracles.expect(lambda f: log_prob(f, y[i]), mean[i], v[i, i], oracles.around(y[i]))  # noqa: B023
        for i in range(N)
    )
    bound = fit - oracles.gaussian_kl(mean, v, np.full(N, 0.2), cov)
    np.testing.assert_allclose(found.elbo, bound, atol=1e-6)


def test_optimum_is_that_of_lbfgs_over_means_and_cholesky_factors():
    rows = slice(2, 6)
    cov = rbf()[rows, rows]
    prior = LatentPrior(jnp.full(4, 0.2), jnp.asarray(cov))
    found = run.call(klprox, Bernoulli(), prior, jnp.asarray(BINARY[rows]), jnp.ones(4))
    mean, v, elbo = oracles.batch_vga(
        LIKELIHOODS["bernoulli"][2],
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
        np.full(4, 0.2),
        cov,
        np.eye(4),
        BINARY[rows],
    )
    np.testing.assert_allclose(found.elbo, elbo, atol=1e-6)
    np.testing.assert_allclose(found.mean, mean, atol=2e-4)
    np.testing.assert_allclose(found.var, np.diag(v), rtol=1e-3)


@pytest.mark.parametrize("name", LIKELIHOODS)
@settings(max_examples=8)
@given(log_std=st.floats(-1, 6), log_length=st.floats(-1, 6))
def test_bound_never_falls_and_the_stopping_rule_bounds_its_gap(name, log_std, log_length):
    cov = rbf(log_std, log_length)
    bounds = [float(solve(name, cov, max_passes=k).elbo) for k in (1, 2, 3, 5, 8, 13, 40)]
    best = float(solve(name, cov).elbo)
    rounding = 1e-14 * N * np.exp(2 * log_std) * np.max(np.abs(ROUGH)) / 0.09 + 1e-9
    assert np.all(np.diff([*bounds, best]) >= -rounding), bounds
    for tolerance in (1e-2, 1e-6):
        found = solve(name, cov, tolerance=tolerance)
        # one that is not log-concave has other optima; the norm is the gap's up to a small factor only: 3.7
        # was seen for counts under a prior deviation of e⁵
        if name != "student":
            assert found.converged
            assert best - float(found.elbo) <= 10 * tolerance + rounding


def test_student_converges_with_negative_curvatures():
    found = solve("student", rbf(1.0, 0.0))
    assert found.converged
    assert int(jnp.sum(found.sites.curvature < 0)) >= 2
    v = dense_law(found, rbf(1.0, 0.0))[1]
    assert np.all(np.linalg.eigvalsh((v + v.T) / 2) > -1e-12)


@pytest.mark.parametrize("name", ["bernoulli", "student"])
def test_predictions_are_those_of_dense_algebra(name):
    cov, new = rbf(1.0, 0.0), RNG.normal(size=(5, 2))
    found = solve(name, cov)
    cross = rbf(1.0, 0.0, new, X)
    prior, factors = (
        LatentPrior(jnp.full(N, 0.2), jnp.asarray(cov)),
        run.call(condition, jnp.asarray(cov), found.sites.curvature),
    )
    told = jnp.full(5, 0.2), jnp.full(5, np.exp(2.0))
    mean, var = run.call(predict, prior, found, factors, jnp.asarray(cross), *told)
    pull, gamma = (np.asarray(a) for a in found.sites)
    shrink = np.linalg.solve(np.eye(N) + gamma[:, None] * cov, np.diag(gamma))
    np.testing.assert_allclose(var, np.exp(2.0) - np.diag(cross @ shrink @ cross.T), rtol=1e-9)
    weights = np.linalg.solve(np.eye(N) + gamma[:, None] * cov, pull - 0.2 * gamma)
    np.testing.assert_allclose(mean, 0.2 + cross @ weights, atol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "laplace",
        pytest.param(
            "student", marks=pytest.mark.slow(reason="compiles an optimum and its gradient")
        ),
    ],
)
def test_gradient_of_the_optimal_bound(name):
    """Against differences of optima found again, for kernel, mean and likelihood."""
    _, y, _ = LIKELIHOODS[name]
    made = Laplace if name == "laplace" else StudentT
    start = np.array([0.5, 0.3, 0.2, *([1.0] if name == "student" else []), -1.0])
    square = jnp.asarray(np.sum((X[:, None] - X[None]) ** 2, axis=-1))

    def model(theta):
        cov = jnp.exp(2 * theta[0] - square / (2 * jnp.exp(2 * theta[1])))
        prior = LatentPrior(jnp.full(N, theta[2]), cov)
        likelihood = made(*jnp.exp(theta[3:]))
        return likelihood, prior, klprox(likelihood, prior, jnp.asarray(y), WEIGHT, tolerance=1e-16)

    def slopes(theta):
        likelihood, prior, found = model(theta)
        factors = condition(prior.cov, found.sites.curvature)
        by = evidence_gradient(likelihood, prior, jnp.asarray(y), WEIGHT, found, factors)
        pull = jax.vjp(lambda t: model(t)[1].cov, theta)[1](by.cov)[0][:2]
        pairs = zip(jax.tree.leaves(likelihood), jax.tree.leaves(by.likelihood), strict=True)
        logs = jnp.stack([value * slope for value, slope in pairs])
        return jnp.concatenate([pull, jnp.sum(by.mean)[None], logs])

    best = jax.jit(lambda theta: model(theta)[2].elbo)
    steps = 1e-4 * np.eye(len(start))
    differences = [(best(start + h) - best(start - h)) / 2e-4 for h in steps]
    found = run.call(slopes, jnp.asarray(start))
    np.testing.assert_allclose(found, differences, rtol=2e-6, atol=2e-6)


def test_what_is_kept_of_the_last_pass_gives_the_same_gradient():
    likelihood, y, _ = LIKELIHOODS["bernoulli"]
    prior = LatentPrior(np.full(N, 0.2), rbf())
    args = likelihood, prior, y, np.asarray(WEIGHT)

    def slopes(likelihood, prior, y, weight):
        start = first_sites(likelihood, prior.mean, y, weight)
        limits = {"max_passes": 100, "tolerance": 1e-12}
        found, kept = climb_sites(likelihood, prior, y, weight, start, keep=True, **limits)
        factors = condition(prior.cov, found.sites.curvature, log_concave=True)
        plain = evidence_gradient(likelihood, prior, y, weight, found, factors)
        return plain, evidence_gradient(
            likelihood, prior, y, weight, found, kept.factors, kept.inverse
        )

    plain, again = run.call(slopes, *args)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_normal_noise_takes_one_pass():
    y, weight = np.linspace(-1, 2, N), np.asarray(WEIGHT)
    prior = LatentPrior(np.full(N, 0.2), rbf() + 1e-8 * np.eye(N))
    found = run.call(_klprox, Normal(0.5), prior, y, weight, None, np.array(500), np.array(1e-12))
    gamma = weight / 0.5
    mean = 0.2 + prior.cov @ np.linalg.solve(
        np.eye(N) + gamma[:, None] * prior.cov, gamma * (y - 0.2)
    )
    assert found.converged and found.passes == 1
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)


def test_weights_count_rows_and_none_is_no_row():
    """Against L-BFGS over Cholesky factors, the rows repeated."""
    cov, weight = rbf(x=X[2:6], z=X[2:6]), np.array([2.0, 0.0, 1.0, 1.0])
    y = np.array([1.0, 1.0, 0.0, 1.0])
    prior = LatentPrior(jnp.zeros(4), jnp.asarray(cov))
    found = run.call(klprox, Bernoulli(), prior, jnp.asarray(y), jnp.asarray(weight))
    repeated = np.repeat(np.arange(4), weight.astype(int))
    mean, dense, elbo = oracles.batch_vga(
        LIKELIHOODS["bernoulli"][2],
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
        np.zeros(4),
        cov,
        np.eye(4)[repeated],
        y[repeated],
        nodes=40,
    )
    np.testing.assert_allclose(found.elbo, elbo, atol=1e-6)
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.var, np.diag(dense), atol=1e-4)
    assert float(found.sites.curvature[1]) == 0


@pytest.mark.slow(reason="compiles the optimum of two numbers of rows")
def test_rows_of_weight_zero_change_nothing_and_weights_are_repeats():
    cov, y = rbf(), jnp.asarray(BINARY)
    weight = jnp.where(jnp.arange(N) < 4, 0.0, WEIGHT).at[10].set(2.0)
    prior = LatentPrior(jnp.zeros(N), jnp.asarray(cov))
    found = run.call(klprox, Bernoulli(), prior, y, weight)
    rows = [*range(4, N), 10]
    repeated = LatentPrior(jnp.zeros(len(rows)), jnp.asarray(cov[np.ix_(rows, rows)]))
    again = run.call(klprox, Bernoulli(), repeated, y[jnp.asarray(rows)], jnp.ones(len(rows)))
    np.testing.assert_allclose(found.elbo, again.elbo, atol=1e-8)
    np.testing.assert_allclose(found.mean[4:], again.mean[: N - 4], atol=1e-4)
    assert np.all(np.asarray(found.sites.curvature[:4]) == 0)


def test_float32_agrees_with_float64_where_the_kernel_is_all_but_singular():
    cov = rbf(3.0, 3.0)
    sharp = solve("bernoulli", cov)
    prior = LatentPrior(jnp.full(N, 0.2, jnp.float32), jnp.asarray(cov, jnp.float32))
    y = jnp.asarray(BINARY, jnp.float32)
    found = run.call(klprox, Bernoulli(), prior, y, jnp.ones(N, jnp.float32))
    assert found.mean.dtype == jnp.float32
    assert found.converged
    std = np.sqrt(sharp.var)
    assert np.max(np.abs(found.mean - sharp.mean) / std) < 0.02
    np.testing.assert_allclose(np.sqrt(found.var), std, rtol=0.02)


@pytest.mark.parametrize(
    "structure",
    [
        "diagonal",
        *(
            pytest.param(s, marks=pytest.mark.slow(reason="compiles the optima of both spaces"))
            for s in ("dense", "low rank")
        ),
    ],
)
def test_weight_space_and_function_space_have_one_optimum(structure):
    p = problems.binary(12, 20)
    var = np.linspace(0.5, 2, 20)
    prior = {
        "dense": lambda: Dense(p.mean, p.cov),
        "diagonal": lambda: Diagonal(p.mean, var),
        "low rank": lambda: LowRankPrecision(p.mean, RNG.normal(size=(20, 2)), 1 / var),
    }[structure]()
    batch = problems.batch(p.x, p.y)
    found = run.call(_weights, Bernoulli(), prior, batch, None)
    known = run.call(vga, Bernoulli(), prior.to_dense(), batch, prior.to_dense())
    np.testing.assert_allclose(found.elbo, known.elbo, atol=1e-9)
    same_gaussian(found.posterior, known.posterior.mean, known.posterior.cov, rtol=1e-6)


def _weights(likelihood, prior, batch, start):
    return in_function_space(likelihood, prior, batch, start, max_passes=500, tolerance=1e-16)


@pytest.mark.slow(reason="compiles two streams and three optima")
def test_starts_from_a_stream_and_hands_over_to_one():
    p = problems.binary(12, 20)
    prior, batch = Diagonal(p.mean, np.ones(20)), problems.batch(p.x, p.y)
    stream = run.fit(RVGA(Bernoulli(), EKF()), prior.to_dense(), [batch]).posterior
    cold, warm = (run.call(_weights, Bernoulli(), prior, batch, s) for s in (None, stream))
    np.testing.assert_allclose(warm.elbo, cold.elbo, atol=1e-9)
    law = batch.x @ stream.mean, stream.marginal_variance(batch.x)
    sites = run.call(sites_at, Bernoulli(), *law, batch.y, batch.weight)
    latent = LatentPrior(*prior.marginal(batch.x))
    first = run.call(klprox, Bernoulli(), latent, batch.y, batch.weight, Sites(*sites))
    np.testing.assert_allclose(first.elbo, cold.elbo, atol=1e-8)
    after = run.fit(RVGA(Bernoulli(), EKF()), warm.posterior.to_dense(), [batch])
    assert np.all(np.asarray(after.posterior.variance()) < np.asarray(warm.posterior.variance()))
