import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from kalvi.numerics.sparse_rows import Pattern, Sizes, SparseRows, as_matrix, canonical

WIDTH, N = 30, 7


def made(intercept=True):
    rng = np.random.default_rng(0)
    x = sp.random_array((N, WIDTH), density=0.1, rng=rng, format="csr")
    dense = np.hstack([x.toarray(), np.ones((N, 1))]) if intercept else x.toarray()
    return SparseRows.of(x, intercept=intercept), dense


@pytest.fixture(params=["NumPy", "JAX"])
def rows(request):
    x, dense = made()
    return (x if request.param == "NumPy" else jax.tree.map(jnp.asarray, x)), dense


def test_products_are_those_of_the_rows_as_matrix(rows):
    (x, dense), rng = rows, np.random.default_rng(1)
    d = WIDTH + 1
    v, w, c = rng.normal(size=(d, 3)), rng.random(d), rng.normal(size=(N, 2, 2))
    np.testing.assert_allclose(x.toarray(), dense)
    np.testing.assert_allclose(x @ v, dense @ v, atol=1e-14)
    np.testing.assert_allclose(x @ v[:, 0], dense @ v[:, 0], atol=1e-14)
    np.testing.assert_allclose(x.T @ c, np.einsum("nd,nab->dab", dense, c), atol=1e-14)
    np.testing.assert_allclose((x * w[None, :]) @ x.T, (dense * w) @ dense.T, atol=1e-14)
    np.testing.assert_allclose(c[:, 0, 0] @ x**2, c[:, 0, 0] @ dense**2, atol=1e-14)


def test_rows_of_several_outputs_are_their_product_with_the_identity(rows):
    x, dense = rows
    repeated, wanted = x.repeated(3), np.kron(dense, np.eye(3))
    wanted = wanted.reshape(3 * N, WIDTH + 1, 3).swapaxes(1, 2).reshape(3 * N, -1)
    np.testing.assert_allclose(repeated.toarray(), wanted)
    np.testing.assert_allclose(repeated @ repeated.T, wanted @ wanted.T, atol=1e-14)


def test_matrices_mix_the_rows_of_a_group(rows):
    x = rows[0]
    blocks = np.random.default_rng(2).normal(size=(N, 2, 2))
    repeated = x.repeated(2)
    groups = np.asarray(repeated.toarray()).reshape(N, 2, -1)
    wanted = np.einsum("nab,nad->nbd", blocks, groups).reshape(2 * N, -1)
    mixed = repeated.mixed(blocks)
    np.testing.assert_allclose(mixed.toarray(), wanted, atol=1e-14)
    np.testing.assert_allclose(mixed @ mixed.T, wanted @ wanted.T, atol=1e-13)


def test_columns_in_common_come_first_and_none_twice():
    x, dense = made()
    touched = np.count_nonzero(dense, axis=0)
    active = x.columns
    assert len(set(active.tolist())) == len(active)
    assert set(np.flatnonzero(touched)) <= set(active.tolist())
    assert set(np.flatnonzero(touched > 1)) <= set(active[: x.shared].tolist())


def test_what_fills_a_block_up_changes_nothing():
    _, dense = made(intercept=False)
    pattern = Pattern(canonical(sp.csr_array(dense)), intercept=False)
    wider = pattern.filled(N + 3, Sizes((64, WIDTH, WIDTH)), np.float64)
    np.testing.assert_array_equal(wider.toarray()[:N], dense)
    np.testing.assert_array_equal(wider.toarray()[N:], 0)
    np.testing.assert_allclose((wider @ wider.T)[:N, :N], dense @ dense.T, atol=1e-14)


def test_numbers_in_one_place_are_added_and_their_matrix_is_left_alone():
    twice = sp.csr_array((np.array([1.0, 2.0]), np.array([4, 4]), np.array([0, 2])), (1, 9))
    assert SparseRows.of(twice).toarray()[0, 4] == 3
    assert twice.nnz == 2


def test_no_rows_and_no_numbers():
    empty = SparseRows.of(sp.csr_array((2, 9)), dtype=np.float32)
    assert empty.dtype == np.float32
    np.testing.assert_array_equal(empty @ np.ones(9), 0)
    assert SparseRows.of(sp.csr_array((0, 9))).shape == (0, 9)


def test_sizes_are_powers_of_two_and_no_more_columns_than_there_are():
    assert Sizes.of(100, 70, 3, 1000) == (128, 128, 8)
    assert Sizes.of(100, 70, 60, 71) == (128, 71, 64)
    assert Sizes.of(100, 70, 3, 1000).union(Sizes.of(9, 9, 90, 1000)) == (128, 128, 16)


def test_blocks_of_another_size_are_refused():
    x, _ = made()
    with pytest.raises(ValueError, match=r"here of 4 rows; got blocks of 7"):
        x.as_blocks(4)


def test_rows_are_as_matrix_where_they_must_be():
    x, dense = made()
    np.testing.assert_array_equal(as_matrix(x), dense)
    assert as_matrix(dense) is dense
