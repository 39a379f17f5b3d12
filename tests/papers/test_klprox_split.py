"""Splits, the safe step and ADMM against the conditions of the optimum in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.rules.rule import Batch
from papers.klprox_split import (
    LOGISTIC,
    Natural,
    admm_round,
    exact_sites,
    first_agreement,
    safe_step,
    split_step,
)

RNG = np.random.default_rng(0)
D, NOISE = 3, 0.5
PRIOR = Dense(jnp.array([0.1, -0.2, 0.3]), 2.0 * jnp.eye(D))
X, Z = RNG.normal(size=(24, D)), RNG.normal(size=(9, D))
LABELS, NUMBERS = (RNG.uniform(size=24) < expit(X[:, 0])).astype(float), RNG.normal(size=9)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def batch(x, y):
    return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y)))


def slope(q, numbers=True):
    """The gradient of the bound in the mean, and what the precision lacks, by quadrature in NumPy."""
    mean, cov = np.asarray(q.mean), np.asarray(q.cov)
    f = (X @ mean)[:, None] + np.sqrt(np.einsum("ni,ij,nj->n", X, cov, X))[:, None] * NODES
    p = expit(f)
    gradient, curvature = LABELS - p @ WEIGHTS, (p * (1 - p)) @ WEIGHTS
    up = X.T @ gradient - (mean - np.asarray(PRIOR.mean)) / 2
    wanted = np.eye(D) / 2 + (X.T * curvature) @ X
    if numbers:
        up, wanted = up + Z.T @ (NUMBERS - Z @ mean) / NOISE, wanted + Z.T @ Z / NOISE
    return up, wanted - np.linalg.inv(cov)


@pytest.mark.parametrize("beta", [0.25, 1.0])
def test_normal_rows_may_stay_where_they_are(beta):
    base = jax.tree.map(jnp.add, Natural.of(PRIOR), exact_sites(NOISE, batch(Z, NUMBERS)))
    here, step = Natural.of(PRIOR), jax.jit(split_step)
    for _ in range(150):
        here = step(Bernoulli(), base, here, batch(X, LABELS), beta)
    for lacking in slope(here.moments()):
        np.testing.assert_allclose(lacking, 0, atol=1e-7)


def test_without_rows_to_linearise_one_long_step_is_exact():
    base = jax.tree.map(jnp.add, Natural.of(PRIOR), exact_sites(NOISE, batch(Z, NUMBERS)))
    none = Batch(jnp.zeros((1, D)), jnp.zeros(1), jnp.zeros(1))
    found = split_step(Bernoulli(), base, Natural.of(PRIOR), none, jnp.inf).moments()
    precision = np.eye(D) / 2 + Z.T @ Z / NOISE
    shift = np.asarray(PRIOR.mean) / 2 + Z.T @ NUMBERS / NOISE
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, shift), rtol=1e-10)
    np.testing.assert_allclose(found.cov, np.linalg.inv(precision), rtol=1e-10)


def test_the_condition_on_beta():
    """Inequality (8) for Gaussians no wider than the prior, and the Lipschitz constant by quadrature."""
    largest = 3.0
    alpha = float(safe_step(largest, 1.0))
    for _ in range(200):
        first, second = (_narrower(largest) for _ in range(2))
        move, away = RNG.normal(size=D), second - first
        rise = move @ np.linalg.solve(first, move)
        rise += np.trace(away @ (np.linalg.inv(first) - np.linalg.inv(second))) / 2
        assert rise >= alpha * (move @ move + np.sum(away**2))
    most = max(
        _bend(m, v) for m in np.linspace(-6, 6, 49) for v in (0.0, 0.01, 0.3, 1.0, 4.0, 30.0)
    )
    assert 0.249 < most < LOGISTIC


def _narrower(largest):
    vectors = np.linalg.qr(RNG.normal(size=(D, D)))[0]
    return (vectors * RNG.uniform(0.01, largest, D)) @ vectors.T


def _bend(m, v):
    p = expit(m + np.sqrt(v) * NODES)
    second = p * (1 - p)
    third, fourth = second * (1 - 2 * p), second * (1 - 6 * second)
    mm, mv, vv = second @ WEIGHTS, third @ WEIGHTS / 2, fourth @ WEIGHTS / 4
    return np.abs(np.linalg.eigvalsh([[mm, mv], [mv, vv]])).max()


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_machines_agree_on_the_optimum_of_all_rows(rho):
    prior = Natural.of(PRIOR)
    shards = Batch(
        jnp.asarray(X.reshape(3, 8, D)), jnp.asarray(LABELS.reshape(3, 8)), jnp.ones((3, 8))
    )
    here, step = first_agreement(prior, 3), jax.jit(admm_round)
    for _ in range(600):
        here = step(Bernoulli(), prior, here, shards, rho)
    for lacking in slope(here.common.moments(), numbers=False):
        np.testing.assert_allclose(lacking, 0, atol=1e-7)
    np.testing.assert_allclose(here.own.shift, np.tile(here.common.shift, (3, 1)), atol=1e-7)
