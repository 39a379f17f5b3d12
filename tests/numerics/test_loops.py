"""Loops as one task of a CPU, and searches that end when they have found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics import loops
from kalvi.numerics.interpreter import interpret
from kalvi.numerics.loops import compact_loop, search

N, LARGE = 40, 50
TASK = 'xla_cpu_small_call="true"'


def squares(x):
    """Row i of a matrix scaled by the sum of all before it, in turn."""

    def step(i, a):
        row = jax.lax.dynamic_index_in_dim(a, i, keepdims=False) * jnp.tanh(jnp.sum(a) + x[i])
        return jax.lax.dynamic_update_index_in_dim(a, row, i, 0)

    return compact_loop(N, step, jnp.outer(x, x))


def sorted_rows(x):
    return compact_loop(N, lambda i, a: jnp.sort(a + i), x)


def numpys(x):
    a = np.outer(x, x)
    for i in range(N):
        a[i] *= np.tanh(a.sum() + x[i])
    return a


def test_a_compact_loop_is_the_loop_alone_and_side_by_side():
    x = np.random.default_rng(0).normal(size=(3, N))
    np.testing.assert_allclose(jax.jit(squares)(x[0]), numpys(x[0]), rtol=1e-10)
    for several in (jax.jit(jax.vmap(squares)), jax.vmap(jax.jit(squares))):
        np.testing.assert_allclose(several(x), [numpys(row) for row in x], rtol=1e-10)
    np.testing.assert_allclose(interpret(squares, x[0]), numpys(x[0]), rtol=1e-10)


def test_it_is_one_task_of_what_xla_compiles_itself_and_only_then():
    x = jnp.arange(float(N))
    whole = jax.jit(squares).lower(x).compile().as_text()
    assert any(TASK in line and " call(" in line for line in whole.splitlines())
    assert TASK not in jax.jit(sorted_rows).lower(x).compile().as_text()
    np.testing.assert_array_equal(sorted_rows(x[::-1]), np.arange(float(N)) + N * (N - 1) / 2)
    assert TASK not in jax.jit(squares).lower(jnp.ones(LARGE)).compile().as_text()


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_search_ends_when_it_has_found_or_after_so_many_steps(platform, monkeypatch):
    monkeypatch.setattr(loops, "platform", lambda: platform)
    starts = jnp.asarray([1.0, 3.0, 100.0])

    def found(x):
        return search(lambda a: a > 2, lambda a: a / 2, x, 4)

    np.testing.assert_array_equal(jax.vmap(found)(starts), [1.0, 1.5, 6.25])
    np.testing.assert_array_equal([found(x) for x in starts], [1.0, 1.5, 6.25])
