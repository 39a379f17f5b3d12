"""Whole fits of smooth binary factorisation: acceleration, families, solvers, hard matrices, ties."""

from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.rules import silk
from kalvi.streams import run
from tests.laws import assert_close
from tests.rules import silk_dense as dense

N, M, K, RATES = 80, 60, 3, (0.02, 0.1)
PLAIN = silk.SILK(learn_prior=False, memory=0)
EMPTY = [0, 17, 18, 50]  # rows without entries
INDEPENDENT = {
    silk.MeanField: silk.MeanField,
    silk.Chains: silk.Chains.independent,
    silk.Coupled: silk.Coupled.independent,
}


def process(rng, n, k, rate):
    apart = np.abs(np.arange(n)[:, None] - np.arange(n)[None])
    return np.linalg.cholesky(np.exp(-rate * apart / 2)) @ rng.normal(size=(n, k))


def drawn(seed, shape=(N, M), rates=RATES, missing=0.1):
    """Draws of the model: signs, 0 where an entry is missing, and the factors of the columns."""
    rng = np.random.default_rng(seed)
    u, a = (process(rng, n, K, rate) for n, rate in zip(shape, rates, strict=True))
    ones = rng.random(shape) < 1 / (1 + np.exp(-u @ a.T))
    return np.where(rng.random(shape) < missing, 0, 2 * ones - 1).astype(np.int8), a


def true_prior(n, rate):
    ones = jnp.ones(K)
    return OrnsteinUhlenbeck(jnp.ones(n - 1), 0 * ones, ones, rate * ones, True)


def first(table):
    rows, cols = (silk.group_locations(np.arange(float(n))) for n in table.shape)
    return silk.start(table, rows, cols, K, silk.Chains.independent, key=jr.key(0))


def begun(table, family):
    """A start, with the priors of the draws."""
    model = run.call(first, table)

    def side(old, rate):
        q = INDEPENDENT[family](old.posterior.mean, old.posterior.var)
        return silk.Side(true_prior(old.prior.n, rate), q)

    return silk.Silk(side(model.rows, RATES[0]), side(model.cols, RATES[1]))


def swept(rule, model, table, sweeps):
    """The state after some sweeps, and the bounds on the way."""
    state, bounds = run.copied(rule.init(model)), []
    for _ in range(sweeps):
        state = run.advance(rule, state, table)
        bounds.append(state.elbo)
    return state, np.array(bounds)


@cache
def fixed_fit(family):
    some = drawn(0)[0]
    some[EMPTY] = 0
    table = silk.Table(jnp.asarray(some))
    return swept(silk.SILK(learn_prior=False), begun(table, family), table, 60)


def never_falls(bounds):
    return np.all(np.diff(bounds) >= -1e-11 * np.abs(bounds[1:]))


@pytest.mark.slow(reason="compiles two rules, 360 sweeps")
def test_the_accelerated_rule_reaches_the_plain_optimum():
    table = silk.Table(jnp.asarray(drawn(1)[0]))
    model = begun(table, silk.Chains)
    fast = swept(silk.SILK(learn_prior=False), model, table, 60)[1]
    plain = swept(PLAIN, model, table, 300)[1]
    assert never_falls(fast) and never_falls(plain)
    assert fast[-1] > plain[-1] - 1e-3
    near = plain[-1] - 0.01
    assert np.argmax(fast > near) < np.argmax(plain > near) / 2


@pytest.mark.slow(reason="compiles two rules that learn priors, 310 sweeps")
def test_combinations_serve_learned_priors_too():
    """Plain sweeps take hundreds to switch off a factor that the matrix does not need."""
    table = silk.Table(jnp.asarray(drawn(0)[0]))
    model = run.call(first, table)
    fast = swept(silk.SILK(), model, table, 60)[1]
    assert never_falls(fast) and fast[-1] > swept(silk.SILK(memory=0), model, table, 250)[1][-1]


@pytest.mark.parametrize(
    "family",
    [
        silk.Chains,
        pytest.param(silk.Coupled, marks=pytest.mark.slow(reason="compiles coupled sweeps")),
    ],
)
def test_structured_posteriors_have_a_higher_bound(family):
    """By 54 nats on average, of three matrices, at these priors; never by less than 40 here."""
    assert fixed_fit(family)[1][-1] > fixed_fit(silk.MeanField)[1][-1] + 40


@pytest.mark.parametrize("family", [silk.Chains, silk.MeanField])
def test_rows_without_entries_are_where_their_neighbours_lead(family):
    """Their means given the rest are the prior's, and chains know of them what the prior's bridge does."""
    side = fixed_fit(family)[0].silk.rows
    rest = np.setdiff1d(np.arange(N), EMPTY)
    apart = np.abs(np.arange(N)[:, None] - np.arange(N)[None])
    cov = np.exp(-RATES[0] * apart / 2)
    gain = cov[np.ix_(EMPTY, rest)] @ np.linalg.inv(cov[np.ix_(rest, rest)])
    assert_close(side.posterior.mean[np.array(EMPTY)], gain @ side.posterior.mean[rest], 1e-6)
    if family is silk.Chains:
        whole = dense.posterior_cov(side.posterior).reshape(N, K, N, K)
        for k in range(K):
            known = gain @ whole[:, k, :, k][np.ix_(rest, rest)] @ gain.T
            noise = cov[np.ix_(EMPTY, EMPTY)] - gain @ cov[np.ix_(rest, EMPTY)]
            assert_close(side.posterior.var[np.array(EMPTY), k], np.diag(known + noise), 1e-9)


@pytest.mark.slow(reason="compiles the rule that learns priors, 80 sweeps")
def test_ones_everywhere_and_constant_rows():
    """Logits that would run away stay where the bound is finite, and predict what was seen."""
    some = drawn(1)[0]
    some[:40], some[40:50] = 1, -1
    for matrix in (np.ones((N, M), np.int8), some):
        table = silk.Table(jnp.asarray(matrix))
        state, bounds = swept(silk.SILK(), run.call(first, table), table, 40)
        assert never_falls(bounds)
        rows, cols = state.silk.rows, state.silk.cols
        logits = np.asarray(rows.posterior.mean) @ np.asarray(cols.posterior.mean).T
        assert np.mean((logits > 0) == (matrix > 0), where=matrix != 0) > 0.75
        assert np.all((logits[:30] > 1) == (matrix[:30] > 0))
        for side in (rows, cols):
            assert float(jnp.min(side.posterior.var)) > 0 and float(jnp.min(side.prior.rate)) > 0


@pytest.mark.slow(reason="compiles the rule in both precisions")
def test_float32_tracks_float64():
    table = silk.Table(jnp.asarray(drawn(2)[0]))
    model = begun(table, silk.Chains)

    def single(tree):
        return jax.tree.map(lambda a: a.astype("float32") if a.dtype == "float64" else a, tree)

    double, at = swept(PLAIN, model, table, 15)
    short, near = swept(PLAIN, single(model), table, 15)
    assert short.silk.rows.posterior.mean.dtype == jnp.float32
    assert_close(near, at, 1e-5)
    for mine, other in ((short.silk.rows, double.silk.rows), (short.silk.cols, double.silk.cols)):
        std = np.sqrt(other.posterior.var)
        assert np.max(np.abs(mine.posterior.mean - other.posterior.mean) / std) < 1e-2
        assert_close(mine.posterior.var / std**2, np.ones_like(std), 1e-3)


def risen(model, table, solver):
    found = silk.statistics(model, table)
    bound = jnp.sum(found.loss) - model.rows.kl() - model.cols.kl()
    return silk.update_rows(model, found, solver), bound


@pytest.mark.slow(reason="compiles three solvers, 820 rounds")
def test_exact_solves_need_few_rounds_where_jacobi_steps_need_many():
    """Rows given columns, ρ d = .02: within a tenth of a nat after 10 rounds, or over 5 times as many."""
    n, m, rate = 60, 45, 0.02
    some, a = drawn(0, (n, m), (rate, rate), 0.0)
    table = silk.Table(jnp.asarray(some))
    rows = silk.Side(true_prior(n, rate), silk.MeanField(jnp.zeros((n, K)), jnp.ones((n, K))))
    cols = silk.Side(true_prior(m, rate), silk.MeanField(jnp.asarray(a), jnp.full((m, K), 0.1)))
    model = silk.Silk(rows, cols)
    bounds = []
    for solver, rounds in ((silk.Exact(), 20), (silk.Jacobi(), 400), (silk.Jacobi(None), 400)):
        now, found = model, []
        for _ in range(rounds):
            now, bound = run.call(risen, now, table, solver)
            found.append(float(bound))
        bounds.append(np.array(found))
    best = bounds[0][-1]
    assert min(found[-1] for found in bounds[1:]) > best - 0.1
    exact, damped, searched = (np.argmax(found > best - 0.1) for found in bounds)
    assert exact <= 10 and min(damped, searched) > 5 * exact


def posterior_and_bound(model, observed):
    new = silk.update_rows(model, silk.statistics(model, observed), silk.Exact())
    mean, var = new.rows.posterior.mean, new.rows.posterior.var
    return mean, var, silk.elbo(new, observed)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            silk.Chains, marks=pytest.mark.slow(reason="compiles two updates, as Coupled does")
        ),
        silk.Coupled,
    ],
)
def test_rows_at_one_location_are_the_limit_of_small_gaps(family):
    some, model = dense.data(4), dense.some_silk(family, seed=8)
    locations = np.array([0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.7, 2.0, 3.0, 3.0, 4.0])
    tied = silk.group_locations(locations)
    near = silk.group_locations(locations + 1e-7 * np.arange(dense.N))
    p, q, found = model.rows.prior, model.rows.posterior, []
    for here in (tied, near):
        prior = OrnsteinUhlenbeck(jnp.asarray(here.gaps), p.mean, p.variance, p.rate)
        # rows that share a location begin with the same factors
        which = np.arange(len(here.locations)) if here is tied else tied.spot
        old = INDEPENDENT[family](q.mean[which], q.var[which])
        spot = None if here.spot is None else jnp.asarray(here.spot)
        side = silk.Side(prior, old, spot)
        *parts, bound = run.call(posterior_and_bound, silk.Silk(side, model.cols), some.table())
        own = np.arange(dense.N) if here.spot is None else here.spot
        found.append([np.asarray(part)[own] for part in parts] + [float(bound)])
    for exact, limit in zip(*found, strict=True):
        assert_close(exact, limit, 1e-5)


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        pytest.param(
            shape,
            family,
            marks=[]
            if (shape, family) == ((2, 2), silk.MeanField)
            else [pytest.mark.slow(reason="compiles four rules a case")],
        )
        for shape in [(1, 5), (2, 2), (13, 4), (9, 31)]
        for family in [silk.MeanField, silk.Chains, silk.Coupled]
    ],
)
def test_sweeps_of_any_shape_mask_and_spacing_never_fall(shape, family):
    """Even and uneven places, ties, no order; plain sweeps and combined ones, priors learned."""
    rng = np.random.default_rng(sum(shape))
    signs = rng.choice([-1, 0, 1], shape, p=[0.3, 0.4, 0.3]).astype(np.int8)
    signs[0, 0] = 1
    table = silk.Table(jnp.asarray(signs))
    uneven = np.sort(10 ** rng.uniform(-4, 4, shape[0]))
    for rows in (uneven, np.arange(float(shape[0])), np.floor(np.log(uneven))):
        where = silk.group_locations(rows), silk.unordered_locations(shape[1])
        guess = silk.start(table, *where, min(2, *shape), INDEPENDENT[family], key=jr.key(0))
        for memory in (0, 5):
            assert never_falls(swept(silk.SILK(memory=memory), guess, table, 25)[1])
