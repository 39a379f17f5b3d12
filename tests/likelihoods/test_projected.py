"""A likelihood along a few directions of its predictors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.likelihoods.projected import Projected, leading_directions
from tests import oracles
from tests.laws import assert_close
from tests.tables import BY_NAME, LIKELIHOODS, name

VECTORS = [o for o in LIKELIHOODS if o.outputs > 1]
ORIGIN = np.array([0.4, -0.7, 0.2])


def origin(observed):
    return ORIGIN[: observed.outputs]


def arrays(*values):
    return tuple(jnp.asarray(a) for a in values)


def turned(observed):
    """All directions of f, in another basis."""
    frame = np.linalg.qr(np.random.default_rng(2).normal(size=2 * (observed.outputs,)))[0]
    return Projected(observed.likelihood, *arrays(origin(observed), frame)), frame


@pytest.mark.parametrize("observed", VECTORS, ids=name)
def test_along_all_directions_it_is_the_whole_likelihood(observed):
    whole, (likelihood, frame) = observed.likelihood, turned(observed)
    y, (mean, cov) = jnp.asarray(observed.labels[-1]), arrays(*observed.laws[1])
    inside = arrays(frame.T @ (mean - origin(observed)), frame.T @ cov @ frame)
    assert likelihood.outputs == whole.outputs and likelihood.label_shape == whole.label_shape

    @jax.jit
    def terms(y, mean, cov, u, v):
        def of(likelihood, m, v):
            one = likelihood.log_predictive(y, m, v), likelihood.log_prob(m, y)
            return *one, *likelihood.predict(m, v), likelihood.noise(m, v), *likelihood.moments(m)

        expected = likelihood.expect(y, u, v), whole.expect(y, mean, cov)
        information = likelihood.information(u), whole.information(mean)
        return of(likelihood, u, v), of(whole, mean, cov), expected, information

    found, wanted, (mine, other), information = terms(y, mean, cov, *inside)
    for one, two in zip(found, wanted, strict=True):
        assert_close(one, two, 1e-12)
    assert_close(mine.value, other.value, 1e-12)
    assert_close(mine.gradient, frame.T @ other.gradient, 1e-12)
    assert_close(mine.curvature, frame.T @ other.curvature @ frame, 1e-12)
    assert_close(information[0], frame.T @ information[1] @ frame, 1e-12)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(BY_NAME["multinormal"], id="multinormal"),
        pytest.param(
            BY_NAME["softmax"],
            id="softmax",
            marks=pytest.mark.slow(reason="compiles two softmax searches"),
        ),
    ],
)
def test_along_all_directions_its_site_is_that_of_the_whole(observed):
    whole, (likelihood, frame) = observed.likelihood, turned(observed)
    y, (mean, cov) = jnp.asarray(observed.labels[-1]), arrays(*observed.laws[1])
    inside = arrays(frame.T @ (mean - origin(observed)), frame.T @ cov @ frame)
    found, wanted = (
        jax.jit(lambda m, v, p=p: p.implicit(y, m, v, jnp.asarray(1.5)))(*law)
        for p, law in ((likelihood, inside), (whole, (mean, cov)))
    )
    assert bool(found.solved) and bool(wanted.solved)
    assert_close(found.step, frame.T @ wanted.step, 1e-8)
    assert_close(found.curvature, frame.T @ wanted.curvature @ frame, 1e-8)


def one_direction(observed):
    frame = np.linspace(-1, 2, observed.outputs)[:, None]
    frame = frame / np.linalg.norm(frame)
    return Projected(observed.likelihood, *arrays(origin(observed), frame)), frame[:, 0]


@pytest.mark.parametrize("observed", VECTORS, ids=name)
def test_along_one_direction_its_predictor_is_a_number(observed):
    likelihood, along = one_direction(observed)
    assert likelihood.outputs == 1
    m, v = 0.3, 0.8

    def log_prob(u, y):
        return observed.log_prob(origin(observed) + along * u, y)

    for y in observed.labels:
        found = jax.jit(lambda y, m, v: likelihood.expect(y, m, v))(*arrays(y, m, v))
        assert [part.shape for part in found] == [(), (), ()]
        value = oracles.expect(lambda u, y=y: log_prob(u, y), m, v)
        slope = oracles.expect(lambda u, y=y: (u - m) * log_prob(u, y), m, v) / v
        bend = oracles.expect(lambda u, y=y: ((u - m) ** 2 / v - 1) * log_prob(u, y), m, v) / v
        error = max(observed.error(v), 1e-10)
        np.testing.assert_allclose(found.value, value, atol=error)
        np.testing.assert_allclose(found.gradient, slope, atol=error)
        np.testing.assert_allclose(found.curvature, -bend, atol=error)
    f = origin(observed) + along * m
    information = likelihood.information(jnp.asarray(m))
    np.testing.assert_allclose(information, along @ observed.fisher(f) @ along, rtol=1e-12)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(BY_NAME["multinormal"], id="multinormal"),
        pytest.param(
            BY_NAME["softmax"],
            id="softmax",
            marks=pytest.mark.slow(reason="compiles the general search around a softmax"),
        ),
    ],
)
def test_along_one_direction_its_site_solves_the_equations_of_a_number(observed):
    likelihood, along = one_direction(observed)
    m, v, y = 0.3, 0.8, observed.labels[-1]
    site = jax.jit(lambda *row: likelihood.implicit(*row))(*arrays(y, m, v, 1.0))
    assert bool(site.solved) and site.step.shape == site.curvature.shape == ()
    new, wide = m + v * float(site.step), v / (1 + v * float(site.curvature))

    def log_prob(u):
        return observed.log_prob(origin(observed) + along * u, y)

    slope = oracles.expect(lambda u: (u - new) * log_prob(u), new, wide) / wide
    bend = oracles.expect(lambda u: ((u - new) ** 2 / wide - 1) * log_prob(u), new, wide) / wide
    np.testing.assert_allclose(site.step, slope, atol=1e-7)
    np.testing.assert_allclose(site.curvature, -bend, atol=1e-7)


@pytest.mark.parametrize("observed", VECTORS, ids=name)
def test_directions_are_orthonormal_and_the_gradient_is_the_first(observed):
    f = np.random.default_rng(0).normal(size=(2, observed.outputs))
    y = np.array(observed.labels)
    for directions in range(1, observed.outputs + 1):
        frames = leading_directions(observed.likelihood, directions, *arrays(f, y))
        for frame, point, label in zip(np.asarray(frames), f, y, strict=True):
            assert_close(frame.T @ frame, np.eye(directions), 1e-12)
            slope = jax.grad(
                lambda f, label=label: observed.likelihood.log_prob(f, jnp.asarray(label))
            )
            gradient = np.asarray(slope(jnp.asarray(point)))
            assert_close(frame[:, 0] * (frame[:, 0] @ gradient), gradient, 1e-12)
