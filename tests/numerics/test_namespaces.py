"""One formula for NumPy and JAX: both give the same numbers, and NumPy's stay NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from kalvi.estimators.linear.predictions import predict_rows, predictor_laws
from kalvi.likelihoods.vector import Softmax
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import as_array, choose, is_jax, namespace_of, on_device, on_host
from tests.tables import BY_NAME, LIKELIHOODS, STRUCTURES, diagonal, name, squared

LAYOUT = {"intercept": True, "dtype": np.float64}
OWN = [row for row in LIKELIHOODS if row.name != "custom"]  # whose formulas are the user's, of JAX
TWO = BY_NAME["softmax"]._replace(name="two classes", likelihood=Softmax(2))


def both(likelihood, q, x):
    """Predictions with NumPy and with JAX."""
    with_numpy = predict_rows(on_host(likelihood), on_host(q), x, LAYOUT)
    with_jax = predict_rows(likelihood, q, x, LAYOUT)
    assert all(isinstance(part, np.ndarray) for part in with_numpy)
    return with_numpy, with_jax


def rows(width: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(5, width))


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
@pytest.mark.parametrize("observed", [*OWN, TWO], ids=name)
def test_predictions_agree(observed, structure):
    q, outputs = structure.make(np.random.default_rng(0)).q, observed.outputs
    x = rows(q.dim // outputs - 1)
    for mine, other in zip(*both(observed.likelihood, q, x), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
    laws = (predictor_laws(p, outputs, x, LAYOUT) for p in (on_host(q), q))
    for mine, other in zip(*laws, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
@pytest.mark.parametrize("observed", OWN, ids=name)
def test_numpy_predictions_are_the_integrals(observed, structure):
    q, mean, cov = structure.make(np.random.default_rng(0))
    c = observed.outputs
    x = rows(q.dim // c - 1) / 3
    found = predict_rows(on_host(observed.likelihood), on_host(q), x, LAYOUT)
    for i, row in enumerate(np.column_stack([x, np.ones(len(x))])):
        design = row if c == 1 else np.kron(np.eye(c), row)
        law = design @ mean, design @ cov @ design.T
        error = observed.blur(float(np.mean(diagonal(law[1]))))
        first = observed.average(lambda f: observed.moments(f)[0], *law)
        own = observed.average(lambda f: observed.moments(f)[1], *law)
        away = observed.average(lambda f, e=first: squared(observed.moments(f)[0] - e, c), *law)
        np.testing.assert_allclose(found[0][i], first, rtol=1e-7, atol=max(1e-7, error))
        np.testing.assert_allclose(found[1][i], own + away, rtol=1e-6, atol=max(1e-6, error))


def test_sparse_rows_and_many_blocks():
    q = STRUCTURES[0].make(np.random.default_rng(0)).q
    x = sp.random_array((2500, q.dim - 1), density=0.4, rng=np.random.default_rng(2), format="csr")
    likelihood = OWN[0].likelihood
    dense, sparse = (
        predict_rows(on_host(likelihood), on_host(q), rows, LAYOUT) for rows in (x.toarray(), x)
    )
    assert len(sparse[0]) == 2500
    for mine, other in zip(sparse, dense, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_float32_stays_float32():
    q = jax.tree.map(
        lambda a: np.asarray(a, np.float32), STRUCTURES[3].make(np.random.default_rng(0)).q
    )
    found = predict_rows(OWN[1].likelihood, q, rows(q.dim - 1), LAYOUT | {"dtype": np.float32})
    assert [part.dtype for part in found] == [np.float32] * 3


def test_infinite_rates_make_no_noise():
    q = jax.tree.map(lambda a: np.asarray(a) * 1e3, STRUCTURES[0].make(np.random.default_rng(0)).q)
    mean, _, _ = predict_rows(BY_NAME["poisson"].likelihood, q, rows(q.dim - 1), LAYOUT)
    assert np.isinf(mean).any()


def test_semidefinite_roots_of_many_are_those_of_each():
    a = np.random.default_rng(0).normal(size=(4, 3, 2))
    many = np.concatenate([a @ a.swapaxes(1, 2), np.zeros((1, 3, 3))])
    roots = linalg.semidefinite_root(many)
    for one, root in zip(many, roots, strict=True):
        np.testing.assert_allclose(root @ root.T, one, atol=1e-14)
        np.testing.assert_allclose(linalg.semidefinite_root(jnp.asarray(one)), root, atol=1e-15)


def test_the_arguments_decide():
    mine, other = np.ones(2), jnp.ones(2)
    assert namespace_of(mine, 1.0) is np and namespace_of(mine, other) is jnp
    assert as_array(mine) is mine and is_jax(as_array(1.0))
    assert is_jax({"a": [other]}) and not is_jax({"a": [mine]}, None)
    assert is_jax(on_device({"a": mine})) and not is_jax(on_host({"a": other}))


def test_arrays_of_many_devices_stay_where_they_are():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), "i")
    spread = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, jax.P("i")))
    assert on_host({"a": spread})["a"] is spread


def test_choose_takes_one_branch():
    def never():
        raise AssertionError

    assert choose(np.bool_(True), lambda: 1, never) == 1
    assert choose(np.bool_(False), never, lambda: 2) == 2
    assert int(choose(jnp.asarray(False), lambda: 1, lambda: 2)) == 2
