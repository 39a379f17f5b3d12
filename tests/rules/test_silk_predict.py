"""Predictions of smooth binary factorisation against dense conditioning and quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules import silk
from kalvi.rules.silk.moments import unpack_triangles
from kalvi.streams import run
from tests.laws import assert_close
from tests.oracles import expect
from tests.rules import silk_dense as dense
from tests.rules.silk_dense import FAMILIES, K, N, some_silk

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def bridged(side, at):
    return side.posterior.interpolate(silk.bridge(side.prior, at))


def bridge_to(side, places, new):
    return run.call(bridged, side, silk.find_neighbours(places, new, side.prior.mean.dtype))


def conditioned(side, places, new):
    """Mean and covariance blocks of u at new places, u given all old ones by the prior, those by q."""
    n, t, prior = len(places), len(new), side.prior
    mean, cov = np.zeros((t, K)), np.zeros((t, K, K))
    joint, whole = np.concatenate([places, new]), np.zeros((n + t, K, n + t, K))
    apart = np.abs(joint[:, None] - joint[None])
    for k in range(K):
        whole[:, k, :, k] = float(prior.variance[k]) * np.exp(-float(prior.rate[k]) * apart / 2)
    old = whole[:n, :, :n].reshape(n * K, n * K)
    posterior = dense.posterior_cov(side.posterior)
    away = np.ravel(side.posterior.mean - prior.mean[None])
    for i in range(t):
        across = whole[n + i, :, :n].reshape(K, n * K)
        gain = np.linalg.solve(old, across.T).T
        mean[i] = np.asarray(prior.mean) + gain @ away
        cov[i] = whole[n + i, :, n + i] - gain @ across.T + gain @ posterior @ gain.T
    return mean, cov


@families
def test_new_places_by_dense_conditioning(family):
    """Between the old ones, beyond both ends, and at old ones, where it is their posterior."""
    side = some_silk(family, seed=2).rows
    places = np.concatenate([[0.0], np.cumsum(side.prior.gaps)]) - 3
    new = np.array([-5.0, -3.0, *(places[:-1] + 0.3 * np.diff(places)), places[4], 60.0])
    moments, var = bridge_to(side, places, new)
    mean, cov = conditioned(side, places, new)
    assert_close(moments.mean, mean, 1e-10)
    assert_close(var, np.diagonal(cov, axis1=1, axis2=2), 1e-10)
    spread = cov if family is silk.Coupled else np.asarray(var)[:, :, None] * np.eye(K)
    assert_close(unpack_triangles(moments.second), mean[:, :, None] * mean[:, None] + spread, 1e-10)
    assert_close(moments.mean[-2], side.posterior.mean[4], 1e-12)
    assert_close(var[-2], side.posterior.var[4], 1e-12)


def test_without_smoothness_new_places_have_the_prior():
    side = some_silk(silk.Chains, seed=2).rows
    p, places = side.prior, np.concatenate([[0.0], np.cumsum(side.prior.gaps)])
    rough = side.with_prior(OrnsteinUhlenbeck(p.gaps, p.mean, p.variance, jnp.full(K, jnp.inf)))
    new = np.array([-1.0, places[3] + 0.01, places[3], 99.0])
    moments, var = bridge_to(rough, places, new)
    for i in (0, 1, 3):
        assert_close(moments.mean[i], p.mean, 1e-14)
        assert_close(var[i], p.variance, 1e-14)
    assert_close(moments.mean[2], side.posterior.mean[3], 1e-14)
    assert_close(var[2], side.posterior.var[3], 1e-14)


def predictions(model, observed):
    rows, cols, adds = model.rows.moments(), model.cols.moments(), model.rows.posterior.adds_mean
    some = jnp.array([0, 4, 4]), jnp.array([2, 2, 0])
    return (
        silk.log_likelihood(model, observed),
        silk.log_likelihood(model, observed, plug_in=True),
        silk.probabilities(rows, cols, adds),
        silk.paired_probabilities(rows.at(some[0]), cols.at(some[1]), adds),
    )


@pytest.mark.parametrize("family", [silk.Chains, silk.Coupled], ids=["factorised", "coupled"])
def test_probabilities_and_scores_by_quadrature(family):
    model, some = some_silk(family, seed=6), dense.data(3)
    mean, square = dense.logits(model)
    pairs = zip(mean.ravel(), (square - mean**2).ravel(), strict=True)
    ones = [expect(lambda f: 1 / (1 + np.exp(-f)), m, v, points=(0.0,)) for m, v in pairs]
    ones = np.reshape(ones, mean.shape)
    logs = np.log(np.where(some.x == 1, ones, 1 - ones))
    plain = -np.log1p(np.exp(-(2 * some.x - 1) * mean))
    score, plug_in, table, pairs = run.call(predictions, model, some.table())
    assert_close(score, np.sum(some.share * logs, axis=1), 1e-6)
    assert_close(plug_in, np.sum(some.share * plain, axis=1), 1e-12)
    assert_close(table, ones, 2e-8)
    assert_close(pairs, ones[[0, 4, 4], [2, 2, 0]], 2e-8)
    assert table.shape == (N, dense.M)
