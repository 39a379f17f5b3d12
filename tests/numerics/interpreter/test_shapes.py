"""Operations that move entries: of arrays, of short vectors kept as numbers, and of one number for all."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.numerics.interpreter.engines import agree

MATRIX = np.arange(12.0).reshape(3, 4)


def views(a):
    """Everything that moves the entries of a 3 × 4 matrix."""
    return {
        "reshape": a.reshape(2, 6),
        "ravel": a.ravel(),
        "transpose": a.T,
        "three axes": a.reshape(3, 2, 2).transpose(2, 0, 1),
        "expand": a[:, None, :],
        "squeeze": jnp.squeeze(a[None, :, None, :], (0, 2)),
        "rev": a[::-1, ::-1],
        "slice": a[1:, :3],
        "strides": a[::2, 1::3],
        "row": a[1],
        "entry": a[2, 1],
        "single entry": a[2:, 1:2],
        "empty": a[1:1],
        "broadcast": jnp.broadcast_to(a[:, None], (3, 5, 4)),
        "row for all": jnp.broadcast_to(a[:1], (3, 4)) + a,
        "concatenate": jnp.concatenate([a, a[:1], a[:0]]),
        "side by side": jnp.concatenate([a, a[:, :1]], axis=1),
        "stack": jnp.stack([a, 2 * a], axis=1),
        "split": jnp.split(a, [1, 3], axis=1),
        "pad": jnp.pad(a, ((1, 0), (0, 2))),
        "pad and cut": lax.pad(a, jnp.asarray(7, a.dtype), ((-1, 2, 0), (1, -2, 1))),
        "pad between": lax.pad(a, jnp.asarray(7, a.dtype), ((0, 0, 2), (-3, -3, 2))),
        "cut to nothing": lax.pad(a, jnp.asarray(7, a.dtype), ((-2, -1, 0), (0, 0, 0))),
        "edges": jnp.pad(a, 1, mode="edge"),
        "tile": jnp.tile(a, (2, 1)),
        "roll": jnp.roll(a, 1, axis=1),
        "triangle": jnp.tril(a),
        "diagonal": jnp.diagonal(a),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_arrays(dtype):
    agree(views, MATRIX.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_one_number_for_all_entries(dtype):
    agree(lambda x: views(jnp.broadcast_to(x, (3, 4))), np.asarray(3, dtype))


def test_a_column_for_all_columns():
    agree(lambda x: views(jnp.broadcast_to(x[:, None], (3, 4)) * 2), np.arange(3.0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_entries_that_are_numbers(dtype):
    def short(a, b, c):
        v = jnp.stack([a, b, c])
        m = v[:, None] * v[None, :] + v[None, :]
        return {
            "vector": v,
            "matrix": m,
            "transpose": m.T,
            "reshape": m.reshape(1, 9),
            "row": m[1],
            "entry": m[2, 1],
            "rev": m[::-1],
            "slice": m[1:, ::2],
            "empty": m[:0],
            "concatenate": jnp.concatenate([v, v]),
            "long": jnp.concatenate([v, v, v, v, v]),
            "with an array": jnp.concatenate([v, jnp.arange(5, dtype=v.dtype)]),
            "stack": jnp.stack([v, -v], axis=1),
            "split": jnp.split(m, 3),
            "pad": jnp.pad(v, 2),
            "triangle": jnp.tril(m),
            "broadcast": jnp.broadcast_to(v, (20, 3)) + 0,
            "with a row": v[None, :] + jnp.zeros((4, 3), v.dtype),
        }

    agree(short, *(np.asarray(x, dtype) for x in (1, -2, 3)))


def test_arrays_of_one_entry():
    def moves(a, b):
        return a + b, a.T, a[0], a.reshape(()), jnp.concatenate([a, b]), jnp.tile(a, (3, 3)), a[:0]

    agree(moves, np.full((1, 1), 2.0), np.full((1, 1), -3.0))


def test_arrays_of_nothing_but_numbers():
    def counts():
        return (
            lax.empty((2, 3), np.float32) * 0,
            jnp.arange(5),
            lax.iota(np.float32, 1),
            lax.broadcasted_iota(np.int32, (3, 1, 4), 2),
        )

    agree(counts)


PLACES = [-20, -4, -1, 0, 1, 2, 3, 20]


@pytest.mark.parametrize("place", PLACES)
def test_windows_are_moved_inside(place):
    def cut(a, i):
        return {
            "row": a[i],
            "entry": lax.dynamic_slice(a, (i, i), (1, 1)),
            "window": lax.dynamic_slice(a, (i, 0 * i), (2, 4)),
            "square": lax.dynamic_slice(a, (i, i), (2, 2)),
            "column": lax.dynamic_index_in_dim(a, i, 1, keepdims=False),
            "updated": lax.dynamic_update_slice(a, a[:2, :2] + 100, (i, i)),
            "updated row": lax.dynamic_update_index_in_dim(a, a[0], i, 0),
            "of a constant": lax.dynamic_slice(jnp.full((4, 4), 2.0), (i, i), (2, 2)),
        }

    agree(cut, MATRIX, np.int32(place))


def test_windows_at_known_places():
    def cut(a):
        return lax.dynamic_slice(a, (1, 9), (2, 2)), a.at[1].set(0), a.at[7].set(0), a[-1]

    agree(cut, MATRIX)
