"""Blocks of sparse rows say what the same rows say written out."""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from kalvi.gaussians import LowRankPrecision, low_rank
from kalvi.numerics.precision import matching_precision
from kalvi.numerics.sparse_rows import Pattern, Sizes, SparseRows
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


class Late(NamedTuple):
    """A precision W Wᵀ + diag ψ of which some rows of ψ are owed something, in dense algebra."""

    mean: np.ndarray
    factor: np.ndarray
    diag: np.ndarray
    owed: np.ndarray

    def touched(self, here):
        return self._replace(
            diag=np.where(here, self.diag + self.owed, self.diag),
            owed=np.where(here, 0, self.owed),
        )

    def covariance(self):
        return np.linalg.inv(self.factor @ self.factor.T + np.diag(self.diag))

    def after(self, x, here, coefficients, curvature):
        d, p = self.factor.shape
        z = np.hstack([self.factor, x.T * np.sqrt(curvature)])
        values, vectors = np.linalg.eigh(z.T @ (z / self.diag[:, None]))
        kept = z @ vectors[:, -p:]
        shared = np.minimum(np.sum(values[:-p]) / (d - p) / values[-p:], 1)
        more = np.sum((z @ vectors[:, :-p]) ** 2, axis=1) + kept**2 @ shared
        return Late(
            self.mean + self.covariance() @ x.T @ coefficients,
            kept * np.sqrt(1 - shared),
            self.diag + np.where(here, more, 0),
            self.owed + np.where(here, 0, more),
        )


def learn_blocks(q, blocks, coefficients, curvatures, room):
    q, seen = q.prepared(room), []
    for x, c, curvature in zip(blocks, coefficients, curvatures, strict=True):
        view = q.view(x)
        seen.append(view[:2])
        q = view.absorb(c, curvature)
    return seen, q.unprepared()


def test_late_updates_are_exact_but_for_what_the_diagonal_is_owed(monkeypatch):
    """Six blocks, a sweep after the fourth and after the last, against dense algebra."""
    monkeypatch.setattr(low_rank, "LATE_WIDTH", 0)
    rng, d, p, n, room = np.random.default_rng(5), 30, 3, 4, 4
    parts = rng.normal(size=d), rng.normal(size=(d, p)), rng.random(d) + 0.5
    tables = [sp.random_array((n, d), density=0.1, rng=rng, format="csr") for _ in range(6)]
    sizes = reduce(Sizes.union, (Pattern(x, False).sizes for x in tables))
    sizes = Sizes((sizes[0], 16, sizes[2]))  # not all columns
    blocks = [Pattern(x, False).filled(n, sizes, np.float64) for x in tables]
    coefficients, curvatures = rng.normal(size=(6, n)), rng.random((6, n))
    with matching_precision(np.float64):
        q = jax.tree.map(jnp.asarray, LowRankPrecision.from_parts(*parts))
        seen, q = run.call(learn_blocks, q, blocks, coefficients, curvatures, room)
    late = Late(*parts, np.zeros(d))
    for k, block in enumerate(blocks):
        x = block.toarray()
        here = np.isin(np.arange(d), block.columns)
        late = late.touched(here)
        np.testing.assert_allclose(seen[k][0], x @ late.mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(seen[k][1], x @ late.covariance() @ x.T, rtol=1e-9, atol=1e-11)
        late = late.after(x, here, coefficients[k], curvatures[k])
        if k == room - 1:
            late = late.touched(np.ones(d, bool))
    # what a diagonal is owed makes variances wider, by no more than its largest share
    full = late.touched(np.ones(d, bool))
    wider = np.linalg.eigvals(np.linalg.solve(full.covariance(), late.covariance())).real
    assert 1 - 1e-9 < wider.min() < wider.max() < 1 + np.max(late.owed / late.diag) + 1e-9
    np.testing.assert_allclose(q.mean, late.mean, rtol=1e-8)
    np.testing.assert_allclose(q.precision.diag, late.diag + late.owed, rtol=1e-9)
    wanted = late.factor @ late.factor.T
    np.testing.assert_allclose(
        q.precision.factor @ q.precision.factor.T, wanted, rtol=1e-8, atol=1e-9
    )
