"""The scalar map of each scheme, without the stream around it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.algorithms.sites import EKF, QKF, Explicit, Implicit, MirrorProx
from kalvi.likelihoods import Bernoulli, Normal, Poisson, Probit
from tests import oracles
from tests.tables import FILTERS, PAPER, name, scalars


def site(scheme, likelihood, y, m, v, weight):
    args = (jnp.asarray(a) for a in (y, m, v, weight))
    return jax.jit(jax.vmap(lambda *row: scheme.site(likelihood, *row)))(*args)


def grid(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n).astype(float)
    return y, 3 * rng.normal(size=n), 10 ** rng.uniform(-3, 2, n), np.ones(n)


@pytest.mark.parametrize("row", FILTERS, ids=name)
def test_site_is_the_printed_one(row):
    y, m, v, weight = grid()
    found = site(row.scheme, PAPER, y, m, v, weight)
    wanted = np.array([row.site(*case) for case in zip(y, m, v, strict=True)])
    np.testing.assert_allclose(found.step, wanted[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.curvature, wanted[:, 1], rtol=1e-9, atol=1e-12)
    assert np.all(found.solved)


@pytest.mark.parametrize("row", FILTERS, ids=name)
def test_all_schemes_are_the_kalman_gain_for_normal_noise(row):
    y, m, v, weight = (a + 0.1 for a in grid())
    found = site(row.scheme, Normal(0.7), y, m, v, weight)
    np.testing.assert_allclose(found.step, weight * (y - m) / (0.7 + weight * v), rtol=1e-11)
    np.testing.assert_allclose(found.curvature, weight / 0.7, rtol=1e-14)


def test_mirror_prox_converges_to_the_implicit_scheme():
    y, m, v, weight = grid()
    v = np.minimum(v, 3.0)  # the fixed-point iteration contracts for moderate predictors
    implicit = site(Implicit(), PAPER, y, m, v, weight)
    off = [
        np.max(np.abs(site(MirrorProx(iterations=k), PAPER, y, m, v, weight).step - implicit.step))
        for k in (1, 5, 60)
    ]
    assert off[0] > 1e-3 and off[1] < off[0] / 3
    assert off[2] < 1e-12


def test_mirror_prox_may_keep_the_first_covariance():
    y, m, v, weight = grid()
    found = site(MirrorProx(extra_covariance=False), PAPER, y, m, v, weight)
    explicit = site(Explicit(), PAPER, y, m, v, weight)
    np.testing.assert_array_equal(found.curvature, explicit.curvature)
    # one Newton step on the implicit mean equation
    ahead, gamma = m + v * explicit.step, np.asarray(explicit.curvature)
    p, _ = oracles.inverse_probit(ahead, v / (1 + gamma * v))
    wanted = (y - p + gamma * (ahead - m)) / (1 + gamma * v)
    np.testing.assert_allclose(found.step, wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("scheme", [EKF(), Explicit(), QKF()], ids=["ekf", "explicit", "qkf"])
def test_weight_scales_gradient_and_curvature(scheme):
    y, m, v, _ = grid(20)
    one = site(scheme, PAPER, y, m, v, np.ones(20))
    three = site(scheme, PAPER, y, m, v, np.full(20, 3.0))
    np.testing.assert_allclose(three.curvature, 3 * one.curvature, rtol=1e-13)
    before = one.step * (1 + one.curvature * v)
    after = three.step * (1 + three.curvature * v)
    np.testing.assert_allclose(after, 3 * before, rtol=1e-12)


def test_ekf_of_poisson_and_probit_uses_the_fisher_information():
    f = np.array([-1.0, 0.5])
    found = site(EKF(), Poisson(), [2.0, 2.0], f, [0.5, 0.5], [1.0, 1.0])
    np.testing.assert_allclose(found.curvature, np.exp(f), rtol=1e-13)
    wanted = (2 - np.exp(f)) / (1 + 0.5 * np.exp(f))
    np.testing.assert_allclose(found.step, wanted, rtol=1e-13)
    found = site(EKF(), Probit(), [1.0], [0.0], [0.5], [1.0])
    np.testing.assert_allclose(found.curvature, 2 / np.pi, rtol=1e-13)


def test_qkf_refuses_a_likelihood_without_a_bound():
    with pytest.raises(TypeError, match="Poisson has none; use Implicit"):
        QKF().site(Poisson(), *scalars(1.0, 0.0, 1.0, 1.0))


def test_accurate_and_papers_integrals_differ_as_they_should():
    y, m, v, weight = grid()
    paper, exact = (site(Implicit(), like, y, m, v, weight) for like in (PAPER, Bernoulli()))
    off = np.max(np.abs(paper.step - exact.step))
    assert 1e-3 < off < 0.03  # 0.018 in the integral (the sup error of the inverse probit)
