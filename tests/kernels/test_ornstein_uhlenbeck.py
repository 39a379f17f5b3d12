"""The Ornstein–Uhlenbeck prior against its dense covariance, in long decimals where it is nearly flat."""

from decimal import Decimal, localcontext

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.streams import run
from tests.laws import assert_close

N = 7
GAPS = np.random.default_rng(0).uniform(0.02, 2.0, N - 1)
VARIANCE = np.array([0.3, 1.0, 2.5, 1e-3])
RATES = {"smooth": [0.001, 0.01, 0.1, 0.5], "rough": [1.0, 30.0, 1e4, np.inf]}


def prior(rates, gaps=GAPS):
    arrays = map(jnp.asarray, (gaps, np.arange(4.0), VARIANCE, np.asarray(rates)))
    return OrnsteinUhlenbeck(*arrays)


def covariances(rates, gaps=GAPS):
    """σ² exp(−½ ρ |lᵣ − lₛ|), one matrix a factor."""
    places = np.concatenate([[0], np.cumsum(gaps)])
    apart = np.abs(places[:, None] - places[None])
    logs = [np.where(apart == 0, 0, -rate * np.where(apart == 0, 1, apart) / 2) for rate in rates]
    return [v * np.exp(log) for v, log in zip(VARIANCE, logs, strict=True)]


def everything(p, u, steps):
    return {
        "phi": p.phi(),
        "D": p.neighbours(u),
        "precision": p.precision(u),
        "loads": p.loads(),
        "logdet": p.logdet(),
        "quadratic": p.quadratic(u**2, steps**2),
        "correlation": p.correlation(),
    }


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES.keys())
def test_the_dense_covariance(rates):
    u = np.random.default_rng(1).normal(size=(N, 4))
    found = run.call(everything, prior(rates), jnp.asarray(u), jnp.asarray(np.diff(u, axis=0)))
    for k, cov in enumerate(covariances(rates)):
        inverse = np.linalg.inv(cov)
        scale = np.abs(inverse).max()
        off = inverse - np.diag(np.diag(inverse))
        expected = {
            "phi": np.diag(inverse),
            "D": -off @ u[:, k],
            "precision": inverse @ u[:, k],
            "loads": inverse.sum(axis=1),
            "quadratic": u[:, k] @ inverse @ u[:, k],
        }
        for name, value in expected.items():
            assert_close(found[name][..., k] / scale, value / scale, 1e-10)
        assert_close(found["logdet"][k], np.linalg.slogdet(cov)[1], 1e-10)
        assert_close(found["correlation"][:, k], np.diag(cov, 1) / VARIANCE[k], 1e-12)


def test_next_to_no_decay():
    """ρ d = 1e-10: dense inverses keep no digit of the loads, decimals and the operators keep all."""
    rates, gaps = np.full(4, 1e-10), np.ones(N - 1)
    p = prior(rates, gaps)
    with localcontext() as context:
        context.prec = 60
        pi = (-Decimal("1e-10") / 2).exp()
        link, ends, inside = pi / (1 - pi * pi), 1 / (1 + pi), (1 - pi) / (1 + pi)
        logdet = (N - 1) * (1 - pi * pi).ln()
    assert_close(np.asarray(p.links()) * VARIANCE / float(link), np.ones((N - 1, 4)), 1e-12)
    loads = np.array([float(ends)] + [float(inside)] * (N - 2) + [float(ends)])
    np.testing.assert_allclose(
        np.asarray(p.loads()) * VARIANCE, np.tile(loads, (4, 1)).T, rtol=1e-12
    )
    assert_close(p.logdet(), float(logdet) + N * np.log(VARIANCE), 1e-12)
    # a constant is judged by its size alone, however stiff the links
    constant = np.asarray(p.precision(jnp.full((N, 4), 3.0))) * VARIANCE
    np.testing.assert_allclose(constant, 3 * np.tile(loads, (4, 1)).T, rtol=1e-12)


def test_even_spacing_is_the_autoregression():
    """Written as uᵣ₊₁ = π uᵣ + noise, the process has the density that the operators give."""
    u, rates = np.random.default_rng(2).normal(size=(N, 4)), np.array([0.2, 1.0, 3.0, 9.0])
    p = prior(rates, np.full(N - 1, 0.5))
    pi = np.exp(-rates / 4)
    noise = VARIANCE * (1 - pi**2)
    quadratic = u[0] ** 2 / VARIANCE + np.sum((u[1:] - pi * u[:-1]) ** 2, axis=0) / noise
    found = p.quadratic(jnp.asarray(u**2), jnp.asarray(np.diff(u, axis=0) ** 2))
    assert_close(found, quadratic, 1e-12)
    assert_close(p.logdet(), np.log(VARIANCE) + (N - 1) * np.log(noise), 1e-12)


def test_one_location_alone():
    p = prior([0.001, 1.0, 1e4, np.inf], np.zeros(0))
    u = jnp.asarray(np.random.default_rng(3).normal(size=(1, 4)))
    assert_close(p.precision(u), u / VARIANCE[None], 1e-14)
    assert_close(p.logdet(), np.log(VARIANCE), 1e-14)
