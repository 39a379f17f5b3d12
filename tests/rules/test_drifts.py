"""Drift: filters of NumPy row by row, and the laws that no structure may break.

The prior is stationary, no covariance exceeds it, and what no row excites for long stays as it was.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from kalvi import drifts
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.predictors.networks import make_network
from kalvi.rules.drifts import MOST_AHEAD, part_within, start
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.streams import run
from tests import oracles
from tests.arrow import Arrow
from tests.laws import assert_close, same_gaussian, same_state, stream
from tests.tables import BY_NAME, DIM, NOISY, STRUCTURES, name, rule_of, task

UPDATABLE = [s for s in STRUCTURES if s.updatable]
DRIFTS = [drifts.Geometric(0.9), drifts.OrnsteinUhlenbeck(0.95), drifts.RandomWalk(0.05)]
DRIFT = pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: type(drift).__name__)


def regression(observed, n=40):
    """Forty rows of one output and four inputs, or of two outputs and two inputs."""
    return task(observed, n, 4 // observed.outputs)


# filters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observed", NOISY, ids=name)
@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_geometric_drift_is_exponentially_weighted_regression(observed, block_size):
    p = regression(observed)
    rule = rule_of(observed, drift=0.93, block_size=block_size)
    state = stream(rule, p.prior, p.x, p.y)
    same_gaussian(state.posterior, *oracles.discounted_ridge(*p.linear, 0.93), rtol=1e-10)
    assert_close(state.rows, (1 - 0.93**40) / (1 - 0.93), 1e-12)


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_geometric_drift_of_diagonal_and_low_rank(observed):
    # one row: λ Σ⁻¹ + (1 − λ) Σ₀⁻¹ + x xᵀ/σ², exact for a low-rank precision with a factor for each output
    p, diag = regression(observed, 1), np.arange(1.0, 5)
    wanted = oracles.discounted_ridge(p.mean, np.diag(1 / diag), *p.linear[2:], 0.8)
    rule = rule_of(observed, drift=0.8, block_size=1)
    prior = LowRankPrecision(p.mean, np.zeros((4, observed.outputs)), diag)
    same_gaussian(stream(rule, prior, p.x, p.y).posterior, *wanted, rtol=1e-11)
    state = stream(rule, Diagonal(p.mean, 1 / diag), p.x, p.y)
    assert_close(state.posterior.mean, wanted[0], 1e-11)
    assert_close(1 / state.posterior.var, np.diag(np.linalg.inv(wanted[1])), 1e-12)


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_ornstein_uhlenbeck_and_random_walk_are_kalman_filters(observed):
    p = regression(observed)
    walk = np.sqrt(1 - 0.02 / np.diag(p.cov))
    for drift, keep in ((drifts.OrnsteinUhlenbeck(0.96), 0.96), (drifts.RandomWalk(0.02), walk)):
        state = stream(rule_of(observed, drift=drift, block_size=1), p.prior, p.x, p.y)
        mean, cov, innovations = oracles.kalman_filter(*p.linear, keep)
        same_gaussian(state.posterior, mean, cov, rtol=1e-9)
        assert_close(state.innovations, innovations if observed.outputs == 1 else 0.0, 1e-8)


def test_a_random_walk_from_a_flat_prior_adds_variance():
    cov = np.diag([1e8, 1e8])
    x, y = np.eye(2), np.zeros(2)
    rule = RVGA(Normal(1.0), drift=drifts.RandomWalk(0.25), block_size=1)
    state = stream(rule, Dense(np.zeros(2), cov), x, y)
    assert_close(state.posterior.variance(), [1.25, 1.0], 1e-6)


def test_forgetting_and_process_noise_are_drifts():
    p = task(BY_NAME["bernoulli"], 20)
    for old, new in (
        ({"forgetting": 0.9}, drifts.Geometric(0.9)),
        ({"process_noise": 0.01}, drifts.RandomWalk(0.01)),
    ):
        one, other = (
            stream(RVGA(Bernoulli(), EKF(), **given), p.prior, p.x, p.y)
            for given in (old, {"drift": new})
        )
        assert jax.tree.all(jax.tree.map(np.array_equal, one, other))


def test_networks_drift_row_by_row():
    model, _ = make_network(lambda theta, x: x @ theta, jnp.zeros(3), jnp.zeros(3))
    p = task(BY_NAME["normal"], 12, 3)
    variance = float(np.asarray(p.linear[-1]))
    rule = RVGA(Normal(variance), predictor=model, drift=0.9, block_size=4, look_ahead=1)
    state = stream(rule, p.prior, p.x, p.y)
    same_gaussian(state.posterior, *oracles.discounted_ridge(*p.linear, 0.9), rtol=1e-9)


# laws -----------------------------------------------------------------------------------------------


def excess(q, prior):
    """The largest eigenvalue of Σ₀^{-1/2} Σ Σ₀^{-1/2}."""
    with jax.enable_x64(True):
        covs = (np.asarray(device(host(g)).covariance.to_dense()) for g in (prior, q))
    return linalg.eigh(*reversed([*covs]), eigvals_only=True)[-1]


def prior_of(structure, drift):
    """A prior that is stationary: without a factor, and for a random walk without correlations."""
    prior = structure.make(np.random.default_rng(0)).q
    if structure.name == "low-rank precision":
        return Diagonal(prior.mean, 1 / prior.precision.diag).with_rank(2)
    if not isinstance(drift, drifts.RandomWalk) or structure.name == "diagonal":
        return prior
    if structure.name == "dense":
        return Dense(prior.mean, np.diag(prior.variance()))
    root = jnp.diag(jnp.sqrt(jnp.sum(prior.root**2, axis=1)))
    return Arrow(prior.mean, 0 * prior.slopes, prior.own, root)


SINGLE = pytest.mark.slow(reason="single precision is programs of its own")
PRECISIONS = [
    pytest.param(
        structure,
        dtype,
        id=f"{structure.name}-{np.dtype(dtype)}",
        marks=[SINGLE] * (dtype == np.float32 and structure.name != "low-rank precision"),
    )
    for structure in UPDATABLE
    for dtype in (np.float64, np.float32)
]


@DRIFT
@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
def test_without_news_the_prior_stays(structure, drift):
    prior = prior_of(structure, drift)
    rule = RVGA(Normal(1.0), drift=drift, block_size=8)
    after = device(numpy_stream(rule, prior, np.zeros((64, DIM)), np.ones(64))).posterior
    same_gaussian(after, prior.mean, np.asarray(prior.covariance.to_dense()), rtol=1e-12)


@DRIFT
@pytest.mark.parametrize(("structure", "dtype"), PRECISIONS)
def test_no_covariance_exceeds_the_priors(structure, drift, dtype):
    prior = prior_of(structure, drift)
    rule, rng = RVGA(Bernoulli(), EKF(), drift=drift, block_size=8), np.random.default_rng(1)
    with jax.enable_x64(dtype == np.float64):
        state = run.begin(rule, host(prior, dtype))
        mixed = rng.normal(size=(64, DIM))
        mixed[:, :-2] = np.eye(DIM - 2)[rng.integers(0, DIM - 2, 64)]  # what an arrow can hold
        for x in (mixed, np.eye(DIM)[np.zeros(64, int)]):
            y = (rng.random(64) < 0.5).astype(float)
            for _ in range(5):
                state = run.advance(rule, state, rows(x, y, dtype))
                found = excess(state.posterior, prior)
                assert found <= 1 + 100 * np.finfo(dtype).eps
    # what one direction alone excites for long is the prior again elsewhere
    assert found > 0.9


@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
def test_to_keep_everything_is_not_to_drift(structure):
    prior, p = structure.make(np.random.default_rng(0)).q, task(BY_NAME["bernoulli"], 40, DIM)
    none, one, close = (
        numpy_stream(RVGA(Bernoulli(), EKF(), drift=keep), prior, p.x, p.y)
        for keep in (None, 1.0, np.asarray(1.0))
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, none, one))
    same_state(device(close), device(none), rtol=1e-12)


# steps for several blocks ---------------------------------------------------------------------------


def test_steps_of_a_full_covariance_are_taken_ahead_for_several_blocks():
    d, keep, rng = 20, 0.995, np.random.default_rng(2)
    x, y = rng.normal(size=(400, d)) / 4, rng.normal(size=400)
    prior = Dense(np.zeros(d), np.eye(d))
    assert prior.blocks_per_step() == 3
    rule = RVGA(Normal(0.3), drift=keep, block_size=10)
    state, seen = run.begin(rule, host(prior)), []
    for part in range(0, 400, 10):
        state = run.advance(rule, state, rows(x[part : part + 10], y[part : part + 10]))
        ahead = float(state.drifting.ahead[0])
        exact = oracles.discounted_ridge(
            np.zeros(d), np.eye(d), x[: part + 10], y[: part + 10], 0.3, keep
        )
        # what was taken ahead is a multiple of the prior, of which the oracle knows how large it is
        wanted = oracles.product_of_powers(exact, 1.0, (np.zeros(d), np.eye(d)), keep**-ahead - 1)
        same_gaussian(device(state.posterior), *wanted, rtol=1e-9)
        assert 0 <= keep**-ahead - 1 <= MOST_AHEAD - 1
        seen.append(ahead)
    assert seen[:6] == [20, 10, 0, 20, 10, 0]


def test_steps_wait_for_no_longer_than_the_prior_may_be_off():
    d, keep = 20, 0.97  # 20 rows ahead the prior's part is 1.84 times too large
    rule = RVGA(Normal(0.3), drift=keep, block_size=10)
    state = run.begin(rule, host(Dense(np.zeros(d), np.eye(d))))
    seen = []
    for _ in range(4):
        state = run.advance(rule, state, rows(np.zeros((10, d)), np.zeros(10)))
        seen.append(float(state.drifting.ahead[0]))
    assert seen == [20, 10, 0, 20]  # 30 would be the next
    rule = RVGA(Normal(0.3), drift=0.9, block_size=10)
    state = run.begin(rule, host(Dense(np.zeros(d), np.eye(d))))
    state = run.advance(rule, state, rows(np.zeros((10, d)), np.zeros(10)))
    assert float(state.drifting.ahead[0]) == 0
    assert_close(device(state.posterior).variance(), np.ones(d), 1e-12)


@pytest.mark.parametrize("drift", DRIFTS[1:], ids=lambda drift: type(drift).__name__)
def test_wandering_of_a_full_covariance_is_ahead_for_several_blocks(drift):
    d = 20
    slower = {"OrnsteinUhlenbeck": drifts.OrnsteinUhlenbeck(0.999)}.get(
        type(drift).__name__, drifts.RandomWalk(0.002)
    )
    rule, rng = RVGA(Normal(0.3), drift=slower, block_size=10), np.random.default_rng(3)
    state = run.begin(rule, host(Dense(np.zeros(d), np.eye(d))))
    mean, cov = np.zeros(d), np.eye(d)
    for _ in range(6):
        x, y = rng.normal(size=(10, d)), rng.normal(size=10)
        ahead = float(state.drifting.ahead[0])
        state = run.advance(rule, state, rows(x, y))
        a2 = 0.999**2 if type(drift).__name__ == "OrnsteinUhlenbeck" else 1 - 0.002
        keep = 1.0 if ahead else a2 ** (30 / 2)
        mean, cov = keep * mean, keep**2 * cov + (1 - keep**2) * np.eye(d)
        mean, cov = oracles.linear_posterior(mean, cov, x, y, 0.3)
        same_gaussian(device(state.posterior), mean, cov, rtol=1e-9)


# wind-up --------------------------------------------------------------------------------------------


LEVELS = 24


def skewed_rows(n, seed=0, levels=LEVELS):
    """A constant and one level in each row: one of them in nearly all rows, then all of them again."""
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(n) < n - n // 4, 0, rng.integers(0, levels, n))
    x = np.zeros((n, levels + 1))
    x[:, 0], x[np.arange(n), 1 + level] = 1, 1
    return x, (rng.random(n) < 0.3).astype(float)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("dense", np.float64),
        ("low rank", np.float64),
        ("diagonal", np.float64),
        ("low rank", np.float32),
        pytest.param("dense", np.float32, marks=SINGLE),
        pytest.param("diagonal", np.float32, marks=SINGLE),
    ],
)
@pytest.mark.parametrize("keep", [0.97, 0.99])
def test_levels_that_return_are_predicted_as_before(kind, keep, dtype):
    """Plain forgetting ends in NaN here, or in a log loss of 1e15."""
    n = 2400
    x, y = skewed_rows(n)
    zero = np.zeros(LEVELS + 1, dtype)
    prior = {
        "dense": Dense.from_root(zero, np.eye(LEVELS + 1, dtype=dtype)),
        "low rank": LowRankPrecision.from_parts(
            zero, np.zeros((LEVELS + 1, 5), dtype), np.ones(LEVELS + 1, dtype)
        ),
        "diagonal": Diagonal.from_parts(zero, np.ones(LEVELS + 1, dtype)),
    }[kind]
    rule = RVGA(Bernoulli(), drift=keep, block_size=16)
    with jax.enable_x64(dtype == np.float64):
        state = run.begin(rule, prior)
        for part in np.split(np.arange(n), 4):
            before = float(state.log_evidence)
            state = run.advance(rule, state, rows(x[part], y[part], dtype))
            loss = (before - float(state.log_evidence)) / (n // 4)
            assert 0.5 < loss < 0.72  # the entropy of the labels is .61, and log 2 .69
    assert int(state.unsolved) == 0
    assert np.all(np.asarray(device(state.posterior).variance()) <= 1 + 1e-4)


@pytest.mark.slow(reason="a million rows for each structure")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_a_million_rows_of_one_direction_in_a_hundred(kind, dtype):
    n, d, rng = 1_000_000, 100, np.random.default_rng(0)
    zero = np.zeros(d, dtype)
    prior = {
        "dense": Dense.from_root(zero, np.eye(d, dtype=dtype)),
        "low rank": LowRankPrecision.from_parts(zero, np.zeros((d, 5), dtype), np.ones(d, dtype)),
    }[kind]
    rule = RVGA(Bernoulli(), drift=0.999, block_size=16)
    direction, size = rng.normal(size=d) / 10, 16_000
    with jax.enable_x64(dtype == np.float64):
        state = jax.tree.map(jnp.asarray, run.begin(rule, prior))
        for _ in range(n // size):
            along = rng.normal(size=size)
            x = along[:, None] * direction
            y = (rng.random(size) < 1 / (1 + np.exp(-2 * along))).astype(dtype)
            state = run.resume(rule, state, [rows(x, y, dtype)])
        q = state.posterior
        spread = np.asarray(q.covariance.to_dense(), float)
    assert int(state.unsolved) == 0
    across = np.eye(d) - np.outer(direction, direction) / (direction @ direction)
    values = np.linalg.eigvalsh(across @ spread @ across)
    assert values[-1] <= 1 + 1e-3 and values[1] > 0.6
    assert abs(direction @ np.asarray(q.mean) - 2) < 0.5
    assert -float(state.log_evidence) / n < 0.5


def host(tree, dtype=np.float64):
    """The tree with arrays of NumPy, which compile nothing."""
    return jax.tree.map(lambda a: np.asarray(a, dtype), tree)


def device(tree):
    """The tree with arrays of JAX."""
    return jax.tree.map(jnp.asarray, tree)


def rows(x, y, dtype=np.float64):
    return Batch(np.asarray(x, dtype), np.asarray(y, dtype), np.ones(len(y), dtype))


def numpy_stream(rule, prior, x, y):
    """The state after all rows, by NumPy."""
    return run.fit(rule, host(prior), [rows(x, y)])


# refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: drifts.Geometric(1.5), r"Geometric needs .* a number in \(0, 1\]; got 1\.5"),
        (lambda: drifts.OrnsteinUhlenbeck(0.0), r"OrnsteinUhlenbeck needs .* got 0"),
        (lambda: drifts.RandomWalk(-1.0), "RandomWalk needs a variance of 0 or more; got -1"),
        (lambda: drifts.RandomWalk(np.array(-1.0)), "RandomWalk needs a variance of 0 or more"),
        (lambda: drifts.Geometric(np.array(2.0)), r"Geometric needs .* in \(0, 1\]; got 2"),
        (lambda: RVGA(Normal(1.0), drift=0.0), r"Geometric needs .* got 0"),
    ],
)
def test_bad_drifts_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_state_without_its_prior_is_refused():
    p = task(BY_NAME["bernoulli"], 8)
    still = RVGA(Bernoulli(), EKF()).init(p.prior)
    with pytest.raises(ValueError, match="begun by a rule without drift"):
        RVGA(Bernoulli(), EKF(), drift=0.9).update(still, device(rows(p.x, p.y)))


# uneven times ---------------------------------------------------------------------------------------


def timed(x, y, elapsed):
    return rows(x, y)._replace(elapsed=np.asarray(elapsed, float))


@pytest.mark.parametrize("observed", NOISY, ids=name)
@pytest.mark.parametrize("block_size", [1, 16])
def test_rows_fade_by_the_time_that_passes(observed, block_size):
    """With gaps of 0, and of a thousand rows' time, after which the prior is what is left."""
    p, rng = regression(observed, 30), np.random.default_rng(4)
    elapsed = rng.exponential(size=30) * rng.integers(0, 3, 30)
    elapsed[20] = 1000.0
    after = np.concatenate([np.cumsum(elapsed[::-1])[::-1][1:], [0]])
    wanted = oracles.linear_posterior(*p.linear, weight=0.93**after)
    rule = rule_of(observed, drift=0.93, block_size=block_size)
    state = run.fit(rule, host(p.prior), [timed(p.x, p.y, elapsed)])
    same_gaussian(device(state.posterior), *wanted, rtol=1e-9)
    assert_close(state.rows, np.sum(0.93**after), 1e-9)


def test_times_of_one_row_each_are_no_times():
    p = task(BY_NAME["bernoulli"], 24)
    for drift in DRIFTS:
        rule = RVGA(Bernoulli(), EKF(), drift=drift, block_size=4)
        one, other = (
            device(run.fit(rule, host(p.prior), [batch]))
            for batch in (rows(p.x, p.y), timed(p.x, p.y, np.ones(24)))
        )
        same_state(one, other, rtol=1e-12)


@DRIFT
def test_parts_of_a_block_go_no_further_than_half_of_what_they_say(drift):
    drifting = drifts_start(drift)
    left = jnp.asarray([False, True, True, True, True])
    elapsed = jnp.asarray([9.0, 50.0, 1.0, 0.5, 100.0])
    part, time = part_within((drift,), drifting, elapsed, left)
    np.testing.assert_array_equal(part, [False, True, True, True, False])
    np.testing.assert_array_equal(time, [0, 50, 1, 0.5, 0])


def drifts_start(drift):
    return start((drift,), Diagonal(np.zeros(2), np.ones(2)))
