"""Learned smoothness priors against dense profiles, SciPy's search and the cubic of even spacing."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules import silk
from kalvi.streams import run
from papers.silk_priors import gaussian, smoothing
from tests.laws import assert_close
from tests.rules import silk_dense as dense
from tests.rules.silk_dense import K

N = 14
SEARCHED = 6e-4  # the last bracket of log ρ is this wide


def some_side(family, seed, even):
    """A posterior that an Ornstein–Uhlenbeck process could have had, and a prior that is not the best."""
    rng = np.random.default_rng(seed)
    prior = dense.some_prior(N, K, rng, even=even)
    cov, mean = dense.prior_cov(prior), np.tile(prior.mean, N)
    true = rng.multivariate_normal(mean, cov)
    narrow = np.linalg.inv(np.linalg.inv(cov) + np.diag(rng.uniform(5, 20, N * K)))
    posterior = dense.posterior(family, true.reshape(N, K), (narrow + narrow.T) / 2)
    off = OrnsteinUhlenbeck(
        prior.gaps, prior.mean + 0.4, prior.variance * 2, prior.rate * 3, prior.even
    )
    return silk.Side(off, posterior)


def factor(side, k):
    """Means and E uuᵀ about zero of one factor, and its locations."""
    whole = dense.posterior_cov(side.posterior).reshape(N, K, N, K)
    mean = np.asarray(side.posterior.mean)[:, k]
    return mean, whole[:, k, :, k], np.concatenate([[0.0], np.cumsum(side.prior.gaps)])


def correlation(places, rate):
    return np.exp(-rate * np.abs(places[:, None] - places[None]) / 2)


def closed(side, k, rate):
    """μ, σ² at a rate, by dense inverses (5.1, 5.2)."""
    mean, cov, places = factor(side, k)
    inverse, ones = np.linalg.inv(correlation(places, rate)), np.ones(N)
    centre = ones @ inverse @ mean / (ones @ inverse @ ones)
    away = mean - centre
    return centre, (away @ inverse @ away + np.trace(inverse @ cov)) / N


def value(side, k, centre, variance, rate):
    """The part of the bound that the prior of one factor changes."""
    mean, cov, places = factor(side, k)
    whole = variance * correlation(places, rate)
    away = mean - centre
    second = np.outer(away, away) + cov
    return -(np.trace(np.linalg.solve(whole, second)) + np.linalg.slogdet(whole)[1]) / 2


def best_rate(of):
    """The maximum over log ρ: the best of a fine grid, then Brent's method."""
    grid = np.linspace(-7, 5, 200)
    i = int(np.argmax([of(log) for log in grid[1:-1]])) + 1
    ends = {"bounds": (grid[i - 1], grid[i + 1]), "options": {"xatol": 1e-9}}
    return optimize.minimize_scalar(lambda log: -of(log), method="bounded", **ends).x


def all_learned(side):
    return gaussian(side).prior, smoothing(side).prior, silk.with_best_prior(side).prior


@pytest.fixture(scope="module", params=[False, True], ids=["uneven", "even"])
def learned(request):
    side = some_side(silk.Chains if request.param else silk.Coupled, 4, request.param)
    return side, *run.call(all_learned, side)


def test_gaussian_is_closed(learned):
    side, found = learned[:2]
    for k in range(K):
        expected = closed(side, k, float(side.prior.rate[k]))
        assert_close([found.mean[k], found.variance[k]], expected, 1e-10)
    assert np.array_equal(found.rate, side.prior.rate)


def test_smoothing_is_the_best_rate(learned):
    side, _, found, _ = learned
    for k in range(K):
        centre, variance = float(side.prior.mean[k]), float(side.prior.variance[k])

        def of(log, k=k, centre=centre, variance=variance):
            return value(side, k, centre, variance, np.exp(log))

        best, at = best_rate(of), float(np.log(found.rate[k]))
        assert abs(at - best) < SEARCHED
        slope, bend = (of(at + 1e-4) - of(at - 1e-4)) / 2e-4, np.abs(of(at + 0.1) - of(at)) / 0.01
        assert abs(slope) < 4 * bend * SEARCHED
        assert (found.mean[k], found.variance[k]) == (centre, variance)


def test_learned_is_the_best_of_all_three(learned):
    side, *_, found = learned
    for k in range(K):

        def of(log, k=k):
            return value(side, k, *closed(side, k, np.exp(log)), np.exp(log))

        assert abs(np.log(found.rate[k]) - best_rate(of)) < SEARCHED
        expected = closed(side, k, float(found.rate[k]))
        assert_close([found.mean[k], found.variance[k]], expected, 1e-10)


def test_the_cubic_of_even_spacing():
    """(N−1)σ²π³ − Xπ² + (T + T_i − (N−1)σ²)π − X = 0 (document 004, section 6)."""
    side = some_side(silk.Chains, 4, True)
    found = run.call(all_learned, side)[1]
    for k in range(K):
        mean, cov, _ = factor(side, k)
        away = mean - float(side.prior.mean[k])
        second, noise = np.outer(away, away) + cov, (N - 1) * float(side.prior.variance[k])
        t, inner, x = np.trace(second), np.trace(second[1:-1, 1:-1]), np.trace(second[1:, :-1])
        roots = np.roots([noise, -x, t + inner - noise, -x])
        real = roots[np.abs(roots.imag) < 1e-12].real
        pi = np.exp(-float(found.rate[k]) * float(side.prior.gaps[0]) / 2)
        assert np.min(np.abs(np.log(np.log(real[(real > 0) & (real < 1)]) / np.log(pi)))) < SEARCHED


def test_even_spacing_said_or_not():
    side = some_side(silk.Chains, 4, True)
    p = side.prior
    unsaid = side.with_prior(OrnsteinUhlenbeck(p.gaps, p.mean, p.variance, p.rate, False))
    for a, b in zip(run.call(all_learned, side), run.call(all_learned, unsaid), strict=True):
        assert_close(jnp.stack([a.mean, a.variance]), jnp.stack([b.mean, b.variance]), 1e-9)
        assert_close(a.rate, b.rate, 1e-9)


def test_without_an_order_there_is_no_rate():
    side = some_side(silk.MeanField, 5, False)
    p = side.prior
    rough = OrnsteinUhlenbeck(p.gaps, p.mean, p.variance, jnp.full(K, jnp.inf))
    found = run.call(silk.with_best_prior, silk.Side(rough, side.posterior, ordered=False)).prior
    mean, var = np.asarray(side.posterior.mean), np.asarray(side.posterior.var)
    assert np.all(np.isinf(found.rate))
    assert_close(found.mean, mean.mean(axis=0), 1e-12)
    assert_close(found.variance, np.mean((mean - mean.mean(axis=0)) ** 2 + var, axis=0), 1e-12)
