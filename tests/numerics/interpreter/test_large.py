"""Large matrices and differentiated loops by NumPy."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

from kalvi.numerics import linalg
from kalvi.numerics.interpreter import interpret

N = 150  # a system that is large enough to be looked at


def triangle(lower: bool) -> np.ndarray:
    a = np.random.default_rng(0).normal(size=(N, N)) / N + np.eye(N)
    return np.tril(a) if lower else np.triu(a)


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_a_system_with_the_identity_is_an_inverse(lower, trans, unit):
    def solve(a):
        return jsl.solve_triangular(
            a, jnp.eye(N, dtype=a.dtype), lower=lower, trans=trans, unit_diagonal=unit
        )

    a = triangle(lower)
    with jax.enable_x64(True):
        found = interpret(solve, a + 5 * np.eye(N) * unit)  # a unit diagonal is not read
    whole = a - np.diag(np.diag(a)) + np.eye(N) if unit else a
    np.testing.assert_allclose(found, np.linalg.inv(whole.T if trans else whole), atol=1e-12)


def test_what_is_almost_the_identity_is_solved_for():
    b = np.eye(N)
    b[-1, -2] = 0.5
    with jax.enable_x64(True):
        found = interpret(lambda a, b: jsl.solve_triangular(a, b, lower=True), triangle(True), b)
    np.testing.assert_allclose(found, np.linalg.solve(triangle(True), b), atol=1e-12)


def test_a_singular_triangle_has_no_inverse():
    a = triangle(True)
    a[40, 40] = 0
    with jax.enable_x64(True):
        found = interpret(linalg.triangular_inverse, a)
    assert not np.all(np.isfinite(found))


def test_the_inverse_of_a_root_of_many_rows():
    n = linalg.INVERTED_AT_ONCE + 3
    a = np.tril(np.random.default_rng(1).normal(size=(n, n)) / n + np.eye(n))
    with jax.enable_x64(True):
        found = interpret(linalg.triangular_inverse, a)
    np.testing.assert_allclose(found @ a, np.eye(n), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_root_of_many_rows(dtype):
    a = np.random.default_rng(2).normal(size=(N, N)).astype(dtype)
    a = a @ a.T + np.eye(N, dtype=dtype)
    with jax.enable_x64(True):
        found = interpret(linalg.cholesky, a)
        none = interpret(linalg.cholesky, a - 3 * N * np.eye(N, dtype=dtype))
    assert found.dtype == dtype and np.all(np.triu(found, 1) == 0)
    np.testing.assert_allclose(found @ found.T, a, atol=500 * np.finfo(dtype).eps * a.max())
    assert np.all(np.isnan(np.tril(none)[np.tril_indices(N)]))


def test_a_loop_is_differentiated():
    def recursion(a, x):  # y ← a y + xᵢ from y = 0
        return jax.lax.scan(lambda y, x: (a * y + x, y), 0.0 * a, x)[0]

    x, a = np.array([1.0, 2.0, 3.0, 4.0]), 0.5
    with jax.enable_x64(True):
        by_a, by_x = interpret(jax.grad(recursion, (0, 1)), a, x)
    np.testing.assert_allclose(by_x, a ** np.arange(3, -1, -1), rtol=1e-14)
    np.testing.assert_allclose(by_a, 3 * a**2 * 1 + 2 * a * 2 + 3, rtol=1e-14)
