"""The streaming rule: theorems of the paper, per-row oracles, blocks, weights, drift and robustness."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from kalvi import linalg
from kalvi.algorithms.rvga import RVGA
from kalvi.algorithms.sites import EKF, Explicit, Implicit, MirrorProx
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Laplace, Normal, Poisson, Probit, StudentT
from tests import oracles, problems
from tests.laws import assert_close, largest_array, positive_definite, same_gaussian, same_state
from tests.problems import batch
from tests.tables import FILTERS, LIKELIHOODS, PAPER, name, serves


@eqx.filter_jit
def absorb(rule, state, rows):
    return rule.update(state, rows)


def stream(rule, prior, x, y, weight=None, dtype=np.float64):
    """The state after all rows."""
    return absorb(rule, rule.init(prior), batch(x, y, weight, dtype))


def labels(observed, x, seed=0):
    """Labels that the likelihood could have produced."""
    rng = np.random.default_rng(seed)
    if set(observed.labels) == {0.0, 1.0}:
        return rng.integers(0, 2, len(x)).astype(float)
    if observed.name == "poisson":
        return rng.poisson(2.0, len(x)).astype(float)
    return x.sum(axis=1) + rng.normal(size=len(x))


# theorems -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", FILTERS, ids=name)
@pytest.mark.parametrize("block_size", [1, 2, 7, 32, 64])
def test_theorem_2_every_scheme_is_the_kalman_filter(row, block_size):
    p = problems.linear()
    rule = RVGA(Normal(0.5), row.scheme, block_size=block_size)
    state = stream(rule, Dense(p.mean, p.cov), p.x, p.y)
    same_gaussian(state.posterior, *oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5), 1e-10)


def test_the_kalman_filter_is_online_newton_and_the_closed_form():
    p = problems.linear()
    closed = oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5)
    for mean, cov in (
        oracles.kalman_filter(p.mean, p.cov, p.x, p.y, 0.5)[:2],
        oracles.online_newton(p.mean, p.cov, p.x, p.y, 0.5),
    ):
        assert_close(mean, closed[0], 1e-11)
        assert_close(cov, closed[1], 1e-11)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_theorem_3_the_ekf_is_the_online_natural_gradient(kind):
    likelihood, p, mean, fisher = {
        "bernoulli": (
            Bernoulli(),
            problems.binary(),
            special.expit,
            lambda f: special.expit(f) * special.expit(-f),
        ),
        "poisson": (Poisson(), problems.counts(), np.exp, np.exp),
    }[kind]
    state = stream(RVGA(likelihood, EKF()), Dense(p.mean, p.cov), p.x, p.y)
    wanted = oracles.online_natural_gradient(
        lambda y, f: y - mean(f), fisher, p.mean, p.cov, p.x, p.y
    )
    same_gaussian(state.posterior, *wanted, rtol=1e-9)


@pytest.mark.parametrize("row", FILTERS, ids=name)
def test_posterior_after_forty_rows_is_the_per_row_oracles(row):
    p = problems.binary()
    state = stream(RVGA(PAPER, row.scheme), Dense(p.mean, 4 * p.cov), p.x, p.y)
    wanted = oracles.run_sites(row.site, p.mean, 4 * p.cov, p.x, p.y)
    same_gaussian(state.posterior, *wanted, rtol=1e-9)
    assert int(state.unsolved) == int(state.clipped) == 0


def test_schemes_are_different_filters():
    p = problems.binary()
    means = [
        stream(RVGA(PAPER, row.scheme), Dense(p.mean, 4 * p.cov), p.x, p.y).posterior.mean
        for row in FILTERS
    ]
    for i, one in enumerate(means):
        assert all(np.max(np.abs(one - other)) > 1e-3 for other in means[:i])


def test_a_low_rank_precision_of_full_rank_is_the_kalman_filter():
    p = problems.linear()
    prior = LowRankPrecision(p.mean, np.zeros((4, 4)), np.arange(1.0, 5))
    wanted = oracles.linear_posterior(p.mean, np.diag(1 / np.arange(1.0, 5)), p.x, p.y, 0.5)
    for block_size in (1, 7):
        state = stream(RVGA(Normal(0.5), block_size=block_size), prior, p.x, p.y)
        same_gaussian(state.posterior, *wanted, rtol=1e-8)


def test_mirror_prox_iterated_is_the_implicit_scheme():
    p = problems.binary()
    prior = Dense(p.mean, p.cov)
    implicit = stream(RVGA(PAPER), prior, p.x, p.y).posterior
    many = stream(RVGA(PAPER, MirrorProx(iterations=80)), prior, p.x, p.y).posterior
    same_gaussian(many, implicit.mean, implicit.cov, rtol=1e-9)


# blocks and weights ---------------------------------------------------------------------------------

SEARCHED = ("custom", "laplace", "probit", "student")
COMBINATIONS = [
    pytest.param(
        row.scheme,
        o,
        id=f"{row.name}-{o.name}",
        # sites by quadrature and a general search, both tested by themselves, compile for long
        marks=[pytest.mark.slow] if o.name in SEARCHED else [],
    )
    for row in FILTERS
    for o in LIKELIHOODS
    if serves(row.scheme, o)
]


@pytest.mark.parametrize(("scheme", "observed"), COMBINATIONS)
def test_a_block_is_its_rows_one_by_one(scheme, observed):
    """Rows of every kind at once: ordinary, all zero, of weight 0, 0.5 and 2."""
    rng = np.random.default_rng(0)
    x = 0.7 * rng.normal(size=(9, 3))
    x[4] = 0
    y, weight = labels(observed, x), np.array([1, 2, 0.5, 1, 1, 0, 1, 3, 1.0])
    prior = Dense(np.array([0.2, -0.1, 0.3]), problems.spd(rng, 3, 0.5))
    one = stream(RVGA(observed.likelihood, scheme, block_size=1), prior, x, y, weight)
    block = stream(RVGA(observed.likelihood, scheme, block_size=9), prior, x, y, weight)
    # quadrature points move with rounding of the predictor's law: a kinked integrand shows 1e-10
    same_state(block, one, rtol=1e-9)
    assert int(one.unsolved) == 0
    assert float(one.rows) == weight.sum()


@pytest.mark.parametrize("make", ["dense", "diagonal", "low rank"])
def test_rows_of_weight_zero_change_nothing(make):
    p = problems.binary(12)
    prior = {
        "dense": Dense(p.mean, p.cov),
        "diagonal": Diagonal(p.mean, np.diag(p.cov)),
        "low rank": LowRankPrecision(p.mean, np.zeros((4, 2)), 1 / np.diag(p.cov)),
    }[make]
    rule = RVGA(PAPER, EKF(), forgetting=0.9, process_noise=0.01, block_size=12)
    weight = np.ones(12)
    weight[7:] = 0
    some = stream(rule, prior, p.x, p.y, weight)
    x, y = p.x.copy(), p.y.copy()
    x[7:], y[7:] = 1e3, 1.0
    same_state(stream(rule, prior, x, y, weight), some, rtol=1e-12)
    without = stream(rule, prior, p.x[:7], p.y[:7])
    same_state(without, some, rtol=1e-12)


def test_weight_two_is_the_row_twice_where_updates_are_exact():
    p = problems.linear(10)
    rule, prior = RVGA(Normal(0.5)), Dense(p.mean, p.cov)
    weight = np.arange(10) % 3.0
    weighted = stream(rule, prior, p.x, p.y, weight).posterior
    times = weight.astype(int)
    repeated = stream(rule, prior, np.repeat(p.x, times, 0), np.repeat(p.y, times)).posterior
    same_gaussian(weighted, repeated.mean, repeated.cov, rtol=1e-11)
    wanted = oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5, weight)
    same_gaussian(weighted, *wanted, rtol=1e-10)


def test_all_zero_rows_teach_nothing_of_theta():
    p = problems.binary(5)
    for scheme in (Implicit(), EKF()):
        state = stream(RVGA(PAPER, scheme), Dense(p.mean, p.cov), 0 * p.x, p.y)
        same_gaussian(state.posterior, p.mean, p.cov, rtol=1e-14)
        # but they have a probability: a coin toss each
        assert_close(state.log_evidence, 5 * np.log(0.5), 1e-8)


# drift ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_forgetting_is_exponentially_weighted_regression(block_size):
    p = problems.linear()
    rule = RVGA(Normal(0.5), forgetting=0.93, block_size=block_size)
    state = stream(rule, Dense(p.mean, p.cov), p.x, p.y)
    same_gaussian(
        state.posterior, *oracles.discounted_ridge(p.mean, p.cov, p.x, p.y, 0.5, 0.93), rtol=1e-10
    )
    assert_close(state.rows, (1 - 0.93**40) / (1 - 0.93), 1e-12)


@pytest.mark.parametrize("scheme", [Implicit(), EKF(), MirrorProx()], ids=["imp", "ekf", "mp"])
def test_forgetting_does_not_depend_on_the_block_size(scheme):
    p = problems.binary()
    states = [
        stream(RVGA(PAPER, scheme, forgetting=0.9, block_size=b), Dense(p.mean, p.cov), p.x, p.y)
        for b in (1, 5, 16)
    ]
    for other in states[1:]:
        same_state(other, states[0], rtol=1e-9)


def test_forgetting_of_diagonal_and_low_rank_is_tempering():
    # one row: λ Σ⁻¹ + x xᵀ/σ², exact for a low-rank precision with a free factor
    p = problems.linear(1)
    diag = np.arange(1.0, 5)
    prior = LowRankPrecision(p.mean, np.zeros((4, 1)), diag)
    state = stream(RVGA(Normal(0.5), forgetting=0.8, block_size=1), prior, p.x, p.y)
    wanted = oracles.discounted_ridge(p.mean, np.diag(1 / diag), p.x, p.y, 0.5, 0.8)
    same_gaussian(state.posterior, *wanted, rtol=1e-11)
    prior = Diagonal(p.mean, 1 / diag)
    state = stream(RVGA(Normal(0.5), forgetting=0.8, block_size=1), prior, p.x, p.y)
    assert_close(state.posterior.mean, wanted[0], 1e-11)
    assert_close(1 / state.posterior.var, 0.8 * diag + p.x[0] ** 2 / 0.5, 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("structure", ["dense", "low rank"])
def test_a_column_never_observed_stays_finite_however_long_the_stream_forgets(structure, dtype):
    # 0.9^−20000 = 1e915
    rng = np.random.default_rng(0)
    n = 20_000
    x = rng.normal(size=(n, 3))
    x[:, 2] = 0
    y = x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=n)
    zero = np.zeros(3, dtype)
    prior = {
        "dense": Dense(zero, np.eye(3, dtype=dtype)),
        "low rank": LowRankPrecision(zero, np.zeros((3, 2), dtype), np.ones(3, dtype)),
    }[structure]
    with jax.enable_x64(dtype == np.float64):
        state = stream(RVGA(Normal(0.01), forgetting=0.9), prior, x, y, dtype=dtype)
    variance = np.asarray(state.posterior.variance(), float)
    np.testing.assert_allclose(variance[2], linalg.MAX_STD**2, rtol=1e-4)
    last = oracles.discounted_ridge(zero[:2], np.eye(2), x[-400:, :2], y[-400:], 0.01, 0.9)
    # a low-rank structure whose rank suffices keeps half of the digits (linalg.least_diag)
    eps = np.finfo(dtype).eps
    rtol = 50 * np.sqrt(eps) if structure == "low rank" else 1e5 * eps
    np.testing.assert_allclose(state.posterior.mean[:2], last[0], rtol=rtol)
    np.testing.assert_allclose(variance[:2], np.diag(last[1]), rtol=rtol)


def test_process_noise_is_the_kalman_prediction_step():
    p = problems.linear()
    rule = RVGA(Normal(0.5), process_noise=0.02, block_size=1)
    state = stream(rule, Dense(p.mean, p.cov), p.x, p.y)
    mean, cov, innovations = oracles.kalman_filter(p.mean, p.cov, p.x, p.y, 0.5, 0.02)
    same_gaussian(state.posterior, mean, cov, rtol=1e-10)
    assert_close(state.innovations, innovations, 1e-9)


# evidence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_log_evidence_of_a_linear_model_is_exact(block_size):
    p = problems.linear()
    state = stream(RVGA(Normal(0.5), block_size=block_size), Dense(p.mean, p.cov), p.x, p.y)
    wanted = oracles.linear_log_evidence(p.mean, p.cov, p.x, p.y, 0.5)
    np.testing.assert_allclose(state.log_evidence, wanted, rtol=1e-10)
    innovations = oracles.kalman_filter(p.mean, p.cov, p.x, p.y, 0.5)[2]
    np.testing.assert_allclose(state.innovations, innovations, rtol=1e-10)
    assert float(state.rows) == 40


def test_log_evidence_of_binary_labels_is_that_of_the_predictions():
    p = problems.binary(6)
    rule = RVGA(Bernoulli(), EKF(), block_size=1)
    state = stream(rule, Dense(p.mean, p.cov), p.x, p.y)
    total, q = 0.0, Dense(p.mean, p.cov)
    for row, label in zip(p.x, p.y, strict=True):
        m, v = row @ np.asarray(q.mean), row @ np.asarray(q.cov) @ row
        probability = oracles.expect(special.expit, m, v, oracles.around(0.0))
        total += np.log(probability if label else 1 - probability)
        q = stream(rule, q, row[None, :], np.array([label])).posterior
    np.testing.assert_allclose(state.log_evidence, total, atol=1e-7)  # integrals are good to 1e-8


# invariants -----------------------------------------------------------------------------------------

CONCAVE = {
    "normal": Normal(0.3),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "laplace": Laplace(0.5),
}


@given(st.sampled_from(sorted(CONCAVE)), st.integers(0, 10**6))
def test_an_observation_never_widens_a_log_concave_posterior(kind, seed):
    rng = np.random.default_rng(seed)
    cov = problems.spd(rng, 3)
    x, y = 2 * rng.normal(size=(2, 3)), rng.integers(0, 2, 2).astype(float)
    state = stream(RVGA(CONCAVE[kind], block_size=2), Dense(rng.normal(size=3), cov), x, y)
    change = cov - np.asarray(state.posterior.cov)
    assert np.linalg.eigvalsh(change)[0] > -1e-12 * np.linalg.norm(cov)
    assert np.trace(change) > 0


@given(st.permutations(range(8)))
@settings(max_examples=10)
def test_order_of_exact_updates_does_not_matter(order):
    p = problems.linear(8)
    rule, prior = RVGA(Normal(0.5), block_size=4), Dense(p.mean, p.cov)
    one = stream(rule, prior, p.x, p.y)
    other = stream(rule, prior, p.x[order], p.y[order])
    same_gaussian(other.posterior, one.posterior.mean, one.posterior.cov, rtol=1e-10)
    assert_close(other.log_evidence, one.log_evidence, 1e-10)


def test_negative_curvature_is_clipped_and_counted():
    # two outliers of a Student-t: their curvature under the present law is negative
    x, y = np.eye(3)[[0, 1, 2]], np.array([0.1, 30.0, -30.0])
    rule = RVGA(StudentT(3.0, 0.5), Explicit(), block_size=3)
    state = stream(rule, Dense(np.zeros(3), np.eye(3)), x, y)
    assert int(state.clipped) == 2
    variance = state.posterior.variance()
    assert variance[0] < 1
    assert_close(variance[1:], np.ones(2), 1e-14)


def test_unsolved_rows_are_counted():
    class Stubborn(Probit):
        """Never solved."""

        def implicit(self, y, mean, var, weight, **how):
            return Normal(1.0).implicit(y, mean, var, weight)._replace(solved=jnp.asarray(False))

    p = problems.binary(5)
    weight = np.array([1, 1, 0, 1, 1.0])
    state = stream(RVGA(Stubborn(), block_size=4), Dense(p.mean, p.cov), p.x, p.y, weight)
    assert int(state.unsolved) == 4


def test_jit_changes_nothing():
    p = problems.binary(4)
    rule, prior = RVGA(PAPER, MirrorProx(), block_size=2), Dense(p.mean, p.cov)
    rows = batch(p.x, p.y)
    with jax.disable_jit():
        plain = rule.update(rule.init(prior), rows)
    same_state(absorb(rule, rule.init(prior), rows), plain, rtol=1e-12)


def test_low_rank_streams_never_form_a_square_matrix():
    d, b = 200, 4
    prior = LowRankPrecision(np.zeros(d), np.zeros((d, 3)), np.ones(d))
    rows = batch(np.ones((2 * b, d)), np.ones(2 * b))
    rule = RVGA(Bernoulli(), forgetting=0.9, process_noise=0.1, block_size=b)
    assert largest_array(lambda r, s, x: r.update(s, x), rule, rule.init(prior), rows) < d * d // 4


# robustness -----------------------------------------------------------------------------------------


def hard_problem(kind, n=64, d=5):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d))
    y = (x[:, 0] > 0).astype(float)  # separable
    if kind == "huge":
        x = x * 1e6
    elif kind == "tiny":
        x = x * 1e-6
    elif kind == "constant":
        x[:, 1] = 1.0
    elif kind == "duplicated":
        x[:, 1] = x[:, 0]
    elif kind == "zero rows":
        x[::3] = 0
    return x, y


HARD = ["separable", "huge", "tiny", "constant", "duplicated", "zero rows"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row", FILTERS, ids=name)
def test_hard_binary_problems_leave_a_proper_posterior(row, dtype):
    """Prior deviation 100; the claim is finiteness and positivity, and that the right side is predicted."""
    for likelihood in (PAPER, Bernoulli()):
        rule = RVGA(likelihood, row.scheme, block_size=16)
        for kind in HARD:
            x, y = hard_problem(kind)
            prior = Dense(np.zeros(5, dtype), 1e4 * np.eye(5, dtype=dtype))
            state = stream(rule, prior, x, y, dtype=dtype)
            positive_definite(state.posterior, tolerance=1e-5 if dtype == np.float32 else 1e-12)
            assert np.isfinite(state.log_evidence)
            if row.name == "implicit":
                assert int(state.unsolved) == 0
                seen = np.abs(x).sum(axis=1) > 0
                right = (x @ np.asarray(state.posterior.mean, float) > 0) == (y > 0.5)
                assert right[seen].mean() > 0.85, kind


@pytest.mark.parametrize("likelihood", [Poisson(), Laplace(0.5), Normal(0.1)])
def test_hard_problems_for_other_likelihoods(likelihood):
    rule = RVGA(likelihood, block_size=16)
    for kind in ["separable", "duplicated"]:
        x, y = hard_problem(kind, n=32)
        state = stream(rule, Dense(np.zeros(5), 1e4 * np.eye(5)), x, y)
        positive_definite(state.posterior, tolerance=1e-12)
        assert int(state.unsolved) == 0
        seen = np.abs(x).sum(axis=1) > 0
        found = (x @ np.asarray(state.posterior.mean))[seen]
        assert found[y[seen] == 1].mean() > found[y[seen] == 0].mean()


@pytest.mark.parametrize(
    ("dtype", "noise", "spread"),
    [(np.float64, 1e-2, 1e2), (np.float64, 1e-4, 1e4), (np.float32, 1e-2, 1e2)],
)
def test_little_noise_and_a_flat_prior_leave_the_mean_exact(dtype, noise, spread):
    """Of a block of rows whose prior variance is 1e4 to 1e8 times their noise."""
    p = problems.linear(64, 5, variance=noise)
    x, y = (a.astype(dtype).astype(float) for a in (p.x, p.y))
    with jax.enable_x64(dtype == np.float64):
        prior = Dense(np.zeros(5, dtype), spread * np.eye(5, dtype=dtype))
        q = stream(RVGA(Normal(noise)), prior, x, y, dtype=dtype).posterior
    mean, cov = oracles.linear_posterior(np.zeros(5), spread * np.eye(5), x, y, noise)
    std = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(np.sqrt(np.diag(np.asarray(q.cov, float))), std, rtol=1e-4)
    assert np.max(np.abs(np.asarray(q.mean, float) - mean) / std) < 1e-2


def long_stream(n, dtype, seed=0):
    """n logistic rows in ten dimensions, generated and absorbed in chunks."""
    theta = np.linspace(-1, 1, 10)
    rng = np.random.default_rng(seed)
    rule = RVGA(PAPER, block_size=32)
    state = rule.init(Dense(np.zeros(10, dtype), 100 * np.eye(10, dtype=dtype)))
    for _ in range(n // 20_000):
        x = rng.normal(size=(20_000, 10)).astype(np.float32)
        y = (rng.uniform(size=20_000) < special.expit(x @ theta)).astype(np.float32)
        state = absorb(rule, state, batch(x, y, dtype=dtype))
    return state


@pytest.mark.slow
@pytest.mark.parametrize("n", [100_000, 10_000_000])
def test_many_float32_updates_stay_near_float64(n):
    single, double = long_stream(n, np.float32), long_stream(n, np.float64)
    positive_definite(single.posterior)
    std = np.sqrt(double.posterior.variance())
    assert np.max(np.abs(single.posterior.mean - double.posterior.mean) / std) < 0.05
    # each block rounds the root by 6e-8; relative errors of n/32 blocks add up
    np.testing.assert_allclose(single.posterior.variance(), std**2, rtol=max(1e-3, 2e-9 * n))
    assert int(single.unsolved) == int(double.unsolved) == 0


def test_an_empty_batch_changes_nothing():
    state = RVGA(Normal(1.0)).init(Dense(np.zeros(2), np.eye(2)))
    after = RVGA(Normal(1.0)).update(state, batch(np.zeros((0, 2)), np.zeros(0)))
    np.testing.assert_array_equal(after.posterior.root, state.posterior.root)
