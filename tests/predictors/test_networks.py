"""Networks as functions of a flat vector, and what a posterior over it predicts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from kalvi.evaluation.predictions import ensemble, linearised, mixture_moments
from kalvi.gaussians import Dense, LowRankCovariance, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.likelihoods.vector import Softmax
from kalvi.numerics.rows import DenseRows
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron, make_network
from kalvi.streams import run


def test_linearise_is_the_jacobian():
    net, theta = Perceptron((3, 4, 2), jnp.tanh).network(jr.key(0), jnp.float64)
    x = jr.normal(jr.key(1), (5, 3))
    f, rows, _ = net.linearise(theta, x)
    np.testing.assert_allclose(f, net.values(theta, x), rtol=1e-12)
    wanted = jax.jacfwd(lambda t: net.values(t, x))(theta).reshape(10, -1)
    np.testing.assert_allclose(rows.matrix(), wanted, rtol=1e-10, atol=1e-12)


def test_perceptron_against_numpy():
    perceptron = Perceptron((3, 4, 2), jnp.tanh)
    params = perceptron.init(jr.key(0), jnp.float64)
    x = np.array([0.3, -1.0, 2.0])
    (w1, b1), (w2, b2) = (tuple(np.asarray(a) for a in pair) for pair in params)
    np.testing.assert_allclose(
        perceptron(params, jnp.asarray(x)), w2 @ np.tanh(w1 @ x + b1) + b2, rtol=1e-12
    )
    assert perceptron.n_parameters() == 26
    np.testing.assert_array_equal(perceptron.groups(), np.repeat([0, 1, 2, 3], [12, 4, 8, 2]))
    np.testing.assert_array_equal(perceptron.fan_in(), np.repeat([3, 1, 4, 1], [12, 4, 8, 2]))


def test_equinox_and_dictionaries():
    """A module of Equinox and a Flax-style dictionary give the same network."""
    module = eqx.nn.MLP(2, 1, 3, 1, activation=jnp.tanh, key=jr.key(0))
    params, static = eqx.partition(module, eqx.is_inexact_array)
    one, theta = make_network(lambda p, x: eqx.combine(p, static)(x), params, jnp.zeros(2))
    x = jnp.asarray([0.5, -0.2])
    np.testing.assert_allclose(one(theta, x), module(x)[0], rtol=1e-12)
    first, last = module.layers
    tree = {"a": first.weight, "b": first.bias, "c": last.weight, "d": last.bias}
    two, same = make_network(
        lambda p, x: p["c"] @ jnp.tanh(p["a"] @ x + p["b"]) + p["d"], tree, jnp.zeros(2)
    )
    np.testing.assert_allclose(two(same, x), module(x)[0], rtol=1e-12)


def test_equal_networks_compile_once():
    one, _ = Perceptron((3, 4, 2), jnp.tanh).network(jr.key(0), jnp.float64)
    two, _ = Perceptron((3, 4, 2), jnp.tanh).network(jr.key(1), jnp.float64)
    assert hash(one) == hash(two) and one == two


def some_q(theta, seed=0):
    rng = np.random.default_rng(seed)
    d = len(theta)
    return LowRankCovariance(theta, 0.3 * rng.normal(size=(d, 2)), np.full(d, 0.05))


def test_linearised_regression():
    net, theta = Perceptron((2, 3, 1), jnp.tanh).network(jr.key(0), jnp.float64)
    q, x = some_q(theta), jr.normal(jr.key(1), (4, 2))
    found = linearised(Model(net, Normal(0.2)), q, x)
    rows = jax.jacfwd(lambda t: net.values(t, x))(theta)
    cov = np.asarray(q.covariance.to_dense())
    np.testing.assert_allclose(found.mean[:, 0], net.values(theta, x), rtol=1e-12)
    np.testing.assert_allclose(
        found.epistemic[:, 0], np.einsum("nd,de,ne->n", rows, cov, rows), rtol=1e-9
    )
    np.testing.assert_allclose(found.aleatoric, 0.2)


@pytest.mark.parametrize(
    "classes",
    [2, pytest.param(3, marks=pytest.mark.slow(reason="compiles integrals of a softmax"))],
)
def test_classes_by_either_way(classes):
    """A network linear in its parameters: draws and integrals must agree, and the parts add up."""
    outputs = 1 if classes == 2 else classes
    net, _ = make_network(lambda w, x: w @ x, jnp.zeros((outputs, 2)), jnp.zeros(2))
    theta = jnp.asarray(np.random.default_rng(0).normal(size=2 * outputs))
    model = Model(net, Bernoulli() if classes == 2 else Softmax(classes))
    q, x = some_q(theta), jr.normal(jr.key(1), (4, 2))
    one, draws = run.call(linearised, model, q, x), q.sample(jr.key(2), 40_000)
    two = run.call(ensemble, model, draws, x)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=6 / np.sqrt(40_000) / 2)  # six standard errors
    for found in (one, two):
        p = np.asarray(found.mean)
        np.testing.assert_allclose(found.epistemic + found.aleatoric, p * (1 - p), atol=1e-8)


@pytest.mark.slow(reason="products in 60 dimensions, operation by operation")
def test_spreads_keep_their_digits():
    """Strong factors in float32: covariances of predictors against float64, none negative."""
    rng = np.random.default_rng(0)
    d, wide = 60, 1e2 * rng.normal(size=(60, 4))
    rows = (
        rng.normal(size=(9, d)) @ (wide @ wide.T) / 1e4
    )  # along the factors, where little is left
    exact = LowRankPrecision(np.zeros(d), wide, np.full(d, 0.1))
    short = LowRankPrecision(*(np.float32(a) for a in (np.zeros(d), wide, np.full(d, 0.1))))
    found = np.asarray(short.predictor_covariances(DenseRows(jnp.asarray(rows, jnp.float32), 3)))
    wanted = np.asarray(exact.predictor_covariances(DenseRows(jnp.asarray(rows), 3)))
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3 * np.abs(wanted).max())
    assert np.linalg.eigvalsh(found).min() > -1e-6 * np.abs(wanted).max()
    dense = rows @ np.linalg.solve(np.asarray(exact.precision.to_dense()), rows.T)
    np.testing.assert_allclose(wanted[1], dense[3:6, 3:6], rtol=1e-5)


def test_moments_of_a_mixture():
    net, theta = Perceptron((2, 1), jnp.tanh).network(jr.key(0), jnp.float64)
    model, x = Model(net, Normal(0.1)), jr.normal(jr.key(1), (3, 2))
    qs = [Dense(theta + k, 0.1 * (k + 1) * np.eye(3)) for k in range(2)]
    parts = [linearised(model, q, x) for q in qs]
    both = mixture_moments(parts)
    means = np.stack([part.mean for part in parts])
    np.testing.assert_allclose(both.mean, means.mean(axis=0), rtol=1e-12)
    total = np.mean([p.epistemic + p.mean**2 for p in parts], axis=0) - both.mean**2
    np.testing.assert_allclose(both.epistemic, total, rtol=1e-9)


def test_refusals():
    with pytest.raises(TypeError, match="a pytree of floating arrays; it has a leaf of type int"):
        make_network(lambda p, x: x, {"a": jnp.zeros(2, int)}, jnp.zeros(2))
    with pytest.raises(TypeError, match="it has no leaf"):
        make_network(lambda p, x: x, {}, jnp.zeros(2))
    with pytest.raises(ValueError, match="params must be finite"):
        make_network(lambda p, x: p @ x, jnp.full(2, jnp.nan), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"it gave shape \(2, 2\)"):
        make_network(lambda p, x: p[:, None] * x[None, :], jnp.zeros(2), jnp.zeros(2))
