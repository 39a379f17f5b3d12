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
    factor, v = rng.normal(size=(6, 4)), rng.normal(size=(4, 2, 3))
    spread = MultiLinear(2).spread(jnp.asarray(x), jnp.asarray(factor))
    assert_close(spread, (rows @ factor).reshape(4, 2, 4), 1e-13)
    gathered = MultiLinear(2).gather(jnp.asarray(x), jnp.asarray(v))
    assert_close(gathered, rows.T @ v.reshape(8, 3), 1e-13)
    mean, rows = Linear().linearise(jnp.asarray(b[0]), jnp.asarray(x))
    assert_close(mean[:, 0], x @ b[0], 1e-14)
    assert_close(rows, x, 0)
