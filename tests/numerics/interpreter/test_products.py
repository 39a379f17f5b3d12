"""Products of vectors, matrices and stacks of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.numerics.interpreter.engines import agree

RNG = np.random.default_rng(0)
PRODUCTS = {  # einsum, and the shapes
    "i,i->": ((5,), (5,)),
    "i,j->ij": ((2,), (3,)),
    "ij,j->i": ((3, 4), (4,)),
    "i,ij->j": ((3,), (3, 4)),
    "ij,jk->ik": ((3, 4), (4, 2)),
    "ij,ik->jk": ((3, 4), (3, 2)),
    "ij,kj->ik": ((3, 4), (2, 4)),
    "ij,ij->": ((3, 4), (3, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bi,bi->b": ((7, 3), (7, 3)),
    "ib,bj->bij": ((3, 2), (2, 4)),
    "nij,nj,nkj->nik": ((4, 3, 3), (4, 3), (4, 3, 3)),
    "ijk,jkl->il": ((2, 3, 4), (3, 4, 5)),
    "ij,jk->": ((1, 1), (1, 1)),
    "ij,jk->ik ": ((1, 10), (10, 1)),
    "ij,jk->ik  ": ((0, 3), (3, 2)),
    "ij,jk->ik   ": ((2, 0), (0, 3)),
    "abc,cd->abd": ((2, 3, 4), (4, 5)),
}


def products(*args):
    found, rest = {}, list(args)
    for text, shapes in PRODUCTS.items():
        parts, rest = rest[: len(shapes)], rest[len(shapes) :]
        found[text] = jnp.einsum(text.strip(), *parts)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products(dtype):
    args = [(9 * RNG.normal(size=s)).astype(dtype) for sizes in PRODUCTS.values() for s in sizes]
    agree(products, *args, units=10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_entries_that_are_numbers(dtype):
    def short(a, b, c, v, x):
        u = jnp.stack([a, b, c])
        m = u[:, None] - 2 * u[None, :]
        return (
            m @ m,
            m @ u,
            u @ m,
            u @ u,
            m @ v,
            m.T @ m,
            jnp.broadcast_to(a, (2, 3)) @ u,
            v @ x,
            u[:1] @ x[:1],
        )

    numbers = [np.asarray(x, dtype) for x in (1.5, -2.25, 3)]
    agree(
        short,
        *numbers,
        RNG.normal(size=3).astype(dtype),
        RNG.normal(size=(3, 12)).astype(dtype),
        units=10,
    )


def test_higher_precision_of_the_result():
    def wide(a, b):
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float64)

    agree(wide, *(RNG.normal(size=(3, 3)).astype(np.float32) for _ in range(2)), units=1e9)
