import jax.numpy as jnp
import numpy as np

from kalvi.predictors import Linear, MultiLinear
from tests.laws import assert_close


def test_predictors_and_their_derivatives():
    rng = np.random.default_rng(0)
    x, b = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    mean, rows = MultiLinear(2).linearise(jnp.asarray(b.ravel()), jnp.asarray(x))
    assert_close(mean, x @ b.T, 1e-14)
    assert_close(rows, np.vstack([np.kron(np.eye(2), row) for row in x]), 0)
    mean, rows = Linear().linearise(jnp.asarray(b[0]), jnp.asarray(x))
    assert_close(mean[:, 0], x @ b[0], 1e-14)
    assert_close(rows, x, 0)
