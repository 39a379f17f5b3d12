"""Draws of the factors of a side, against the dense covariance of the chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.rules.silk import Chains
from tests.laws import assert_close
from tests.rules import silk_dense as dense


@pytest.mark.parametrize("name", dense.FAMILIES)
def test_a_draw_is_a_root_of_the_covariance_times_the_noise(name):
    posterior = dense.some_posterior(dense.FAMILIES[name], 6, 2, np.random.default_rng(0))
    units = jnp.eye(12).reshape(12, 6, 2)
    root = np.asarray(jax.vmap(posterior.draw)(units) - posterior.mean[None]).reshape(12, 12).T
    assert_close(root @ root.T, dense.posterior_cov(posterior), 1e-10)
    assert_close(posterior.draw(jnp.zeros((6, 2))), posterior.mean, 0)


def test_neighbours_that_are_nearly_one_stay_together():
    """Variances of 1 and a step of variance 1e-12: 1 − lag² has no digits left in float32."""
    n, one = 5, np.float32(1)
    mean, var = jnp.zeros((n, 1), jnp.float32), jnp.ones((n, 1), jnp.float32)
    steps = jnp.full((n - 1, 1), 1e-12, jnp.float32)
    posterior = Chains(mean, var, var[1:] - steps / 2, steps, jnp.asarray(one))
    path = np.asarray(posterior.draw(jnp.ones((n, 1), jnp.float32)))[:, 0]
    assert np.all(np.isfinite(path)) and np.ptp(path) < 1e-5
