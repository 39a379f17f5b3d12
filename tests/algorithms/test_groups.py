"""The streaming rule where an observation has several predictors."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from kalvi.algorithms.rvga import RVGA
from kalvi.algorithms.sites import EKF, QKF, Explicit, Implicit, MirrorProx
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.predictors import MultiLinear
from kalvi.vectors import MultiNormal, Softmax
from tests import problems
from tests.laws import assert_close, positive_definite, same_gaussian, same_state
from tests.problems import batch

SCHEMES = [Implicit(), MirrorProx(2)]
VARIANCE = np.array([0.3, 0.8])


def named(scheme):
    return type(scheme).__name__


@eqx.filter_jit
def absorb(rule, state, rows):
    return rule.update(state, rows)


def stream(rule, prior, x, y, weight=None, dtype=np.float64):
    return absorb(rule, rule.init(prior), batch(x, y, weight, dtype))


def multi(likelihood, scheme=SCHEMES[0], block_size=16, **settings):
    outputs = MultiLinear(likelihood.outputs)
    return RVGA(likelihood, scheme, block_size=block_size, predictor=outputs, **settings)


def regression(n=20, features=2, seed=0):
    """Rows, two outputs each, and the matrices that take all parameters to the outputs of a row."""
    rng = np.random.default_rng(seed)
    x, b = rng.normal(size=(n, features)), rng.normal(size=(2, features))
    y = x @ b.T + rng.normal(size=(n, 2)) * np.sqrt(VARIANCE)
    return x, y, [np.kron(np.eye(2), row) for row in x]


def exact(mean, cov, y, design, weight=None):
    """The posterior of θ by normal equations."""
    weight = np.ones(len(y)) if weight is None else weight
    precision, shift = np.linalg.inv(cov), np.linalg.solve(cov, mean)
    for row, label, w in zip(design, y, weight, strict=True):
        precision = precision + w * row.T @ np.diag(1 / VARIANCE) @ row
        shift = shift + w * row.T @ (label / VARIANCE)
    return np.linalg.solve(precision, shift), np.linalg.inv(precision)


def classes(n=24, c=3, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    scores = 2 * x @ rng.normal(size=(2, c)) + rng.gumbel(size=(n, c))
    return x, np.argmax(scores, axis=1).astype(float)


# linear models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SCHEMES, Explicit(), EKF()], ids=named)
def test_every_scheme_is_the_kalman_filter_and_the_evidence_is_exact(scheme):
    x, y, design = regression()
    mean, cov = np.arange(4.0), problems.spd(np.random.default_rng(2), 4)
    state = stream(multi(MultiNormal(VARIANCE), scheme, block_size=7), Dense(mean, cov), x, y)
    same_gaussian(state.posterior, *exact(mean, cov, y, design), rtol=1e-10)
    whole = np.vstack(design)
    spread = whole @ cov @ whole.T + np.diag(np.tile(VARIANCE, len(x)))
    wanted = stats.multivariate_normal(whole @ mean, spread).logpdf(y.ravel())
    assert_close(state.log_evidence, wanted, 1e-10)
    assert float(state.rows) == len(x)


def test_a_low_rank_precision_of_full_rank_is_the_kalman_filter():
    x, y, design = regression()
    prior = LowRankPrecision(np.zeros(4), np.zeros((4, 4)), np.arange(1.0, 5))
    state = stream(multi(MultiNormal(VARIANCE), block_size=7), prior, x, y)
    wanted = exact(np.zeros(4), np.diag(1 / np.arange(1.0, 5)), y, design)
    same_gaussian(state.posterior, *wanted, rtol=1e-8)


def test_a_diagonal_keeps_the_diagonal_of_the_precision():
    x, y, design = regression(6)
    mean, var = np.zeros(4), np.arange(1.0, 5)
    state = stream(multi(MultiNormal(VARIANCE), block_size=1), Diagonal(mean, var), x, y)
    for row, label in zip(design, y, strict=True):
        spread = row @ np.diag(var) @ row.T + np.diag(VARIANCE)
        mean = mean + var * (row.T @ np.linalg.solve(spread, label - row @ mean))
        var = 1 / (1 / var + np.diag(row.T @ np.diag(1 / VARIANCE) @ row))
    same_gaussian(state.posterior, mean, np.diag(var), rtol=1e-11)


def test_weights_are_repetitions():
    x, y, design = regression(8)
    weight = np.array([1, 2, 0.5, 0, 1, 3, 1, 1.0])
    mean, cov = np.zeros(4), np.eye(4)
    state = stream(multi(MultiNormal(VARIANCE)), Dense(mean, cov), x, y, weight)
    same_gaussian(state.posterior, *exact(mean, cov, y, design, weight), rtol=1e-10)


# classes --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=named)
def test_two_classes_are_the_logistic_of_their_difference(scheme):
    x, y = classes(c=2)
    cov = np.kron(np.array([[2.0, 0.5], [0.5, 1.0]]), np.eye(2))
    apart = np.kron([[-1.0, 1.0]], np.eye(2))
    state = stream(multi(Softmax(2), scheme), Dense(np.zeros(4), cov), x, y)
    one = stream(RVGA(Bernoulli(), scheme), Dense(np.zeros(2), apart @ cov @ apart.T), x, y)
    # the logistic integrals are known to 1e-8
    assert_close(apart @ state.posterior.mean, one.posterior.mean, 1e-7)
    assert_close(apart @ state.posterior.cov @ apart.T, one.posterior.cov, 1e-7)
    assert_close(state.log_evidence, one.log_evidence, 1e-7)
    # and nothing is learned of what they have in common given their difference
    common = np.kron([[1.0, 1.0]], np.eye(2))
    both = np.vstack([apart, common])
    before = np.linalg.inv(both @ cov @ both.T)
    after = np.linalg.inv(both @ np.asarray(state.posterior.cov) @ both.T)
    assert_close(after[2:], before[2:], 1e-8)


@pytest.mark.parametrize("scheme", [Implicit(), EKF()], ids=named)
def test_a_block_is_its_rows_one_by_one(scheme):
    """Rows of every kind at once: ordinary, all zero, of weight 0, 0.5 and 2."""
    x, y = classes(9)
    x[4], weight = 0, np.array([1, 2, 0.5, 1, 1, 0, 1, 3, 1.0])
    prior = Dense(np.full(6, 0.1), problems.spd(np.random.default_rng(3), 6, 0.5))
    one = stream(multi(Softmax(3), scheme, 1, forgetting=0.9), prior, x, y, weight)
    block = stream(multi(Softmax(3), scheme, 9, forgetting=0.9), prior, x, y, weight)
    same_state(block, one, 1e-8)
    assert int(block.unsolved) == 0
    none = stream(multi(Softmax(3), scheme, 9, forgetting=0.9), prior, x, y, np.zeros(9))
    same_gaussian(none.posterior, prior.mean, prior.cov, rtol=1e-13)
    assert float(none.log_evidence) == float(none.rows) == 0


@pytest.mark.parametrize(
    ("dtype", "make"), [(np.float64, "dense"), (np.float32, "dense"), (np.float32, "low rank")]
)
def test_separable_data_and_a_wide_prior(dtype, make):
    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, 60).astype(float)
    x = np.column_stack(
        [np.eye(3)[y.astype(int)] * 5 + 0.1 * rng.normal(size=(60, 3)), np.ones(60)]
    )
    var = np.full(12, 1e6, dtype)
    prior = {
        "dense": Dense(np.zeros(12, dtype), np.diag(var)),
        "low rank": LowRankPrecision(np.zeros(12, dtype), np.zeros((12, 3), dtype), 1 / var),
    }[make]
    state = stream(multi(Softmax(3)), prior, x, y, dtype=dtype)
    positive_definite(state.posterior, tolerance=1e-4 if dtype == np.float32 else 1e-10)
    assert np.all(np.argmax(x @ np.asarray(state.posterior.mean).reshape(3, 4).T, axis=1) == y)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(TypeError, match="Softmax does not go with the predictor Linear"):
        RVGA(Softmax(3))
    with pytest.raises(TypeError, match="Normal does not go with the predictor MultiLinear"):
        RVGA(Normal(), predictor=MultiLinear(3))
    with pytest.raises(ValueError, match="samples=8 is for likelihoods of one predictor"):
        multi(Softmax(3), Explicit(), samples=8)
    with pytest.raises(
        TypeError, match="QKF is for likelihoods of one predictor and Softmax has 3"
    ):
        QKF().group(Softmax(3), *(jnp.zeros(s) for s in ((), 3, (3, 3), ())))
