"""Appendix B of the L-RVGA paper and Theorem 4 of the R-VGA paper, against eigenvectors and optimisers."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy import stats

from kalvi.likelihoods import Bernoulli
from papers import exponential_family as family
from papers import lrvga_fixed_points as points

random = np.random.default_rng(4)
TRUE = random.normal(size=(8, 2))
ROWS = random.multivariate_normal(
    np.zeros(8), TRUE @ TRUE.T + np.diag(random.uniform(0.5, 2, 8)), 400
)
S = ROWS.T @ ROWS / 400


def climbed(step, start, times):
    for _ in range(times):
        start = step(S, *start)
    return start


def test_the_two_fixed_points_are_one():
    """Proposition 1, both ways, and the likelihood never falls under EM."""
    start = random.normal(size=(8, 2)), np.ones(8)
    heights = []
    for _ in range(50):
        heights.append(points.log_likelihood(S, *start))
        start = points.em_step(S, *start)
    assert np.all(np.diff(heights) > -1e-12)
    optimum = climbed(points.em_step, start, 20_000)
    for step in (points.em_step, points.likelihood_step):
        for new, old in zip(step(S, *optimum), optimum, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-8)


def test_maximum_likelihood_of_ppca_is_a_fixed_point_of_both():
    """With Ψ = σ² I kept, both iterations stand still at Tipping and Bishop's closed form."""
    factor, noise = points.ppca(S, 2)
    for step in (points.em_step, points.likelihood_step):
        np.testing.assert_allclose(step(S, factor, np.full(8, noise))[0], factor, rtol=1e-8)


@pytest.mark.parametrize("step", [points.power_step, points.em_pca_step])
def test_without_noise_they_find_the_leading_eigenvectors(step):
    """Corollary 1: the power method and EM-PCA."""
    factor = random.normal(size=(8, 2))
    for _ in range(2001):
        factor = step(S, factor)
    basis = np.linalg.qr(factor)[0]
    leading = np.linalg.eigh(S)[1][:, -2:]
    np.testing.assert_allclose(basis @ basis.T, leading @ leading.T, atol=1e-8)


def test_the_limits_are_those_of_little_noise():
    """Eqs. 94 and 97 from 93 and 96."""
    factor, tiny = random.normal(size=(8, 2)), np.full(8, 1e-9)
    for step, limit in (
        (points.likelihood_step, points.power_step),
        (points.em_step, points.em_pca_step),
    ):
        np.testing.assert_allclose(step(S, factor, tiny)[0], limit(S, factor), rtol=1e-4)


def test_em_pca_is_roweis():
    """Eqs. 98-99 with S = Y Yᵀ."""
    factor, y = random.normal(size=(8, 2)), np.linalg.cholesky(S)
    x = np.linalg.solve(factor.T @ factor, factor.T @ y)
    np.testing.assert_allclose(
        points.em_pca_step(S, factor), y @ x.T @ np.linalg.inv(x @ x.T), rtol=1e-9
    )


@pytest.mark.slow(reason="an optimum for each of many rows")
def test_theorem_4_for_normals_is_the_implicit_scheme():
    theta = np.linspace(-30, 30, 6001)
    normal, before = family.normal(theta), np.array([0.5 / 4, -1 / 8])  # N(0.5, 4)
    eta = family.implicit(normal, before, -np.logaddexp(0, -theta))
    var, mean = -0.5 / eta[1], -0.5 * eta[0] / eta[1]
    one, zero = jnp.asarray(1.0), jnp.asarray(0.5)
    site = Bernoulli().implicit(one, zero, jnp.asarray(4.0), one)
    assert mean == pytest.approx(0.5 + 4 * float(site.step), rel=1e-6)
    assert var == pytest.approx(4 / (1 + 4 * float(site.curvature)), rel=1e-6)


@pytest.mark.slow(reason="an optimum for each of many rows")
def test_theorem_4_for_gammas_is_the_optimum():
    """A positive θ seen through y = log θ + Student's t noise: nothing is conjugate."""
    theta = np.geomspace(1e-6, 1e3, 8001)
    gamma, before = family.gamma(theta), np.array([2.0, -1.0])
    log_p = stats.t(3).logpdf(2.5 - np.log(theta))
    eta = family.implicit(gamma, before, log_p)
    np.testing.assert_allclose(gamma.target(eta, before, log_p), eta, rtol=1e-6)
    found = scipy.optimize.minimize(
        lambda e: -gamma.bound(e, before, log_p), before, method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13},
    )  # fmt: skip
    np.testing.assert_allclose(eta, found.x, rtol=1e-4)


def test_theorem_4_is_bayes_where_the_likelihood_is_conjugate():
    """A count y ~ Poisson(θ) under a Gamma prior: shape + y, rate + 1."""
    theta = np.geomspace(1e-6, 1e3, 8001)
    before = np.array([2.0, -1.0])
    eta = family.implicit(family.gamma(theta), before, stats.poisson.logpmf(4, theta))
    np.testing.assert_allclose(eta, before + np.array([4.0, -1.0]), rtol=1e-6)
