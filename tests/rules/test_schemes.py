"""The map of each scheme from an observation to its site, without the stream around it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from kalvi.likelihoods import Bernoulli, Poisson, Probit
from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit, MirrorProx
from tests import oracles
from tests.tables import BY_NAME, FILTERS, LIKELIHOODS, NOISY, PAPER, name, serves

BERNOULLI = BY_NAME["bernoulli"]._replace(likelihood=PAPER)


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


def cases(observed, weight=1.3):
    """Labels, means, (co)variances and weights of a row of the table, but for the widest laws."""
    rows = [(y, m, v, weight) for y in observed.labels for m, v in observed.laws[:2]]
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def before_gain(found, v):
    """(I + Γ V) ξ: the gradient that a gain taken after the update was made of."""
    if np.ndim(v) == 1:
        return found.step * (1 + found.curvature * v)
    return found.step + np.einsum("nij,njk,nk->ni", found.curvature, v, found.step)


@pytest.mark.parametrize(
    ("row", "observed"),
    [
        pytest.param(row, o, id=f"{row.name}-{o.name}")
        for row in FILTERS
        for o in NOISY
        if serves(row.scheme, o)
    ],
)
def test_all_schemes_are_the_kalman_gain_for_normal_noise(row, observed):
    y, m, v, weight = cases(observed)
    if observed.outputs == 1:
        y, m, v, weight = (a + 0.1 for a in grid())
    found = site(row.scheme, observed.likelihood, y, m, v, weight)
    noise = np.asarray(observed.likelihood.variance)
    for i, w in enumerate(weight):
        spread = np.atleast_2d(np.diag(np.atleast_1d(noise)) / w + v[i])
        wanted = np.linalg.solve(spread, np.atleast_1d(y[i] - m[i]))
        np.testing.assert_allclose(np.atleast_1d(found.step[i]), wanted, rtol=1e-11)
        bend = np.reshape(np.diag(np.atleast_1d(w / noise)), np.shape(v[i]))
        np.testing.assert_allclose(found.curvature[i], bend, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("observed", LIKELIHOODS, ids=name)
def test_the_ekf_has_the_fisher_information_and_the_gradient_at_the_mean(observed):
    y, m, v, weight = cases(observed)
    found = site(EKF(), observed.likelihood, y, m, v, weight)
    wanted = [w * observed.fisher(f) for f, w in zip(m, weight, strict=True)]
    np.testing.assert_allclose(found.curvature, wanted, rtol=1e-11, atol=1e-15)
    for i, gradient in enumerate(before_gain(found, v)):

        def height(f, i=i):
            return weight[i] * observed.log_prob(f if observed.outputs > 1 else f[0], y[i])

        slope = optimize.approx_fprime(np.atleast_1d(m[i]), height, 1e-7)
        np.testing.assert_allclose(np.atleast_1d(gradient), slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("observed", LIKELIHOODS, ids=name)
def test_the_explicit_scheme_has_expectations_under_the_law_before(observed):
    y, m, v, weight = cases(observed)
    found = site(Explicit(), observed.likelihood, y, m, v, weight)
    gradient = before_gain(found, v)
    for i, w in enumerate(weight):
        _, slope, bend = observed.expected(y[i], m[i], v[i])
        # Stein's identities divide by v ≥ 0.01 what quadrature knows to 1e-13 times |log p|, and integrals
        # of the library are off by 1e-7 at most
        np.testing.assert_allclose(gradient[i], w * slope, rtol=1e-7, atol=2e-7)
        np.testing.assert_allclose(found.curvature[i], w * bend, rtol=1e-7, atol=2e-7)


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


@pytest.mark.parametrize(
    ("row", "observed"),
    [
        pytest.param(row, o, id=f"{row.name}-{o.name}")
        for row in FILTERS
        for o in (BERNOULLI, BY_NAME["softmax"])
        if row.name in ("ekf", "explicit", "qkf") and serves(row.scheme, o)
    ],
)
def test_weight_scales_gradient_and_curvature(row, observed):
    one, three = (
        site(row.scheme, observed.likelihood, *cases(observed, weight)) for weight in (1.0, 3.0)
    )
    np.testing.assert_allclose(three.curvature, 3 * one.curvature, rtol=1e-13)
    v = cases(observed)[2]
    np.testing.assert_allclose(before_gain(three, v), 3 * before_gain(one, v), rtol=1e-12)


def test_ekf_of_poisson_and_probit_uses_the_fisher_information():
    f = np.array([-1.0, 0.5])
    found = site(EKF(), Poisson(), [2.0, 2.0], f, [0.5, 0.5], [1.0, 1.0])
    np.testing.assert_allclose(found.curvature, np.exp(f), rtol=1e-13)
    wanted = (2 - np.exp(f)) / (1 + 0.5 * np.exp(f))
    np.testing.assert_allclose(found.step, wanted, rtol=1e-13)
    found = site(EKF(), Probit(), [1.0], [0.0], [0.5], [1.0])
    np.testing.assert_allclose(found.curvature, 2 / np.pi, rtol=1e-13)


@pytest.mark.parametrize("observed", [o for o in LIKELIHOODS if not o.bounded], ids=name)
def test_qkf_refuses_a_likelihood_without_a_bound(observed):
    kind = type(observed.likelihood).__name__
    why = f"{kind} has none; use Implicit"
    if observed.outputs > 1:
        why = f"QKF takes likelihoods of one predictor and {kind} has {observed.outputs}"
    with pytest.raises(TypeError, match=why):
        QKF().site(observed.likelihood, *(jnp.asarray(a[0]) for a in cases(observed)))


def test_accurate_and_papers_integrals_differ_as_they_should():
    y, m, v, weight = grid()
    paper, exact = (site(Implicit(), like, y, m, v, weight) for like in (PAPER, Bernoulli()))
    off = np.max(np.abs(paper.step - exact.step))
    assert 1e-3 < off < 0.03  # 0.018 in the integral (the sup error of the inverse probit)
