"""Sums, extremes and sorting along axes; of nothing at all too."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.numerics.interpreter.engines import agree

RNG = np.random.default_rng(0)
CUBE = RNG.normal(size=(3, 4, 5))


def reductions(a):
    found = {"argmax": jnp.argmax(a, axis=0), "argmin": jnp.argmin(a, axis=-1)}
    for name, function in {
        "sum": jnp.sum,
        "prod": jnp.prod,
        "max": jnp.max,
        "min": jnp.min,
    }.items():
        for axis in (None, 0, -1, (0, 2)):
            if a.ndim == 3 or not isinstance(axis, tuple):
                found[f"{name} {axis}"] = function(a, axis=axis)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32"])
def test_arrays(dtype):
    agree(reductions, np.abs(10 * CUBE).astype(dtype), units=10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_that_are_none(dtype):
    agree(reductions, np.array([[1.0, np.nan, -2.0], [np.inf, 0.0, -0.0]], dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_entries_that_are_numbers(dtype):
    def short(a, b, c):
        v = jnp.stack([a, b, c])
        return reductions(v[:, None] * v[None, :]), reductions(jnp.broadcast_to(a, (2, 3))), v.sum()

    agree(short, *(np.asarray(x, dtype) for x in (1, -2, 3)))


def test_truth():
    def truth(a):
        odd = lax.reduce(a, np.False_, lax.bitwise_xor, (0,))
        return odd, *everywhere(a)

    def everywhere(a):
        return jnp.all(a), jnp.any(a), jnp.all(a, axis=0), jnp.any(a, axis=1), jnp.sum(a)

    def of_numbers(a, b):
        return truth(jnp.stack([a, b])[None] > 0)

    agree(truth, CUBE > -0.3)
    agree(truth, np.zeros((0, 3), bool))
    agree(of_numbers, np.float64(1), np.float64(-1))


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_nothing(dtype):
    def empty(a):
        def reduced(function, unit):
            return lax.reduce(a, np.asarray(unit, a.dtype), function, (0,))

        if a.dtype == bool:
            either = reduced(lax.bitwise_or, False), reduced(lax.bitwise_xor, False)
            return reduced(lax.bitwise_and, True), *either
        low, high = (-np.inf, np.inf) if a.dtype.kind == "f" else (-(2**31), 2**31 - 1)
        return (
            jnp.sum(a, axis=0),
            jnp.prod(a, axis=0),
            reduced(lax.max, low),
            reduced(lax.min, high),
            jnp.sum(a, axis=1),
            jnp.cumsum(a, axis=0),
            jnp.sort(a, axis=0),
        )

    agree(empty, np.zeros((0, 2), dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_cumulative(dtype):
    def running(a):
        found = {}
        for reverse in (False, True):
            for axis in (0, 1, 2):
                for function in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin):
                    found[f"{function.__name__} {axis} {reverse}"] = function(a, axis, reverse)
            if a.dtype.kind == "f":
                found[f"logsumexp {reverse}"] = lax.cumlogsumexp(a, 1, reverse)
        return found

    agree(running, (3 * CUBE).astype(dtype), units=10)


def test_sorting():
    def ordered(a, b):
        return {
            "sort": jnp.sort(a, axis=1),
            "argsort": jnp.argsort(a, axis=0),
            "backwards": jnp.sort(a, axis=1, descending=True),
            "two keys": lax.sort((jnp.round(a), b, a), dimension=1, num_keys=2),
            "one key": lax.sort((jnp.round(a), b), dimension=1, num_keys=1),
        }

    a = RNG.normal(size=(4, 30))
    a[0, :6] = np.nan, np.inf, -np.inf, 0.0, -0.0, np.nan
    agree(ordered, a, RNG.integers(5, size=(4, 30)))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_top_k(dtype):
    a = RNG.integers(-6, 6, size=(4, 9)).astype(dtype)
    agree(lambda a: lax.top_k(a, 3), a)


def test_top_k_of_what_is_no_number():
    agree(lambda a: lax.top_k(a, 3), np.array([1.0, np.nan, np.inf, -np.inf, 1.0]))
