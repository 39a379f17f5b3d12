"""Correlated noise: densities by determinants, and a filter that is the Kalman filter of dense NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.gaussians import Dense
from kalvi.likelihoods import CorrelatedNormal, MultiNormal
from kalvi.predictors import MultiLinear
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Explicit, Implicit, MirrorProx
from kalvi.streams import run

NOISE = np.array([[0.5, 0.3, -0.1], [0.3, 0.7, 0.2], [-0.1, 0.2, 0.4]])
LIKELIHOOD = CorrelatedNormal(NOISE)
random = np.random.default_rng(0)
MEAN, Y = (jnp.asarray(a) for a in random.normal(size=(2, 3)))
ROOT = random.normal(size=(3, 3))
VAR = jnp.asarray(ROOT @ ROOT.T)


def log_density(y, mean, cov) -> float:
    """In plain NumPy."""
    away = np.asarray(y) - np.asarray(mean)
    square = away @ np.linalg.solve(cov, away)
    return -(square + np.linalg.slogdet(2 * np.pi * np.asarray(cov))[1]) / 2


def test_density_and_expectations():
    assert LIKELIHOOD.log_prob(MEAN, Y) == pytest.approx(log_density(Y, MEAN, NOISE), rel=1e-10)
    value, gradient, curvature = LIKELIHOOD.expect(Y, MEAN, VAR)
    precision = np.linalg.inv(NOISE)
    expected = log_density(Y, MEAN, NOISE) - np.trace(precision @ VAR) / 2
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(gradient, precision @ (Y - MEAN), rtol=1e-9)
    np.testing.assert_allclose(curvature, precision, rtol=1e-9)
    np.testing.assert_allclose(gradient, jax.grad(LIKELIHOOD.log_prob)(MEAN, Y))


@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_predictive_density(weight):
    """∫ p(y | f)ʷ N(f) df, by the density of y under the noise R/w and what normalises it."""
    tempered = log_density(Y, MEAN, NOISE / weight + VAR)
    scale = (1 - weight) * np.linalg.slogdet(2 * np.pi * NOISE)[1] / 2 - 1.5 * np.log(weight)
    found = LIKELIHOOD.log_predictive(Y, MEAN, VAR, weight)
    assert found == pytest.approx(tempered + scale, rel=1e-9)


@pytest.mark.parametrize("scheme", [Implicit(), Explicit(), EKF(), MirrorProx()], ids=repr)
def test_a_pass_is_the_kalman_filter(scheme):
    """Theorem 2 with R whole; the precision adds up over the rows."""
    x, y = random.normal(size=(6, 2)), random.normal(size=(6, 3))
    rule = RVGA(LIKELIHOOD, scheme, block_size=2, predictor=MultiLinear(3))
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(6))
    q = run.fit(rule, Dense(jnp.zeros(6), jnp.eye(6)), [batch]).posterior
    assert isinstance(q, Dense)
    precision, shift = np.eye(6), np.zeros(6)
    for row, label in zip(x, y, strict=True):
        design = np.kron(np.eye(3), row)
        precision += design.T @ np.linalg.solve(NOISE, design)
        shift += design.T @ np.linalg.solve(NOISE, label)
    np.testing.assert_allclose(q.mean, np.linalg.solve(precision, shift), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(q.cov, np.linalg.inv(precision), rtol=1e-8, atol=1e-10)


def test_a_diagonal_covariance_is_multinormal():
    other = MultiNormal(np.diag(NOISE))
    same = CorrelatedNormal(np.diag(np.diag(NOISE)))
    for name in ("log_prob", "log_predictive"):
        arguments = (MEAN, Y) if name == "log_prob" else (Y, MEAN, VAR)
        assert getattr(same, name)(*arguments) == pytest.approx(getattr(other, name)(*arguments))
    for ours, theirs in zip(same.predict(MEAN, VAR), other.predict(MEAN, VAR), strict=True):
        np.testing.assert_allclose(ours, theirs)
    np.testing.assert_allclose(same.noise(MEAN, VAR), np.diag(NOISE))


def test_a_shape_that_is_no_covariance_is_refused():
    with pytest.raises(ValueError, match=r"CorrelatedNormal needs .* use MultiNormal\(variance\)"):
        CorrelatedNormal(np.ones(2))


@pytest.mark.parametrize(
    "cov", [[[1.0, 0.9], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]]
)
def test_a_matrix_that_is_no_covariance_is_refused(cov):
    with pytest.raises(ValueError, match="finite, symmetric and positive definite"):
        CorrelatedNormal(np.array(cov))
