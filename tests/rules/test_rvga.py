"""The streaming rule: theorems of the paper, per-row oracles, evidence and robustness.

Laws of blocks are in `test_recursion`, of drift in `test_drifts`; all run over likelihoods of one predictor
and of several.
"""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Laplace, Normal, Poisson, StudentT
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Explicit, MirrorProx
from tests import oracles, problems
from tests.laws import absorb, assert_close, positive_definite, same_gaussian, stream
from tests.problems import batch
from tests.tables import BY_NAME, FILTERS, LIKELIHOODS, NOISY, PAPER, name, rule_of, serves, task

BERNOULLI, SOFTMAX = BY_NAME["bernoulli"], BY_NAME["softmax"]
SEARCH = pytest.mark.slow(reason="compiles a general search")


def regression(observed, n=40):
    """Forty rows of one output and four inputs, or of two outputs and two inputs."""
    return task(observed, n, 4 // observed.outputs)


def canonical_slope(observed):
    """∇ log p = y − E y of likelihoods with a canonical link, a class as its indicator vector."""

    def slope(y, f):
        label = y if observed.outputs == 1 else np.eye(observed.outputs)[int(y)]
        return label - observed.moments(f)[0]

    return slope


# theorems -------------------------------------------------------------------------------------------

AGAIN = pytest.mark.slow(reason="compiles the recursion of several outputs for another block size")


@pytest.mark.parametrize(
    ("row", "observed", "block_size"),
    [
        pytest.param(
            row,
            o,
            block_size,
            id=f"{row.name}-{o.name}-{block_size}",
            marks=[AGAIN] if o.outputs > 1 and block_size != 7 and row.name != "implicit" else [],
        )
        for row in FILTERS
        for o in NOISY
        for block_size in ([1, 2, 7, 32, 64] if o.outputs == 1 else [1, 7, 64])
        if serves(row.scheme, o)
    ],
)
def test_theorem_2_every_scheme_is_the_kalman_filter(row, observed, block_size):
    """And the evidence of a linear model is exact."""
    p = regression(observed)
    state = stream(rule_of(observed, row.scheme, block_size=block_size), p.prior, p.x, p.y)
    same_gaussian(state.posterior, *oracles.linear_posterior(*p.linear), 1e-10)
    wanted = oracles.linear_log_evidence(*p.linear)
    np.testing.assert_allclose(state.log_evidence, wanted, rtol=1e-10)
    innovations = oracles.kalman_filter(*p.linear)[2] if observed.outputs == 1 else 0.0
    np.testing.assert_allclose(state.innovations, innovations, rtol=1e-10)
    assert float(state.rows) == 40


def test_the_kalman_filter_is_online_newton_and_the_closed_form():
    p = problems.linear()
    closed = oracles.linear_posterior(p.mean, p.cov, p.x, p.y, 0.5)
    for mean, cov in (
        oracles.kalman_filter(p.mean, p.cov, p.x, p.y, 0.5)[:2],
        oracles.online_newton(p.mean, p.cov, p.x, p.y, 0.5),
    ):
        assert_close(mean, closed[0], 1e-11)
        assert_close(cov, closed[1], 1e-11)


@pytest.mark.parametrize("observed", [BERNOULLI, BY_NAME["poisson"], SOFTMAX], ids=name)
def test_theorem_3_the_ekf_is_the_online_natural_gradient(observed):
    p = regression(observed)
    state = stream(rule_of(observed, EKF()), p.prior, p.x, p.y)
    terms = canonical_slope(observed), observed.fisher
    wanted = oracles.online_natural_gradient(*terms, p.mean, p.cov, p.design, p.y)
    same_gaussian(state.posterior, *wanted, rtol=1e-9)


@pytest.mark.parametrize("observed", [BERNOULLI, SOFTMAX], ids=name)
def test_the_explicit_scheme_is_a_gain_taken_after_expectations(observed):
    """Row by row in dense NumPy, with expectations by quadrature."""
    p = task(observed, 4)

    def site(y, m, v):
        _, gradient, curvature = observed.expected(y, m, v)
        if observed.outputs == 1:
            return gradient / (1 + curvature * v), curvature
        return oracles.gain_after(gradient, curvature, v), curvature

    state = stream(rule_of(observed, Explicit()), p.prior, p.x, p.y)
    # four rows whose integrals are good to 1e-8, of a softmax with variances up to 2 to 1e-7
    wanted = oracles.run_sites(site, p.mean, p.cov, p.design, p.y)
    same_gaussian(state.posterior, *wanted, rtol=1e-6 if observed.outputs > 1 else 1e-7)


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


@pytest.mark.parametrize("observed", NOISY, ids=name)
@pytest.mark.parametrize("block_size", [1, 7])
def test_a_low_rank_precision_of_full_rank_is_the_kalman_filter(observed, block_size):
    p = regression(observed)
    prior = LowRankPrecision(p.mean, np.zeros((4, 4)), np.arange(1.0, 5))
    wanted = oracles.linear_posterior(p.mean, np.diag(1 / np.arange(1.0, 5)), *p.linear[2:])
    state = stream(rule_of(observed, block_size=block_size), prior, p.x, p.y)
    same_gaussian(state.posterior, *wanted, rtol=1e-8)


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_a_diagonal_keeps_the_diagonal_of_the_precision(observed):
    p = regression(observed, 6)
    var = np.arange(1.0, 5)
    state = stream(rule_of(observed, block_size=1), Diagonal(p.mean, var), p.x, p.y)
    mean, var = oracles.diagonal_filter(p.mean, var, *p.linear[2:])
    same_gaussian(state.posterior, mean, np.diag(var), rtol=1e-11)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(BERNOULLI._replace(likelihood=PAPER), id="bernoulli"),
        pytest.param(BY_NAME["multinormal"], id="multinormal"),
        pytest.param(SOFTMAX, id="softmax", marks=SEARCH),
    ],
)
def test_mirror_prox_iterated_is_the_implicit_scheme(observed):
    p = regression(observed)
    implicit = stream(rule_of(observed), p.prior, p.x, p.y).posterior
    many = stream(rule_of(observed, MirrorProx(iterations=80)), p.prior, p.x, p.y).posterior
    same_gaussian(many, implicit.mean, implicit.cov, rtol=1e-9)


# evidence and invariants ----------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [BERNOULLI, SOFTMAX], ids=name)
def test_log_evidence_of_labels_is_that_of_the_predictions(observed):
    p, slope, total = task(observed, 6), canonical_slope(observed), []

    def site(y, m, v):
        probability = observed.average(lambda f: np.exp(observed.log_prob(f, y)), m, v, y)
        total.append(np.log(probability))
        gradient, fisher = np.atleast_1d(slope(y, m)), np.atleast_2d(observed.fisher(m))
        return oracles.gain_after(gradient, fisher, np.atleast_2d(v)), fisher

    oracles.run_sites(site, p.mean, p.cov, p.design, p.y)
    state = stream(rule_of(observed, EKF(), block_size=1), p.prior, p.x, p.y)
    # integrals are good to 1e-8, of a softmax with variances up to 2 to 1e-7
    atol = 1e-7 if observed.outputs == 1 else 1e-6
    np.testing.assert_allclose(state.log_evidence, sum(total), atol=atol)


CONCAVE = [
    pytest.param(
        o,
        id=o.name,
        marks=[SEARCH] * (o.searched and o.name != "laplace"),
    )
    for o in LIKELIHOODS
    if o.concave
]


@pytest.mark.parametrize("observed", CONCAVE)
@given(st.integers(0, 10**6))
@settings(max_examples=8)
def test_an_observation_never_widens_a_log_concave_posterior(observed, seed):
    rng = np.random.default_rng(seed)
    d = 3 * observed.outputs
    cov, x = problems.spd(rng, d), 2 * rng.normal(size=(2, 3))
    y = np.array(observed.labels)[rng.integers(0, 2, 2)]
    state = stream(rule_of(observed, block_size=2), Dense(rng.normal(size=d), cov), x, y)
    change = cov - np.asarray(state.posterior.cov)
    assert np.linalg.eigvalsh(change)[0] > -1e-12 * np.linalg.norm(cov)
    assert np.trace(change) > 0


def test_negative_curvature_is_clipped_and_counted():
    # two outliers of a Student-t: their curvature under the present law is negative
    x, y = np.eye(3)[[0, 1, 2]], np.array([0.1, 30.0, -30.0])
    rule = RVGA(StudentT(3.0, 0.5), Explicit(), block_size=3)
    state = stream(rule, Dense(np.zeros(3), np.eye(3)), x, y)
    assert int(state.clipped) == 2
    variance = state.posterior.variance()
    assert variance[0] < 1
    assert_close(variance[1:], np.ones(2), 1e-14)


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


QUICK = {("implicit", np.float64), *((row.name, np.float32) for row in FILTERS[1:])}
OTHER = pytest.mark.slow(reason="compiles the same two streams in the other precision")


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        pytest.param(
            row,
            dtype,
            id=f"{row.name}-{np.dtype(dtype)}",
            marks=[] if (row.name, dtype) in QUICK else [OTHER],
        )
        for row in FILTERS
        for dtype in (np.float64, np.float32)
    ],
)
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


@pytest.mark.parametrize(
    "n",
    [
        20_000,
        *(
            pytest.param(n, marks=pytest.mark.slow(reason="absorbs so many rows twice"))
            for n in (100_000, 10_000_000)
        ),
    ],
)
def test_many_float32_updates_stay_near_float64(n):
    single, double = long_stream(n, np.float32), long_stream(n, np.float64)
    positive_definite(single.posterior)
    std = np.sqrt(double.posterior.variance())
    assert np.max(np.abs(single.posterior.mean - double.posterior.mean) / std) < 0.05
    # each block rounds the root by 6e-8; relative errors of n/32 blocks add up
    np.testing.assert_allclose(single.posterior.variance(), std**2, rtol=max(1e-3, 2e-9 * n))
    assert int(single.unsolved) == int(double.unsolved) == 0
