import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics import linalg
from kalvi.numerics.linalg import LowRankPlusDiagonal
from tests import problems
from tests.laws import assert_close


def low_rank(sign, d=6, p=3, seed=0):
    """A positive definite diag + sign · factor factorᵀ."""
    rng = np.random.default_rng(seed)
    diag, factor = np.exp(rng.normal(size=d)), rng.normal(size=(d, p))
    if sign < 0:
        scaled = factor / np.sqrt(diag)[:, None]
        factor = factor * 0.9 / np.linalg.norm(scaled, 2)
    dense = np.diag(diag) + sign * factor @ factor.T
    return LowRankPlusDiagonal(jnp.asarray(diag), jnp.asarray(factor), sign), dense


@pytest.mark.parametrize("sign", [1, -1])
def test_low_rank_plus_diagonal_is_its_dense_matrix(sign):
    a, dense = low_rank(sign)
    v = np.random.default_rng(1).normal(size=(6, 2))
    assert_close(a.to_dense(), dense, 1e-14)
    assert_close(a.matvec(jnp.asarray(v)), dense @ v, 1e-13)
    assert_close(a.matvec(jnp.asarray(v[:, 0])), dense @ v[:, 0], 1e-13)
    assert_close(a.diagonal(), np.diag(dense), 1e-14)
    assert_close(a.logdet(), np.linalg.slogdet(dense)[1], 1e-12)
    inverse = a.inverse()
    assert inverse.sign == -sign
    assert_close(inverse.to_dense(), np.linalg.inv(dense), 1e-12)
    assert_close(inverse.inverse().to_dense(), dense, 1e-12)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_trace_product(signs):
    (a, dense_a), (b, dense_b) = low_rank(signs[0]), low_rank(signs[1], p=2, seed=5)
    assert_close(a.trace_product(b), np.trace(dense_a @ dense_b), 1e-12)


def test_scale_rows():
    scale, v = jnp.asarray([2.0, 3.0]), jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert_close(linalg.scale_rows(scale, v), [[2, 4], [9, 12]], 0)
    assert_close(linalg.scale_rows(scale, v[:, 0]), [2, 9], 0)


def test_cholesky_of_an_indefinite_matrix_is_not_a_number():
    assert np.isnan(linalg.cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))).any()


def test_roots_and_solves():
    rng = np.random.default_rng(2)
    cov = problems.spd(rng, 5)
    precision = jnp.asarray(np.linalg.inv(cov))
    root = linalg.root_from_precision(precision)
    assert_close(root @ root.T, cov, 1e-12)
    assert_close(linalg.root_logdet(root), np.linalg.slogdet(cov)[1], 1e-12)
    inverse = linalg.inverse_root(root)
    assert_close(inverse @ inverse.T, precision, 1e-12)
    v = rng.normal(size=(5, 2))
    solved = linalg.cho_solve(linalg.cholesky(jnp.asarray(cov)), jnp.asarray(v))
    assert_close(solved, np.linalg.solve(cov, v), 1e-12)


def shrunk_root(root, x, scale):
    rows = x @ root
    return linalg.shrink_root(root, rows, rows @ rows.T, scale)


@pytest.mark.parametrize("rows", [1, 3, 5, 9])
def test_shrink_root_adds_precision(rows):
    rng = np.random.default_rng(rows)
    root, x = rng.normal(size=(5, 5)), rng.normal(size=(rows, 5))
    curvature = np.exp(rng.normal(size=rows))
    curvature[0] = 0.0
    shrunk = shrunk_root(jnp.asarray(root), jnp.asarray(x), jnp.sqrt(curvature))
    precision = np.linalg.inv(root @ root.T) + x.T @ np.diag(curvature) @ x
    assert_close(shrunk @ shrunk.T, np.linalg.inv(precision), 1e-10)


def test_block_diagonal_products_and_the_roots_they_shrink():
    rng = np.random.default_rng(9)
    blocks, root, x = rng.normal(size=(2, 3, 3)), rng.normal(size=(5, 5)), rng.normal(size=(6, 5))
    blocks[0, :, 2] = 0
    whole = np.block([[blocks[0], np.zeros((3, 3))], [np.zeros((3, 3)), blocks[1]]])
    assert_close(linalg.scale_blocks(jnp.asarray(blocks), jnp.asarray(x)), whole @ x, 1e-14)
    assert_close(
        linalg.scale_blocks(jnp.asarray(blocks), jnp.asarray(x[:, 0])), whole @ x[:, 0], 1e-14
    )
    assert_close(
        linalg.scale_blocks_transposed(jnp.asarray(blocks), jnp.asarray(x)), whole.T @ x, 1e-14
    )
    shrunk = shrunk_root(jnp.asarray(root), jnp.asarray(x), jnp.asarray(blocks))
    precision = np.linalg.inv(root @ root.T) + x.T @ whole @ whole.T @ x
    assert_close(shrunk @ shrunk.T, np.linalg.inv(precision), 1e-10)


def test_semidefinite_root_of_regular_singular_and_badly_scaled_matrices():
    rng = np.random.default_rng(10)
    thin, p = rng.normal(size=(5, 2)), np.array([0.5, 0.3, 1e-9, 0.2 - 1e-9])
    fisher, units = np.diag(p) - np.outer(p, p), 10.0 ** np.array([-9, 6, 0, 3])
    for a in (
        problems.spd(rng, 4),
        problems.spd(rng, 4) * np.outer(units, units),
        thin @ thin.T,
        fisher,
        np.zeros((3, 3)),
        np.diag([0.0, 2.0, 0.0]),
    ):
        for dtype in (np.float64, np.float32):
            root = np.asarray(linalg.semidefinite_root(jnp.asarray(a, dtype)), np.float64)
            size = np.sqrt(np.outer(np.diag(a), np.diag(a)))
            assert np.all(np.abs(root @ root.T - a) <= 100 * np.finfo(dtype).eps * size)
            np.testing.assert_array_equal(root, np.tril(root))


def test_shrink_root_of_no_curvature_is_the_root_itself():
    rng = np.random.default_rng(3)
    root, x = jnp.asarray(rng.normal(size=(4, 4))), jnp.asarray(rng.normal(size=(2, 4)))
    np.testing.assert_array_equal(shrunk_root(root, x, jnp.zeros(2)), root)


def test_shrink_root_stays_positive_where_subtraction_fails():
    # prior variance 1e6, noise 1e-6, float32: the subtractive update loses every digit of 1e-6
    root = jnp.eye(2, dtype=jnp.float32) * 1e3
    x = jnp.asarray([[1.0, 1.0]], jnp.float32)
    shrunk = shrunk_root(root, x, jnp.asarray([1e3], jnp.float32))
    along = np.sum((np.asarray(x, np.float64) @ np.asarray(shrunk, np.float64)) ** 2)
    assert 0 < along < 1e-2  # exactly 1e-6; float32 roots know it to (1e3 · 6e-8)² at best


def test_roots_of_sums_and_of_faded_covariances():
    rng = np.random.default_rng(4)
    one, other, half = (rng.normal(size=(4, 4)) for _ in range(3))
    wide = linalg.add_roots(jnp.asarray(one), jnp.asarray(other))
    assert_close(wide @ wide.T, one @ one.T + other @ other.T, 1e-13)
    added = half @ half.T
    faded = linalg.fade_root(jnp.asarray(one), jnp.asarray(0.3), jnp.asarray(added))
    wanted = one @ np.linalg.inv(0.3 * np.eye(4) + added) @ one.T
    assert_close(faded @ faded.T, wanted, 1e-12)


def test_solving_with_a_diagonal_and_a_factor():
    rng = np.random.default_rng(5)
    diag, v = rng.uniform(2, 3, 5), rng.normal(size=5)
    for sign in (1, -1):
        a = linalg.LowRankPlusDiagonal(
            jnp.asarray(diag), jnp.asarray(rng.normal(size=(5, 2)) / 4), sign
        )
        assert_close(a.solve(jnp.asarray(v)), np.linalg.solve(a.to_dense(), v), 1e-12)


@pytest.mark.parametrize("d", [48, 45, 53])
def test_products_of_long_arrays_in_groups(monkeypatch, d):
    """Of groups that fit, of smaller ones, and of groups with rows left over."""
    monkeypatch.setattr(linalg, "GROUP", 8)
    monkeypatch.setattr(linalg, "platform", lambda: "gpu")
    rng = np.random.default_rng(0)
    a, b, v = rng.normal(size=(d, 3)), rng.normal(size=(d, 2)), rng.normal(size=d)
    left, right, vector = map(jnp.asarray, (a, b, v))
    assert_close(linalg.inner(left, right), a.T @ b, 1e-14)
    assert_close(linalg.inner_of_wide(left.T, right.T), a.T @ b, 1e-14)
    assert_close(linalg.wide_times(left.T, right), a.T @ b, 1e-14)
    assert_close(linalg.times_vector(left.T, vector), a.T @ v, 1e-14)
    assert_close(linalg.times_vector(left, vector[:3]), a @ v[:3], 1e-14)
