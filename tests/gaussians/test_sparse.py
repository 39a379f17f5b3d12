"""Blocks of sparse rows say what the same rows say written out."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from kalvi.gaussians import LowRankPrecision
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.projections import EM, Eigen
from kalvi.streams import run
from tests.tables import STRUCTURES, name

N, WIDTH = 5, 6
UPDATABLE = [row for row in STRUCTURES if row.updatable]


def sparse_rows(outputs=1, dtype=np.float64):
    x = sp.random_array((N, WIDTH), density=0.4, rng=np.random.default_rng(3), format="csr")
    rows = SparseRows.of(x, dtype=dtype)
    return rows if outputs == 1 else rows.repeated(outputs)


def learned(q, x, coefficients, curvature):
    view = q.prepared().view(x)
    new = view.absorb(coefficients, curvature)
    again = new.view(x)  # with what the block before has kept
    return (*view[:2], *again[:2], q.marginal_variance(x), new.unprepared())


@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_sparse_block_is_absorbed_as_a_dense_one(structure, outputs):
    rng, x = np.random.default_rng(0), sparse_rows(outputs)
    q = jax.tree.map(np.asarray, structure.make(rng, outputs * WIDTH).q)
    coefficients, curvature = rng.normal(size=outputs * N), rng.random(N)
    if outputs > 1:
        curvature = np.linalg.cholesky(np.eye(2) + rng.random((N, 1, 1)))
    sparse = run.call(learned, q, x, coefficients, curvature)
    dense = run.call(learned, q, x.toarray(), coefficients, curvature)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), sparse, dense
    )


@pytest.mark.parametrize("projection", [Eigen(polish=1), EM(2)], ids=["polish", "EM"])
def test_projections_that_sum_over_all_rows_take_them_dense(projection):
    rng, x = np.random.default_rng(1), sparse_rows()
    parts = rng.normal(size=WIDTH), rng.normal(size=(WIDTH, 2)), rng.random(WIDTH) + 1
    q = LowRankPrecision.from_parts(*parts, projection)
    given = rng.normal(size=N), rng.random(N)
    sparse, dense = (run.call(learned, q, rows, *given) for rows in (x, x.toarray()))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), sparse, dense
    )


def test_strong_factors_cancel_nothing_in_single_precision():
    """Factors that say 10⁶ times what the diagonal does, of a column that every row has."""
    rng, x = np.random.default_rng(2), sparse_rows(dtype=np.float32)
    factor = rng.normal(size=(WIDTH, 2)).astype(np.float32)
    factor[:3] *= 1e3
    q = LowRankPrecision.from_parts(np.zeros(WIDTH, np.float32), factor, np.ones(WIDTH, np.float32))
    _, cov, *_ = run.call(learned, q, x, np.zeros(N, np.float32), np.ones(N, np.float32))
    wide = factor.astype(float)
    # x (I + W Wᵀ)⁻¹ xᵀ by a QR of [W, I]ᵀ, which squares nothing
    root = np.linalg.qr(np.vstack([wide.T, np.eye(WIDTH)]), mode="r")
    half = np.linalg.solve(root.T, x.toarray().astype(float).T)
    np.testing.assert_allclose(cov, half.T @ half, rtol=1e-5, atol=1e-6)
