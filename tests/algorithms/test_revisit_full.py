"""Passes with a full covariance: sums written out, and steps that are judged."""

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi import Bernoulli, Dense, Softmax, run
from kalvi.algorithms.revisit_full import RevisitFull
from tests import problems
from tests.laws import assert_close


@pytest.mark.slow
def test_sums_of_several_classes_written_out():
    rng = np.random.default_rng(0)
    n, i, c = 5, 2, 3
    x, y, weight = rng.normal(size=(n, i)), rng.integers(0, c, n), np.array([1.0, 2, 0, 1, 0.5])
    q = Dense(rng.normal(size=c * i), problems.spd(rng, c * i))
    found = RevisitFull(Softmax(c)).visit(q, problems.batch(x, y, weight))
    value, gradient, curvature = 0.0, np.zeros(c * i), np.zeros((c * i, c * i))
    for row, label, w in zip(x, y, weight, strict=True):
        rows = np.kron(np.eye(c), row)
        law = jnp.asarray(rows @ q.mean), jnp.asarray(rows @ q.cov @ rows.T)
        said = Softmax(c).expect(jnp.asarray(float(label)), *law)
        value += w * float(said.value)
        gradient += w * rows.T @ np.asarray(said.gradient)
        curvature += w * rows.T @ np.asarray(said.curvature) @ rows
    assert_close(found.value, value, 1e-10)
    assert_close(found.gradient, gradient, 1e-10)
    assert_close(found.curvature, curvature, 1e-10)


def test_a_step_that_lowers_the_bound_is_halved_until_it_does_not():
    # all rows say one thing, far from a start that is sure of the other: Newton's step is much too long
    batch = problems.batch(np.ones((50, 1)), np.ones(50))
    prior = Dense(np.zeros(1), np.full((1, 1), 100.0))
    start = Dense(np.full(1, -12.0), np.full((1, 1), 1e-3))
    rule, bounds, lengths = RevisitFull(Bernoulli()), [], []
    state = rule.init(prior, start=start)
    for _ in range(25):
        state = run.call(RevisitFull.turn, rule, run.resume(rule, state, [batch]))
        bounds.append(float(state.here.elbo))
        lengths.append(float(state.length))
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    assert min(lengths) < 1  # one at least was taken back
    assert bounds[0] < -600
    assert bounds[-1] > -1.7  # of at most -1.386, where it slowly converges
