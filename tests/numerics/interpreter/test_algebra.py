"""Factorisations and solves, of one matrix and of stacks, and of matrices for which there is none."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from jax import lax

from kalvi.numerics.interpreter import interpret
from tests.numerics.interpreter.engines import agree, compiled, same

RNG = np.random.default_rng(0)
SIZES = [1, 2, 3, 10, 45]


def spd(*shape):
    a = RNG.normal(size=(*shape[:-1], shape[-1] + 2))
    return a @ np.swapaxes(a, -1, -2) / shape[-1] + np.eye(shape[-1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n, dtype):
    agree(jnp.linalg.cholesky, spd(n, n).astype(dtype), units=100)


def test_a_stack_of_roots_where_one_has_none():
    stack = spd(3, 4, 4)
    stack[1] = -np.eye(4)
    agree(jnp.linalg.cholesky, stack, units=100)
    agree(jnp.linalg.cholesky, np.array([[0.0]]))
    agree(jnp.linalg.cholesky, np.array([[np.nan]]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_triangular_solve(n, dtype):
    def solve(a, b):
        def each(left, lower, transposed, unit):
            right = b if left else b.T
            return lax.linalg.triangular_solve(
                a, right, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
            )

        return {flags: each(*flags) for flags in np.ndindex(2, 2, 2, 2)}, jsl.solve_triangular(
            a, b[:, 0]
        )

    a = (0.3 * RNG.normal(size=(n, n)) / n + 2 * np.eye(n)).astype(dtype)
    agree(solve, a, RNG.normal(size=(n, 7)).astype(dtype), units=100)


def test_triangular_solve_of_stacks_and_of_nothing():
    agree(
        jax.vmap(partial(jsl.solve_triangular, lower=True)),
        spd(3, 4, 4),
        RNG.normal(size=(3, 4, 2)),
        units=100,
    )
    agree(jsl.solve_triangular, np.zeros((0, 0)), np.zeros((0, 2)))


@pytest.mark.parametrize("flags", [(1, 1, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1), (0, 0, 1, 1)])
def test_stacks_are_solved_from_either_side_and_by_either_triangle(flags):
    left, lower, transposed, unit = map(bool, flags)

    def solve(a, b):
        return lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
        )

    right = RNG.normal(size=(3, 4, 2) if left else (3, 2, 4))
    agree(solve, spd(3, 4, 4), right, units=100)


def test_a_singular_triangle_of_a_stack_spoils_no_other():
    stack = np.stack([np.diag([1.0, 0.0]), np.diag([1.0, 2.0])])
    agree(jax.vmap(partial(jsl.solve_triangular, lower=True)), stack, np.ones((2, 2, 1)))


def test_a_singular_triangle_has_infinities():
    agree(partial(jsl.solve_triangular, lower=True), np.diag([1.0, 0.0]), np.ones((2, 1)))
    agree(partial(jsl.solve_triangular, lower=True), np.zeros((1, 1)), np.ones((1, 3)))


@pytest.mark.parametrize("n", [1, 3, 10])
def test_general_matrices(n):
    def general(a, b):
        return {
            "solve": jnp.linalg.solve(a, b),
            "inverse": jnp.linalg.inv(a),
            "determinant": jnp.linalg.slogdet(a),
            "lu": jsl.lu(a),
            "singular values": jnp.linalg.svd(a, compute_uv=False),
            "r": jnp.abs(jnp.linalg.qr(a)[1]),  # signs are the library's choice
            "factors": lax.linalg.qr(a)[0] @ lax.linalg.qr(a)[1],
        }

    a = RNG.normal(size=(n, n)) + 2 * np.eye(n)
    agree(general, a, RNG.normal(size=(n, 2)), units=1000)


def test_stacks_of_general_matrices():
    def general(a, b):
        return jnp.linalg.solve(a, b), jnp.linalg.slogdet(a), jnp.linalg.eigvalsh(a @ a.mT)

    agree(general, RNG.normal(size=(5, 3, 3)), RNG.normal(size=(5, 3, 2)), units=1000)


@pytest.mark.parametrize("full", [False, True])
def test_decompositions_give_the_matrix_back(full):
    """Vectors are unique up to signs: what they make is compared."""

    def rebuilt(a):
        u, s, vt = jnp.linalg.svd(a, full_matrices=full)
        values, vectors = jnp.linalg.eigh(a.T @ a)
        q, r = jnp.linalg.qr(a, mode="complete" if full else "reduced")
        return (
            (u[:, : len(s)] * s[None]) @ vt[: len(s)],
            (vectors * values[None]) @ vectors.T,
            values,
            q @ r,
        )

    agree(rebuilt, RNG.normal(size=(6, 4)), units=1000)


def test_what_is_no_number_has_no_decomposition():
    def values(a):
        return jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False)

    agree(values, np.full((3, 3), np.nan))


def test_derivatives_of_solves():
    def log_det(a):
        return jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(a)))) + jnp.sum(jnp.linalg.inv(a))

    a = spd(4, 4)
    same(interpret(jax.grad(log_det), a), compiled(jax.grad(log_det), a), units=1000)
