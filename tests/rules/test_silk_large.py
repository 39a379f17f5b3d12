"""What large matrices need: the kernel, and random pieces."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from kalvi.rules.silk import SILK, Chains, StochasticSILK, Table, elbo, group_locations, start
from kalvi.rules.silk.fused import Tile, fused_statistics
from kalvi.rules.silk.moments import Moments, coupled_moments, factorised_moments
from kalvi.streams import run


@pytest.fixture(scope="module")
def smooth():
    """A 60 x 40 matrix of two smooth factors, a tenth missing, and a first guess."""
    rng = np.random.default_rng(0)
    u = np.sin(np.arange(60)[:, None] / [6.0, 11.0])
    v = np.cos(np.arange(40)[:, None] / [5.0, 9.0])
    x = rng.random((60, 40)) < 1 / (1 + np.exp(-4 * u @ v.T))
    signs = np.where(x, 1, -1).astype(np.int8) * (rng.random((60, 40)) > 0.1)
    table = Table(jnp.asarray(signs, jnp.int8))
    return table, run.call(_start, table, jr.key(0))


def _start(table, key):
    rows, cols = (group_locations(np.arange(float(n))) for n in table.shape)
    return start(table, rows, cols, 2, Chains.independent, key=key)


def sizes(jaxpr):
    """Of all arrays of numbers that a program makes, how many numbers they hold."""
    for equation in jaxpr.eqns:
        for made in equation.outvars:
            if jnp.issubdtype(made.aval.dtype, jnp.floating):
                yield made.aval.size
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda part: hasattr(part, "eqns") or hasattr(part, "jaxpr")
        ):
            if hasattr(inner, "jaxpr"):
                yield from sizes(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                yield from sizes(inner)


@pytest.mark.parametrize("part", ["sweep", "start"])
def test_no_numbers_of_the_size_of_the_matrix(smooth, part):
    shape = 3000, 2000
    table = jax.tree.map(lambda _: jax.ShapeDtypeStruct(shape, jnp.int8), smooth[0])
    begin = jax.eval_shape(_start, table, jr.key(0))
    if part == "start":
        program = jax.make_jaxpr(_start)(table, jr.key(0))
    else:
        program = jax.make_jaxpr(SILK().sweep)(begin, table)
    assert max(sizes(program.jaxpr)) <= 2**18 + shape[0] * 10


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("family", ["factorised", "coupled"])
def test_the_kernel_is_the_sum_over_entries(family, transposed):
    rng = np.random.default_rng(1)
    n, m, k = 70, 90, 3

    def side(n):
        mean, root = rng.normal(size=(n, k)), 0.3 * rng.normal(size=(n, k, k))
        cov = root @ root.transpose(0, 2, 1)
        if family == "factorised":
            cov = cov * np.eye(k)
        second = mean[:, :, None] * mean[:, None] + cov
        single = jnp.asarray(mean, jnp.float32), jnp.asarray(cov, jnp.float32)
        if family == "factorised":
            return (
                mean,
                second,
                factorised_moments(single[0], jnp.diagonal(single[1], axis1=1, axis2=2)),
            )
        return mean, second, coupled_moments(*single)

    (mean, second, rows), (other, second_other, cols) = side(n), side(m)
    signs = rng.integers(-1, 2, (n, m)).astype(np.int8)
    found = fused_statistics(
        jnp.asarray(signs.T if transposed else signs),
        rows,
        cols,
        adds_mean=family == "factorised",
        transposed=transposed,
        tile=Tile(rows=16, cols=16, precision=jax.lax.Precision.HIGHEST),
        interpret=True,
    )
    gamma = np.sqrt(np.einsum("nij,mij->nm", second, second_other))
    weight = (signs != 0) * np.tanh(gamma / 2) / (2 * gamma)
    pull = signs / 2 @ other
    i, j = np.triu_indices(k)
    cost = np.sum((signs != 0) * np.log(2 * np.cosh(gamma / 2)), axis=1)
    np.testing.assert_allclose(found.pull, pull, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        found.curvature, weight @ second_other[:, i, j], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(found.loss, np.sum(pull * mean, axis=1) - cost, rtol=1e-5, atol=1e-4)


def test_the_kernel_takes_factors_at_zero():
    """As the first guess has them: rows unknown, columns known, one second moment that is not asked for."""
    rng = np.random.default_rng(2)
    signs, v = rng.integers(-1, 2, (30, 40)).astype(np.int8), rng.normal(size=(40, 5))
    rows = Moments(*(jnp.zeros((30, width), jnp.float32) for width in (5, 1, 1, 1)))
    nothing = jnp.zeros((40, 1), jnp.float32)
    found = fused_statistics(
        jnp.asarray(signs),
        rows,
        Moments(jnp.asarray(v, jnp.float32), nothing, nothing, nothing),
        adds_mean=False,
        transposed=False,
        tile=Tile(rows=16, cols=16, precision=jax.lax.Precision.HIGHEST),
        interpret=True,
    )
    np.testing.assert_allclose(found.pull, signs / 2 @ v, rtol=1e-5, atol=1e-5)


@pytest.mark.slow(reason="compiles a sweep and a piece of the whole")
def test_a_piece_of_everything_is_a_sweep(smooth):
    table, guess = smooth
    whole = StochasticSILK(*table.shape)
    one = run.advance(whole, whole.init(guess), table, key=jr.key(2))
    plain = SILK(memory=0)
    swept = run.advance(plain, plain.init(guess), table)
    for found, wanted in ((one.silk.rows, swept.silk.rows), (one.silk.cols, swept.silk.cols)):
        np.testing.assert_allclose(
            found.posterior.mean, wanted.posterior.mean, rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(found.prior.variance, wanted.prior.variance, rtol=1e-7)
    np.testing.assert_array_equal(one.rows.visits, 1)


@pytest.mark.slow(reason="compiles sweeps and pieces, 200 of each")
def test_pieces_come_near_the_optimum(smooth):
    table, guess = smooth
    plain = SILK(memory=0)
    state = plain.init(guess)
    for _ in range(200):
        state = run.advance(plain, state, table)
    rule = StochasticSILK(20, 15)
    sampled = rule.init(guess)
    for i in range(200):
        sampled = run.advance(rule, sampled, table, key=jr.fold_in(jr.key(3), i))
    before, after = (float(run.call(elbo, silk, table)) for silk in (guess, sampled.silk))
    assert after > state.elbo - 0.05 * (state.elbo - before)


def test_a_piece_needs_a_key(smooth):
    table, guess = smooth
    rule = StochasticSILK(5, 5)
    with pytest.raises(ValueError, match="give `run` a key"):
        run.advance(rule, rule.init(guess), table)
