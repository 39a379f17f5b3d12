import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kalvi
from kalvi import Dense, Diagonal, LowRankPrecision, merge
from kalvi.gaussians.merging import combined
from kalvi.likelihoods import Normal
from kalvi.rules.rvga import RVGA
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import assert_close, same_gaussian

D, VARIANCE = 6, 0.5
ROWS = problems.linear(n=90, d=D, variance=VARIANCE)


def shards(prior, k):
    rule = RVGA(Normal(VARIANCE), block_size=15)
    parts = [slice(i, None, k) for i in range(k)]
    return [
        run.fit(rule, prior, [problems.batch(ROWS.x[part], ROWS.y[part])]).posterior
        for part in parts
    ]


@pytest.fixture
def exact():
    """The posterior of all rows under N(0.3, diag(1.5 … 2.5))."""
    var = np.linspace(1.5, 2.5, D)
    mean, cov = np.full(D, 0.3), np.diag(var)
    precision = np.linalg.inv(cov) + ROWS.x.T @ ROWS.x / VARIANCE
    shift = mean / var + ROWS.x.T @ ROWS.y / VARIANCE
    return mean, var, np.linalg.solve(precision, shift), np.linalg.inv(precision)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_dense_shards_of_a_linear_model_merge_exactly(exact, k):
    mean, var, expected, cov = exact
    prior = Dense(mean, np.diag(var))
    same_gaussian(merge(shards(prior, k), prior), expected, cov, rtol=1e-10)


@pytest.mark.parametrize("rank", [2, 1])
def test_low_ranks_merge_exactly_where_the_rank_suffices_and_their_mean_wherever(rank):
    """Shards written out in NumPy; either prior says what each of them had before its rows."""
    rng, d = np.random.default_rng(0), 3
    mean, var = np.full(d, 0.3), np.linspace(1.5, 2.5, d)
    rows = rng.normal(size=(2, 1, d))  # of each shard one, the noise of variance one
    y = rng.normal(size=(2, 1))
    parts = []
    for x, label in zip(rows, y, strict=True):
        centre, _ = oracles.linear_posterior(mean, np.diag(var), x, label, 1.0)
        parts.append(
            LowRankPrecision(centre, np.column_stack([x.T, np.zeros((d, rank - 1))]), 1 / var)
        )
    expected, cov = oracles.linear_posterior(mean, np.diag(var), rows[:, 0], y[:, 0], 1.0)
    for prior in (LowRankPrecision(mean, np.zeros((d, rank)), 1 / var), Diagonal(mean, var)):
        merged = merge(parts, prior)
        assert isinstance(merged, LowRankPrecision)
        assert_close(merged.mean, expected, 1e-10)
        assert_close(merged.precision.diagonal(), np.diag(np.linalg.inv(cov)), 1e-9)
        if rank == 2:
            same_gaussian(merged, expected, cov, rtol=1e-9)


@pytest.mark.slow(reason="compiles a low-rank stream and two merges")
def test_low_rank_shards_merge_exactly_where_the_rank_suffices(exact):
    mean, var, expected, cov = exact
    prior = LowRankPrecision(mean, np.zeros((D, D)), 1 / var)
    same_gaussian(merge(shards(prior, 3), prior), expected, cov, rtol=1e-9)
    same_gaussian(merge(shards(prior, 3), Diagonal(mean, var)), expected, cov, rtol=1e-9)


@pytest.mark.slow(reason="compiles a low-rank stream and its merge")
def test_a_merged_mean_does_not_suffer_from_the_projection(exact):
    mean, var, _, _ = exact
    prior = LowRankPrecision(mean, np.zeros((D, 2)), 1 / var)
    parts = shards(prior, 2)
    precisions = [np.asarray(q.precision.to_dense()) for q in parts]
    whole = sum(precisions) - np.diag(1 / var)
    shift = sum(p @ q.mean for p, q in zip(precisions, parts, strict=True)) - mean / var
    merged = merge(parts, prior)
    assert_close(merged.mean, np.linalg.solve(whole, shift), 1e-10)
    # the projection is the structure's own, of the summed precision
    assert_close(merged.precision.diagonal(), np.diag(whole), 1e-10)
    ratio = np.linalg.solve(merged.precision.to_dense(), whole)
    divergence = (np.trace(ratio) - D - np.linalg.slogdet(ratio)[1]) / 2
    plain = np.linalg.solve(np.diag(np.diag(whole)), whole)
    assert divergence < (np.trace(plain) - D - np.linalg.slogdet(plain)[1]) / 4


def test_order_does_not_matter_where_nothing_is_lost(exact):
    mean, var, _, _ = exact
    prior = Dense(mean, np.diag(var))
    parts = shards(prior, 4)
    first, second = merge(parts, prior), merge([merge(parts[2:], prior), *parts[:2]], prior)
    same_gaussian(first, second.mean, second.cov, rtol=1e-10)


def test_diagonal_shards():
    prior = Diagonal(np.zeros(2), np.array([1.0, 4.0]))
    a, b = Diagonal(np.array([1.0, 0.0]), np.array([0.5, 2.0])), prior
    merged = merge([a, b], prior)
    same_gaussian(merged, a.mean, np.diag(a.var), rtol=1e-12)  # b had seen nothing


@pytest.mark.slow(reason="compiles the fits of two numbers of rows")
def test_estimators_posteriors_merge():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (rng.random(400) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))).astype(int)
    model = kalvi.LogisticRegression(fit_intercept=False)
    parts = [kalvi.LogisticRegression(fit_intercept=False).fit(x[i::2], y[i::2]) for i in (0, 1)]
    merged = merge([part.posterior_ for part in parts], Dense(np.zeros(3), np.eye(3)))
    whole = model.fit(x, y).posterior_
    assert (
        float(kalvi.kl(merged, whole)) < 0.05
    )  # the sites of halves differ a little from the whole's


def consistent(kind, seed, dtype):
    """A prior, and four shards whose means are where their precisions say."""
    rng = np.random.default_rng(seed)
    own, centre = np.exp(rng.normal(size=D)), rng.normal(size=D)
    common = 3 * rng.normal(size=(D, 2))
    prior, parts = Diagonal(*(jnp.asarray(a, dtype) for a in (centre, 1 / own))), []
    for _ in range(4):
        factor = common + rng.choice([0, 0.3, 1]) * rng.normal(size=(D, 2))
        diag = own + np.exp(rng.normal(size=D))
        precision = np.diag(diag) + (kind is not Diagonal) * factor @ factor.T
        noise = rng.normal(size=D)
        mean = centre + np.linalg.solve(np.linalg.cholesky(precision).T, noise)
        given = {
            Dense: (mean, np.linalg.inv(precision)),
            Diagonal: (mean, 1 / diag),
            LowRankPrecision: (mean, factor, diag),
        }[kind]
        parts.append(kind(*(jnp.asarray(a, dtype) for a in given)))
    return prior, parts


def orders(parts, prior):
    """All at once, backwards, in pairs, and one after the other."""

    def both(a, b):
        return run.call(combined, (a, b), prior)

    a, b, c, d = parts
    whole = [run.call(combined, tuple(some), prior) for some in (parts, parts[::-1])]
    return [*whole, both(both(a, b), both(c, d)), both(both(both(d, b), c), a)]


def law(q):
    """The natural parameters, and the mean, in float64."""
    precision = np.asarray(q.precision.to_dense(), np.float64)
    return precision, np.asarray(q.mean, np.float64)


def added(parts, prior):
    """What the merged precision and mean are, in NumPy."""
    laws, (own, centre) = [law(q) for q in parts], law(prior)
    precision = sum(p for p, _ in laws) - (len(parts) - 1) * own
    shift = sum(p @ m for p, m in laws) - (len(parts) - 1) * own @ centre
    return precision, np.linalg.solve(precision, shift)


def nats(precision, mean, exact, centre):
    """KL(merged ‖ exact): what the precision and what the mean costs."""
    ratio, away = np.linalg.solve(precision, exact), mean - centre
    return (np.trace(ratio) - D - np.linalg.slogdet(ratio)[1]) / 2, away @ exact @ away / 2


SEEDS = st.integers(0, 10**6)
ROUNDING = {np.float64: 1e-12, np.float32: 1e-4}
"""Of sums of precisions whose eigenvalues are up to 1e3 apart."""


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("kind", [Dense, Diagonal])
@settings(max_examples=12)
@given(seed=SEEDS)
def test_any_order_and_any_groups_are_the_same(kind, dtype, seed):
    prior, parts = consistent(kind, seed, dtype)
    exact, centre = added(parts, prior)
    for merged in orders(parts, prior):
        precision, mean = law(merged)
        assert np.abs(precision - exact).max() < ROUNDING[dtype] * np.abs(exact).max()
        assert nats(precision, mean, exact, centre)[1] < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@settings(max_examples=12)
@given(seed=SEEDS)
def test_any_order_of_low_ranks_loses_about_the_same(dtype, seed):
    prior, parts = consistent(LowRankPrecision, seed, dtype)
    exact, centre = added(parts, prior)
    found = [law(merged) for merged in orders(parts, prior)]
    for precision, _ in found:
        assert_close(np.diag(precision), np.diag(exact), 10 * ROUNDING[dtype])
    costs = [nats(*one, exact, centre) for one in found]
    # all at once: in any order, and the mean is exact
    assert abs(costs[1][0] - costs[0][0]) < 1e3 * ROUNDING[dtype] * (1 + costs[0][0])
    assert max(costs[0][1], costs[1][1]) < ROUNDING[dtype]
    # in groups: the docstring's tolerance
    for precision, mean in costs[2:]:
        assert precision < 2 * costs[0][0] + 0.05
        assert mean < 1


WIDE = Dense(np.zeros(2), np.eye(2))
NARROW = Diagonal(np.zeros(2), np.ones(2))
LOW = LowRankPrecision(np.zeros(2), np.ones((2, 1)), np.ones(2))
STEEP = LowRankPrecision(np.zeros(2), np.full((2, 1), 3.0), np.full(2, 0.1))
"""Whose diagonal contains that of N(0, I), but not in all directions."""
FLAT = LowRankPrecision(np.zeros(2), np.zeros((2, 0)), np.ones(2))
REFUSED = [
    ([], WIDE, ValueError, "merge needs at least one posterior"),
    ([WIDE, NARROW], WIDE, TypeError, "of one kind.*; got Dense, Diagonal"),
    ([WIDE, Dense(np.zeros(3), np.eye(3))], WIDE, ValueError, r"got \[2, 3\] of them"),
    ([LOW, LOW], WIDE, ValueError, "needs a prior without correlations; got a Dense"),
    ([LOW, LOW], LOW, ValueError, "needs a prior without correlations; got a LowRankPrecision"),
    ([WIDE, WIDE], Dense(np.zeros(2), np.eye(2) / 9), ValueError, "do not all contain the prior"),
    (
        [LOW, LOW],
        Diagonal(np.zeros(2), np.full(2, 0.1)),
        ValueError,
        "do not all contain the prior",
    ),
    ([STEEP, STEEP], NARROW, ValueError, "do not all contain the prior"),
    ([FLAT, FLAT], Diagonal(np.zeros(2), np.full(2, 0.1)), ValueError, "do not all contain"),
    (WIDE, WIDE, TypeError, "needs a list of posteriors; got one Dense"),
    (
        [LOW, LowRankPrecision(np.zeros(2), np.ones((2, 2)), np.ones(2))],
        NARROW,
        ValueError,
        "one rank",
    ),
]


@pytest.mark.parametrize(("posteriors", "prior", "error", "message"), REFUSED)
def test_refused(posteriors, prior, error, message):
    with pytest.raises(error, match=message):
        merge(posteriors, prior, again=True)


def test_low_ranks_merge_where_em_took_some_of_the_prior_into_the_factors():
    # 0.7 of the prior's ψ in each of three: the summed ψ is 0.1, the whole precision positive
    part = LowRankPrecision(np.array([1.0, 0.0]), np.array([[5.0], [0.0]]), np.array([0.7, 2.0]))
    merged = merge([part] * 3, NARROW, again=True)
    assert_close(merged.mean, [3 * 25.7 / (3 * 25.7 - 2), 0], 0.01)
    raised = float(merged.precision.diagonal()[0]) - (3 * 25.7 - 2)
    assert abs(raised - (0.35 - 0.1)) < 1e-9


def test_precisions_of_no_factors_merge_as_variances_do():
    prior = Diagonal(np.zeros(2), np.array([1.0, 4.0]))
    means, precisions = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[2.0, 0.5], [3.0, 1.0]])
    parts = [
        LowRankPrecision(m, np.zeros((2, 0)), p) for m, p in zip(means, precisions, strict=True)
    ]
    merged = merge(parts, prior)
    assert isinstance(merged, LowRankPrecision)
    whole = precisions.sum(0) - [1.0, 0.25]
    expected = (means * precisions).sum(0) / whole
    same_gaussian(merged, expected, np.diag(1 / whole), rtol=1e-12)


@pytest.mark.slow(reason="compiles a low-rank stream in single precision and its merge")
def test_nothing_is_lost_over_many_merges():
    # float32: the prior must not be subtracted away
    prior = LowRankPrecision(
        *(jnp.asarray(a, jnp.float32) for a in (np.zeros(8), np.zeros((8, 2)), np.ones(8)))
    )
    parts = shards_of_noise(prior, 5)
    merged = merge(parts, prior)
    assert np.all(np.asarray(merged.precision.diag) > 0)
    assert np.all(np.isfinite(np.asarray(merged.mean)))
    largest = max(float(jnp.max(q.precision.diagonal())) for q in parts)
    assert float(jnp.min(merged.precision.diagonal())) > largest / 2


def shards_of_noise(prior, k):
    rng = np.random.default_rng(1)
    rule = RVGA(Normal(1.0), block_size=32)
    rows = [
        problems.batch(rng.normal(size=(32, 8)), rng.normal(size=32), dtype=np.float32)
        for _ in range(k)
    ]
    return [run.fit(rule, prior, [row]).posterior for row in rows]


def test_the_same_posterior_twice_is_refused():
    prior = kalvi.Dense(np.zeros(2), np.eye(2))
    rows = kalvi.Dense(np.array([1.0, 0.5]), np.diag([0.5, 0.25]))
    same = kalvi.Dense(np.array([1.0, 0.5]), np.diag([0.5, 0.25]))
    other = kalvi.Dense(np.array([1.0, 0.5]), np.diag([0.5, 0.3]))
    with pytest.raises(ValueError, match="posteriors 0 and 2 are the same, number for number"):
        kalvi.merge([rows, other, same], prior)
    twice = kalvi.merge([rows, same], prior, again=True)
    np.testing.assert_allclose(twice.cov, np.diag([1 / 3, 1 / 7]), rtol=1e-12, atol=1e-15)
    none = kalvi.merge([prior, prior, rows], prior)  # shards without rows are alike
    np.testing.assert_allclose(none.cov, rows.cov, rtol=1e-12, atol=1e-15)
