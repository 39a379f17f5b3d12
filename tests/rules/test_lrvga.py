"""The streaming rule with a low-rank precision: L-RVGA, its exactness in a block, its memory and safety."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.numerics import linalg
from kalvi.numerics.projections import EM, Eigen
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import Explicit, MirrorProx
from kalvi.streams import run
from tests import oracles
from tests.laws import assert_close, largest_array, same_gaussian
from tests.problems import batch
from tests.tables import PAPER

D = 8


def drawn(n=30, d=D, seed=0):
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(n, d)), rng.normal(size=d)
    return x, x @ theta + rng.normal(size=n), (rng.random(n) < 0.5).astype(float)


@pytest.mark.parametrize("loops", [1, 3])
def test_block_one_with_em_is_the_papers_algorithm(loops):
    # dense: eqs. 29-30, then `loops` EM iterations from the previous factors, row by row
    x, y, _ = drawn()
    prior = LowRankPrecision.scattered(
        np.zeros(D), np.full(D, 4.0), 2, key=jr.key(0), projection=EM(loops)
    )
    state = run.fit(RVGA(Normal(0.5), block_size=1), prior, [batch(x, y)])
    mean = np.zeros(D)
    factor, diag = np.asarray(prior.precision.factor), np.asarray(prior.precision.diag)
    for row, label in zip(x, y, strict=True):
        precision = factor @ factor.T + np.diag(diag)
        gain = np.linalg.solve(precision, row)
        mean = mean + gain * (label - row @ mean) / (0.5 + row @ gain)
        target = precision + np.outer(row, row) / 0.5
        factor, diag = oracles.factor_analysis_em(target, factor, diag, loops)
    assert_close(state.posterior.mean, mean, 1e-10)
    assert_close(state.posterior.precision.factor, factor, 1e-10)
    assert_close(state.posterior.precision.diag, diag, 1e-10)


def test_a_block_is_exact_up_to_its_one_projection():
    x, _, y = drawn(12)
    prior = LowRankPrecision(np.zeros(D), np.zeros((D, 2)), np.ones(D))
    low = run.fit(RVGA(PAPER, Explicit(), block_size=12), prior, [batch(x, y)]).posterior
    mean, cov = np.zeros(D), np.eye(D)
    for row, label in zip(x, y, strict=True):
        cov_x = cov @ row
        step, curvature = oracles.explicit_site(label, row @ mean, row @ cov_x)
        mean = mean + step * cov_x
        cov = np.linalg.inv(np.linalg.inv(cov) + curvature * np.outer(row, row))
    assert_close(low.mean, mean, 1e-9)
    assert_close(low.precision.diagonal(), np.diag(np.linalg.inv(cov)), 1e-9)


@pytest.mark.parametrize("block_size", [1, 16])
def test_with_as_many_factors_as_parameters_it_is_the_kalman_filter(block_size):
    x, y, _ = drawn(60)
    prior = LowRankPrecision(np.zeros(D), np.zeros((D, D)), np.full(D, 0.01))
    found = run.fit(RVGA(Normal(0.1), block_size=block_size), prior, [batch(x, y)])
    exact = oracles.linear_posterior(np.zeros(D), 100 * np.eye(D), x, y, 0.1)
    same_gaussian(found.posterior, *exact, rtol=1e-8)


def test_scattered_priors_keep_the_precision_in_expectation():
    var = np.linspace(0.5, 4.0, D)
    priors = [
        LowRankPrecision.scattered(np.zeros(D), var, 2, key=jr.key(i), share=0.3)
        for i in range(400)
    ]
    mean = np.mean([np.asarray(q.precision.to_dense()) for q in priors], axis=0)
    scale = np.sqrt(np.outer(1 / var, 1 / var))
    np.testing.assert_allclose(mean / scale, np.eye(D), atol=0.06)  # 400 draws: 4 standard errors
    # columns have the length that makes the trace right for a prior of equal variances
    even = LowRankPrecision.scattered(np.zeros(D), np.full(D, 9.0), 3, key=jr.key(0), share=0.3)
    np.testing.assert_allclose(jnp.sum(even.precision.diagonal()), D / 9, rtol=1e-12)


def test_no_array_is_larger_than_the_factor_and_the_block():
    d, p, b = linalg.CHUNK_NUMBERS // 7 + 100, 3, 4
    prior = LowRankPrecision(np.zeros(d), np.zeros((d, p)), np.ones(d), Eigen(2))
    rows, rule = batch(np.ones((b, d)), np.ones(b)), RVGA(Bernoulli(), block_size=b)
    assert largest_array(lambda s, x: rule.update(s, x), rule.init(prior), rows) <= d * max(p, b)


def test_a_block_needs_little_memory_beside_the_state():
    # what the compiled update holds beyond its arguments, against the factor's own size
    d, p, b = 10 * linalg.CHUNK_NUMBERS // 24, 20, 4
    prior = LowRankPrecision(np.zeros(d), np.zeros((d, p)), np.ones(d))
    assert sum(leaf.size for leaf in jax.tree.leaves(prior)) == d * (p + 2)
    rows, rule = batch(np.ones((b, d)), np.ones(b)), RVGA(Normal(1.0), block_size=b)
    taken = run._take_apart(*jax.tree.flatten((rule, rule.init(prior), rows, None)))
    program = run._advance.lower(*taken).compile().memory_analysis()
    assert program.temp_size_in_bytes < 0.5 * prior.precision.factor.nbytes


@pytest.mark.parametrize(
    ("projection", "passes"),
    [
        (Eigen(), 8),
        *(
            pytest.param(p, 800, marks=pytest.mark.slow(reason="absorbs 800,000 rows"))
            for p in (Eigen(), EM(2))
        ),
    ],
)
def test_a_hundred_thousand_float32_blocks_stay_sound(projection, passes):
    # badly scaled inputs under a flat prior; the mean and the precision against float64
    rng = np.random.default_rng(0)
    scales = np.array([1e2, 1e2, 1.0, 1.0, 1e-2, 1e-2])
    x = rng.normal(size=(1000, 6)) * scales
    y = x @ (rng.normal(size=6) / scales) + rng.normal(size=1000)

    def passed(dtype, passes):
        prior = LowRankPrecision(
            np.zeros(6, dtype), np.zeros((6, 2), dtype), np.full(6, 1e-6, dtype), projection
        )
        rule = RVGA(Normal(1.0), block_size=8)
        rows = batch(x, y, dtype=dtype)
        return run.fit(rule, prior, [rows] * passes).posterior

    end = passed(np.float32, passes)  # 800 are 100,000 blocks
    assert np.all(np.asarray(end.precision.diag) > 0)
    assert np.all(np.isfinite(np.asarray(end.mean))) and np.all(np.isfinite(end.variance()))
    if isinstance(projection, EM):
        return  # its path through so few loops depends on every digit
    early, exact = passed(np.float32, 4), passed(np.float64, 4)
    np.testing.assert_allclose(early.precision.diagonal(), exact.precision.diagonal(), rtol=1e-3)
    std = np.sqrt(np.asarray(exact.variance()))
    # γ xᵀΣx reaches 1e10 here, a thousand times more than float32 resolves
    assert np.max(np.abs(np.asarray(early.mean) - np.asarray(exact.mean)) / std) < 0.5


@pytest.mark.parametrize(
    "scheme",
    [
        MirrorProx(),
        pytest.param(
            MirrorProx(extra_covariance=False),
            marks=pytest.mark.slow(reason="compiles three low-rank streams, as the other does"),
        ),
    ],
)
def test_sampled_expectations_approach_the_integrals(scheme):
    x, _, y = drawn(6, 3)
    prior, rows = LowRankPrecision(np.zeros(3), np.zeros((3, 2)), np.ones(3)), batch(x, y)
    exact = run.fit(RVGA(Bernoulli(), scheme, block_size=2), prior, [rows]).posterior
    sampled = [
        run.fit(RVGA(Bernoulli(), scheme, block_size=2, samples=k), prior, [rows], key=jr.key(1))
        for k in (64, 16384)
    ]
    std = np.sqrt(np.asarray(exact.variance()))
    error = [np.max(np.abs(np.asarray(s.posterior.mean) - exact.mean) / std) for s in sampled]
    # six rows of 16384 draws: 6 · 0.5/√16384 = 0.02 is four standard errors and more
    assert error[1] < 0.02 < error[0] * 4


def test_sampling_needs_a_key_and_an_explicit_scheme():
    x, _, y = drawn(4, 3)
    prior = Dense(np.zeros(3), np.eye(3))
    with pytest.raises(ValueError, match=r"RVGA\(samples=5\) draws samples and needs a key"):
        run.fit(RVGA(Bernoulli(), Explicit(), samples=5), prior, [batch(x, y)])
    with pytest.raises(ValueError, match="Implicit takes no sampled expectations; use Explicit"):
        run.fit(RVGA(Bernoulli(), samples=5), prior, [batch(x, y)], key=jr.key(0))


def test_a_run_with_samples_can_be_resumed():
    x, _, y = drawn(8, 3)
    rule, prior = (
        RVGA(Bernoulli(), Explicit(), block_size=2, samples=3),
        Dense(np.zeros(3), np.eye(3)),
    )
    rows = [batch(x[i : i + 2], y[i : i + 2]) for i in range(0, 8, 2)]
    whole = run.fit(rule, prior, rows, key=jr.key(2))
    half = run.fit(rule, prior, rows[:2], key=jr.key(2))
    rest = run.resume(rule, half, rows[2:], key=jr.key(2), first_block=2)
    np.testing.assert_array_equal(whole.posterior.mean, rest.posterior.mean)


def test_a_flat_prior_costs_no_digits_in_a_block():
    # one row at a time as long as digits would be lost, then the rest at once
    x, y, _ = drawn(40)
    prior = LowRankPrecision(np.zeros(D), np.zeros((D, D)), np.full(D, 1e-6))
    found = run.fit(RVGA(Normal(0.1), block_size=40), prior, [batch(x, y)]).posterior
    mean, cov = oracles.linear_posterior(np.zeros(D), 1e6 * np.eye(D), x, y, 0.1)
    same_gaussian(found, mean, cov, rtol=1e-6)
