"""Gather and scatter, with places inside and outside of the array, in each mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.numerics.interpreter.engines import agree

RNG = np.random.default_rng(0)
CUBE = RNG.normal(size=(4, 5, 3))
INSIDE, OUTSIDE = np.array([3, 0, 2, 2]), np.array([3, -1, 4, 9, -7, 2])
MODES = ["clip", "fill", "promise_in_bounds"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32", "bool"])
@pytest.mark.parametrize("mode", MODES)
def test_gather(mode, dtype):
    def take(a, i):
        return {
            "rows": a.at[i].get(mode=mode),
            "columns": a.at[:, i].get(mode=mode),
            "pairs": a.at[i, i].get(mode=mode),
            "grid": a.at[i[:, None], i[None, :]].get(mode=mode),
            "entries": a.at[i, i, i % 3].get(mode=mode),
            "one row": a.at[i[1]].get(mode=mode),
            "one entry": a.at[i[1], i[0], 1].get(mode=mode),
            "along": jnp.take_along_axis(a[:, :4, 0], i[None, :4] % 4, axis=1),
            "batched": jax.vmap(lambda row, j: row.at[j].get(mode=mode))(a, i[:4]),
        }

    index = INSIDE if mode == "promise_in_bounds" else OUTSIDE
    agree(take, (10 * np.abs(CUBE)).astype(dtype), index)


def test_gather_a_given_fill():
    agree(lambda a, i: a.at[i].get(mode="fill", fill_value=7), CUBE, OUTSIDE)


@pytest.mark.parametrize("mode", ["clip", "drop", "promise_in_bounds"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_scatter(mode, dtype):
    def put(a, b, i, j):
        found = {}
        for name in ("add", "multiply", "min", "max"):
            update = {"mode": mode}
            found[name] = getattr(a.at[i], name)(b[: len(i)], **update)
            found[f"{name} columns"] = getattr(a.at[:, i], name)(2, **update)
            found[f"{name} entries"] = getattr(a.at[i, i, i % 3], name)(3, **update)
            found[f"{name} one"] = getattr(a.at[i[1]], name)(3, **update)
        found["set"] = a.at[j].set(b[: len(j)], mode=mode)  # no place comes twice
        found["set one"] = a.at[i[1]].set(b[0], mode=mode)
        found["set a number"] = a.at[i[1], i[2], 1].set(5, mode=mode)
        found["set a column"] = a.at[:, i[1]].set(4, mode=mode)
        rows = jax.vmap(lambda row, k: row.at[k].set(1, mode=mode))
        found["batched"] = rows(a, i[:4])
        return found

    a, b = ((10 * RNG.normal(size=(n, 5, 3))).astype(dtype) for n in (4, 6))
    index = INSIDE if mode == "promise_in_bounds" else OUTSIDE
    places = {"clip": np.array([0, 9]), "drop": np.array([9, 1, -9])}.get(mode, np.array([2, 0]))
    agree(put, a, b, index, places, units=5)


def test_nothing_to_put_or_to_take():
    def none(a, i):
        return a[i], a.at[i].set(0), a.at[i].add(1)

    agree(none, CUBE, np.zeros(0, int))


def test_derivatives_scatter():
    agree(jax.grad(lambda a: jnp.sum(a[INSIDE] ** 2)), CUBE, units=5)
