"""Elimination and reduction against dense inverses, in exact fractions where links are stiff."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics import tridiagonal
from kalvi.streams import run
from tests.laws import assert_close

METHODS = [tridiagonal.solve_by_scan, tridiagonal.solve_by_reduction]
SIZES = [(1, 1), (2, 3), (3, 1), (7, 1), (8, 3)]


def springs(n, k, seed=0, stiffness=1.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, k, k))
    links = stiffness * np.exp(rng.normal(size=(n - 1, k)))
    return links, root @ root.swapaxes(1, 2) + 0.1 * np.eye(k), rng.normal(size=(n, k))


def dense(links, loads, kind=float):
    """Λ, one spring and one load after the other."""
    n, k = loads.shape[:2]
    whole = np.full((n * k, n * k), kind(0))
    for r in range(n):
        here = slice(r * k, (r + 1) * k)
        whole[here, here] += np.vectorize(kind, otypes=[whole.dtype])(loads[r])
    for r in range(n - 1):
        for j in range(k):
            here, there, stiff = r * k + j, (r + 1) * k + j, kind(links[r, j])
            whole[here, here] += stiff
            whole[there, there] += stiff
            whole[here, there] -= stiff
            whole[there, here] -= stiff
    return whole


def parts(inverse, n, k):
    """Diagonal blocks, lag blocks and the covariances of steps, of a dense inverse."""
    blocks = inverse.reshape(n, k, n, k)
    cov = np.array([blocks[r, :, r] for r in range(n)])
    lag = np.array([blocks[r, :, r + 1] for r in range(n - 1)]).reshape(n - 1, k, k)
    back = np.array([blocks[r + 1, :, r] for r in range(n - 1)]).reshape(n - 1, k, k)
    return cov, lag, cov[1:] + cov[:-1] - lag - back


def rational(whole, b):
    """The solution, the inverse and the log-determinant in exact fractions, by Gauss–Jordan."""
    n = len(whole)
    table = [
        [*row, *eye] for row, eye in zip(whole.tolist(), np.eye(n, dtype=int).tolist(), strict=True)
    ]
    logdet = 0.0
    for i in range(n):
        pivot = Fraction(table[i][i])
        logdet += math.log(pivot)
        table[i] = [entry / pivot for entry in table[i]]
        for r in set(range(n)) - {i}:
            share = table[r][i]
            table[r] = [a - share * b for a, b in zip(table[r], table[i], strict=True)]
    inverse = np.array([row[n:] for row in table], dtype=object)
    return (inverse @ np.vectorize(Fraction, otypes=[object])(b)).astype(float), inverse, logdet


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_the_dense_inverse(method, n, k):
    links, loads, b = springs(n, k)
    whole = dense(links, loads)
    x, found = run.call(method, *map(jnp.asarray, (links, loads, b)))
    assert_close(x.ravel(), np.linalg.solve(whole, b.ravel()), 1e-12)
    cov, lag, steps = parts(np.linalg.inv(whole), n, k)
    assert_close(found.cov, cov, 1e-12)
    assert_close(found.lag, lag, 1e-12)
    assert_close(found.step_cov, steps, 1e-12)
    assert_close(found.logdet, np.linalg.slogdet(whole)[1], 1e-12)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
@pytest.mark.parametrize(("n", "k"), SIZES[-2:])
def test_stiff_links_cancel_nothing(method, n, k):
    """A matrix whose entries would have lost all but four digits of the loads."""
    links, loads, b = springs(n, k, seed=1, stiffness=1e12)
    x, found = run.call(method, *map(jnp.asarray, (links, loads, b)))
    solution, inverse, logdet = rational(dense(links, loads, Fraction), b.ravel())
    cov, lag, steps = (part.astype(float) for part in parts(inverse, n, k))
    assert_close(x.ravel(), solution, 1e-12)
    assert_close(found.cov, cov, 1e-12)
    assert_close(found.lag, lag, 1e-12)
    assert_close(found.logdet, logdet, 1e-12)
    assert_close(found.step_cov * 1e12, steps * 1e12, 1e-12)


def test_products():
    links, loads, b = springs(8, 3)
    whole, arrays = dense(links, loads), tuple(map(jnp.asarray, (links, loads, b)))
    assert_close(tridiagonal.matvec(*arrays).ravel(), whole @ b.ravel(), 1e-12)
    assert_close(tridiagonal.spring(arrays[0], jnp.ones((8, 3))), np.zeros((8, 3)), 1e-15)
    solution = run.call(tridiagonal.solve, *arrays)
    assert_close(solution.ravel(), np.linalg.solve(whole, b.ravel()), 1e-12)


@pytest.mark.parametrize("n", [9, 16])
def test_pieces_of_a_reduction_are_the_whole(n):
    problem = [jnp.asarray(part) for part in springs(n, 2)]
    x, found = run.call(lambda *p: tridiagonal.solve_by_reduction(*p, pairs=2), *problem)
    wanted_x, wanted = run.call(tridiagonal.solve_by_scan, *problem)
    assert_close(x, wanted_x, 1e-13)
    for mine, other in zip(found, wanted, strict=True):
        assert_close(mine, other, 1e-13)
