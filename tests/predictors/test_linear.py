import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.gaussians import Dense
from kalvi.numerics.rows import DenseRows, RepeatedRows, TransformedRows
from kalvi.predictors import Linear, MultiLinear, OffsetLinear, predictor_moments
from tests import problems
from tests.laws import assert_close


def test_predictors_and_their_derivatives():
    rng = np.random.default_rng(0)
    x, b = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    mean, rows, _ = MultiLinear(2).linearise(jnp.asarray(b.ravel()), jnp.asarray(x))
    assert_close(mean, x @ b.T, 1e-14)
    assert_close(rows.matrix(), np.vstack([np.kron(np.eye(2), row) for row in x]), 0)
    mean, rows, _ = Linear().linearise(jnp.asarray(b[0]), jnp.asarray(x))
    assert_close(mean, x @ b[0], 1e-14)
    assert_close(rows.matrix(), x, 0)
    mean, rows, extra = OffsetLinear().linearise(jnp.asarray(b[0, :1]), jnp.asarray(x))
    assert_close(mean, x[:, 1] + x[:, 0] * b[0, 0], 1e-14)
    assert_close(extra, x[:, 2], 0)


def operators():
    rng = np.random.default_rng(1)
    x, entries, root = rng.normal(size=(5, 3)), rng.normal(size=(10, 6)), rng.normal(size=(6, 6))
    repeated = RepeatedRows(jnp.asarray(x), 2)
    return {
        "one output": DenseRows(jnp.asarray(entries)),
        "written": DenseRows(jnp.asarray(entries), 2),
        "repeated": repeated,
        "transformed": TransformedRows(repeated, jnp.asarray(root)),
    }


@pytest.mark.parametrize("name", operators())
def test_rows_are_the_matrix_written_out(name):
    rows, rng = operators()[name], np.random.default_rng(2)
    matrix, c = np.asarray(rows.matrix()), rows.outputs
    n, shape = len(matrix) // c, () if c == 1 else (c,)
    v, w = rng.normal(size=(6, 4)), rng.normal(size=(n, *shape, 3))
    blocks = np.stack([problems.spd(rng, c) for _ in range(n)])
    gamma = jnp.asarray(blocks[:, 0, 0] if c == 1 else blocks)
    whole = np.zeros((n * c, n * c))
    for i, block in enumerate(blocks):
        whole[i * c : (i + 1) * c, i * c : (i + 1) * c] = block
    assert_close(rows.times(jnp.asarray(v)), (matrix @ v).reshape(n, *shape, 4), 1e-12)
    assert_close(rows.transposed_times(jnp.asarray(w)), matrix.T @ w.reshape(n * c, 3), 1e-12)
    assert_close(rows.gram(gamma), matrix.T @ whole @ matrix, 1e-12)
    assert_close(rows.gram_diagonal(gamma), np.diag(matrix.T @ whole @ matrix), 1e-12)
    cov = problems.spd(rng, 6)
    if c > 1:
        own = rows.own_covariances(lambda x: x @ cov @ x.T)
        wanted = np.stack([a @ cov @ a.T for a in matrix.reshape(n, c, 6)])
        assert_close(own, wanted, 1e-11)


def test_extra_variance_is_added_and_whitening_changes_nothing():
    rng = np.random.default_rng(3)
    x = np.abs(rng.normal(size=(4, 5)))
    prior, q = (Dense(rng.normal(size=3), problems.spd(rng, 3)) for _ in range(2))
    mean, var = predictor_moments(q, OffsetLinear(), jnp.asarray(x))
    assert_close(mean, x[:, 3] + x[:, :3] @ np.asarray(q.mean), 1e-13)
    spread = np.einsum("ni,ij,nj->n", x[:, :3], np.asarray(q.cov), x[:, :3])
    assert_close(var, spread + x[:, 4], 1e-12)
    predictor, rows = OffsetLinear().whitened(prior, jnp.asarray(x))
    root = np.asarray(prior.root)
    inside = Dense.from_root(
        jnp.asarray(np.linalg.solve(root, np.asarray(q.mean - prior.mean))),
        jnp.asarray(np.linalg.solve(root, np.asarray(q.root))),
    )
    again = predictor_moments(inside, predictor, rows)
    assert_close(again[0], mean, 1e-11)
    assert_close(again[1], var, 1e-11)
