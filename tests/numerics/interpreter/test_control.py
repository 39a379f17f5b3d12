"""Loops, branches and calls, and what they carry on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.numerics.interpreter.engines import agree

VECTOR = np.array([3.0, -1.0, 4.0, 1.0, -5.0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_scan(n, reverse):
    def run(start, xs):
        def step(carry, x):
            total, vector, i = carry
            row, number, truth = x
            vector = vector + row * number
            return (total + number, vector, i + 1), (
                vector,
                total,
                truth & (number > 0),
                i,
                row[:1],
            )

        return lax.scan(step, (start, jnp.zeros(3), 0), xs, reverse=reverse)

    xs = np.arange(3.0 * n).reshape(n, 3), VECTOR[:n], VECTOR[:n] > 0
    agree(run, np.float64(2), xs)


@pytest.mark.parametrize("n", [1, 4])
def test_loops_swap_what_they_carry(n):
    def swap(a, b, c):
        return lax.fori_loop(0, n, lambda i, abc: (abc[1], abc[2], abc[0] * (i + 1)), (a, b, c))

    agree(swap, VECTOR, 2 * VECTOR, -VECTOR)
    agree(swap, *np.float64([1, 2, 3]))
    agree(swap, *np.float32([[[1]], [[2]], [[3]]]))


def test_while():
    def collatz(n):
        def step(state):
            n, count = state
            return lax.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), count + 1

        return lax.while_loop(lambda state: state[0] != 1, step, (n, 0))

    for n in (1, 6, 27):
        agree(collatz, np.int64(n))


def test_a_while_loop_for_each():
    def halve(x):
        return lax.while_loop(lambda x: jnp.abs(x) > 1, lambda x: x / 2, x)

    def grow(x, n):
        return lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2, s[1] + 1), (x, 0))

    agree(jax.vmap(halve), VECTOR)
    agree(jax.vmap(halve), VECTOR[:1])
    agree(jax.vmap(grow), np.ones((5, 2)), np.arange(5))
    agree(jax.vmap(jax.vmap(halve)), VECTOR[:4].reshape(2, 2))


def test_loops_in_loops():
    def table(a):
        def row(i, m):
            def entry(j, m):
                return m.at[i, j].add(a[i] * a[j] + i - j)

            return lax.fori_loop(0, 5, entry, m) * lax.while_loop(
                lambda x: x < 2, lambda x: x + jnp.abs(a[i]) + 0.5, 0.0
            )

        return lax.fori_loop(0, 5, row, jnp.zeros((5, 5)))

    agree(table, VECTOR)


@pytest.mark.parametrize("which", [-3, 0, 1, 2, 9])
def test_switch(which):
    def choose(i, x):
        return lax.switch(i, [lambda x: x, lambda x: x[::-1], lambda x: x * 0 + jnp.sum(x)], x)

    agree(choose, np.int32(which), VECTOR)


@pytest.mark.parametrize("x", [-1.0, 1.0, np.nan])
def test_branches(x):
    def nested(x, v):
        def positive(x):
            return lax.cond(x > 0.5, lambda: (v, x), lambda: (2 * v, x / 0))

        return lax.cond(x > 0, positive, lambda x: (v - 1, jnp.zeros_like(x)), x)

    agree(nested, np.float64(x), VECTOR)


def test_a_branch_that_is_known():
    agree(lambda x: lax.cond(True, lambda: x, lambda: 2 * x), VECTOR)


def test_branches_and_loops_whose_results_are_not_used():
    @jax.custom_jvp
    def lost(x):
        unused = lax.cond(x[0] > 0, lambda: x * 2, lambda: x * 3)
        also = lax.fori_loop(0, 3, lambda i, a: a * 2, x)
        return x + 1, unused, also

    lost.defjvp(lambda primals, tangents: (lost(*primals), lost(*tangents)))
    agree(lambda x: lost(x)[0], VECTOR)
    agree(lambda x: lax.fori_loop(0, 3, lambda i, a: a, x), VECTOR)


def test_short_vectors_in_loops_and_branches():
    def run(a, b):
        v = jnp.stack([a, b, a * b])

        def step(v, i):
            w = lax.cond(v[0] > 2, lambda: v - 1, lambda: jnp.stack([v[1], v[2], v[0]]) + i)
            return w, w * v

        return lax.scan(step, v, jnp.arange(6.0))

    agree(run, np.float64(1.5), np.float64(-0.5))


def test_numbers_for_whole_arrays_are_carried():
    def run(x):
        start = jnp.broadcast_to(x, (4, 3)), jnp.zeros((2, 2))
        return lax.fori_loop(0, 3, lambda i, ab: (ab[0] + i, ab[1] + jnp.sum(ab[0])), start)

    agree(run, np.float64(2))


def test_map_and_associative_scan():
    def run(v):
        return (
            lax.map(lambda x: jnp.stack([x, x**2]), v),
            lax.associative_scan(jnp.add, v),
            jnp.vectorize(lambda x: x + 1)(v),
        )

    agree(run, VECTOR)


def test_calls():
    @jax.jit
    def inner(x):
        return jnp.sum(x) + x

    @jax.checkpoint
    def again(x):
        return jnp.sin(inner(x))

    @jax.custom_vjp
    def own(x):
        return again(x) ** 2

    own.defvjp(lambda x: (own(x), x), lambda x, g: (g * x,))

    def run(x):
        return own(x), jax.grad(lambda x: jnp.sum(own(x)))(x), jax.jvp(again, (x,), (x,))

    agree(run, VECTOR, units=10)


def test_custom_linear_solve():
    def run(a, b):
        def solve(_, b):
            return jnp.linalg.solve(a, b)

        return lax.custom_linear_solve(lambda x: a @ x, b, solve)

    agree(run, np.diag(VECTOR) + 0.5, VECTOR, units=10)


def test_derivatives_of_loops():
    def power(x):
        return jnp.sum(lax.scan(lambda c, _: (c * x, c), x, None, length=4)[1])

    agree(jax.grad(power), VECTOR, units=10)
    agree(jax.hessian(power), VECTOR, units=10)


def test_what_is_for_the_platform_of_the_host():
    def run(x):
        x = lax.optimization_barrier(jax.device_put(x))
        return lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x - 1)

    agree(run, VECTOR)
