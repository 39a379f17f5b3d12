"""Blocks of a stream: what its rows say one by one, whatever their weights, padding, drift and outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal, Poisson, Probit
from kalvi.likelihoods.sites import Expected
from kalvi.likelihoods.vector import MultiNormal, Softmax
from kalvi.numerics.precision import matching_precision
from kalvi.predictors import MultiLinear, OffsetLinear, linear_predictor
from kalvi.rules import recursion
from kalvi.rules.recursion import Observations, find_sites, find_together
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit, MirrorProx
from tests import oracles
from tests.laws import (
    absorb,
    assert_close,
    largest_array,
    positive_definite,
    same_gaussian,
    same_state,
    stream,
)
from tests.problems import batch
from tests.tables import BY_NAME, FILTERS, LIKELIHOODS, NOISY, PAPER, name, rule_of, serves, task

LONG = pytest.mark.slow(
    reason="compiles quadrature and a general search, both tested by themselves"
)
INTEGRALS = pytest.mark.slow(reason="compiles integrals for every size of a block")
WEIGHTS = np.array([1, 2, 0.5, 1, 1, 0, 1, 3, 1.0])
BERNOULLI, SOFTMAX = BY_NAME["bernoulli"]._replace(likelihood=PAPER), BY_NAME["softmax"]
MULTINORMAL = BY_NAME["multinormal"]


def long(scheme, observed):
    return [LONG] if observed.searched and scheme.name != "ekf" else []


COMBINATIONS = [
    pytest.param(row.scheme, o, id=f"{row.name}-{o.name}", marks=long(row, o))
    for row in FILTERS
    for o in LIKELIHOODS
    if serves(row.scheme, o)
]


def rows_of_every_kind(observed):
    """Nine rows, one of them all zero, and a prior."""
    p = task(observed, 9)
    p.x[4] = 0
    return p


@pytest.mark.parametrize("likelihood", [Bernoulli(), Normal(), Poisson()])
def test_rows_of_one_predictor_are_one_task_of_a_cpu(likelihood):
    def sites(mean, cov):
        observed = Observations(mean, mean, mean)
        return find_sites(Implicit(), lambda j: likelihood, mean, cov, observed)

    assert "xla_cpu_small_call" in jax.jit(sites).lower(jnp.ones(16), jnp.eye(16)).as_text()


# blocks and weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "observed"), COMBINATIONS)
def test_a_block_is_its_rows_one_by_one(scheme, observed):
    """Rows of every kind at once: ordinary, all zero, of weight 0, 0.5 and 2."""
    p = rows_of_every_kind(observed)
    one, block = (
        stream(rule_of(observed, scheme, block_size=b), p.prior, p.x, p.y, WEIGHTS) for b in (1, 9)
    )
    # quadrature points move with rounding of the predictor's law: a kinked integrand shows 1e-10, and a
    # softmax whose search ends within rounding of its bound 1e-9
    same_state(block, one, rtol=1e-8 if observed.name == "softmax" else 1e-9)
    assert int(one.unsolved) == 0
    assert float(one.rows) == WEIGHTS.sum()


def test_panels_of_a_block_are_its_observations_one_by_one(monkeypatch):
    """Eleven in panels of four, the last of which is filled up, against the recursion as it is written."""
    monkeypatch.setattr(recursion, "PANEL", 4)
    rng, n, likelihood = np.random.default_rng(3), 11, Bernoulli()
    half, mean, y = rng.normal(size=(n, n)), rng.normal(size=n), rng.integers(0, 2, n).astype(float)
    cov = half @ half.T
    weight, left = rng.uniform(0, 2, n), rng.uniform(0.5, 1, n)
    with matching_precision(np.float64):
        given = (jnp.asarray(a) for a in (mean, cov, y, weight, left))
        a, k, *observed = given
        found = find_sites(EKF(), lambda j: likelihood, a, k, Observations(*observed))
        steps, curvatures, past = np.zeros(n), np.zeros(n), (mean.copy(), cov.copy())
        for j in range(n):
            (m, c), column = past, past[1][:, j].copy()
            np.testing.assert_allclose([found.mean[j], found.cov[j]], [m[j], column[j]], rtol=1e-10)
            one = (jnp.asarray(a) for a in (y[j], m[j], left[j] * column[j], weight[j]))
            site = EKF().site(likelihood, *one)
            steps[j], curvatures[j] = left[j] * site.step, left[j] * site.curvature
            shrink = curvatures[j] / (1 + curvatures[j] * column[j])
            past = m + steps[j] * column, c - shrink * np.outer(column, column)
    np.testing.assert_allclose(found.step, steps, rtol=1e-10)
    np.testing.assert_allclose(found.curvature, curvatures, rtol=1e-10)
    np.testing.assert_allclose(mean + cov @ found.coefficient, past[0], rtol=1e-9)


def structured(p, kind):
    """The prior of a task in another structure."""
    return {
        "dense": p.prior,
        "diagonal": Diagonal(p.mean, np.diag(p.cov)),
        "low rank": LowRankPrecision(p.mean, np.zeros((len(p.mean), 2)), 1 / np.diag(p.cov)),
    }[kind]


PROJECTIONS = pytest.mark.slow(reason="compiles projections for both sizes")


@pytest.mark.parametrize(
    ("observed", "kind"),
    [
        pytest.param(o, kind, id=f"{o.name}-{kind}", marks=[PROJECTIONS] * (kind == "low rank"))
        for o in (BERNOULLI, MULTINORMAL, SOFTMAX)
        for kind in ("dense", "diagonal", "low rank")
    ],
)
def test_rows_of_weight_zero_change_nothing(observed, kind):
    p = task(observed, 9)
    prior = structured(p, kind)
    rule = rule_of(observed, EKF(), forgetting=0.9, process_noise=0.01, block_size=9)
    weight = np.ones(9)
    weight[5:] = 0
    some = stream(rule, prior, p.x, p.y, weight)
    x, y = p.x.copy(), p.y.copy()
    x[5:], y[5:] = 1e3, 1.0
    same_state(stream(rule, prior, x, y, weight), some, rtol=1e-12)
    same_state(stream(rule, prior, p.x[:5], p.y[:5]), some, rtol=1e-12)
    none = stream(rule, prior, p.x, p.y, np.zeros(9))
    same_gaussian(none.posterior, prior.mean, prior.covariance.to_dense(), rtol=1e-13)
    assert float(none.log_evidence) == float(none.rows) == 0


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_weights_are_repetitions_where_updates_are_exact(observed):
    p = task(observed, 9)
    rule, weight = rule_of(observed), np.arange(9) % 3.0
    weighted = stream(rule, p.prior, p.x, p.y, weight)
    times = weight.astype(int)
    repeated = stream(rule, p.prior, np.repeat(p.x, times, 0), np.repeat(p.y, times, 0))
    same_state(weighted, repeated, rtol=1e-11)
    wanted = oracles.linear_posterior(*p.linear, weight)
    same_gaussian(weighted.posterior, *wanted, rtol=1e-10)
    parts = stream(rule, p.prior, p.x, p.y, WEIGHTS).posterior
    same_gaussian(parts, *oracles.linear_posterior(*p.linear, WEIGHTS), rtol=1e-10)


@pytest.mark.parametrize(
    ("scheme", "observed"),
    [
        *(pytest.param(row.scheme, BERNOULLI, id=f"{row.name}-bernoulli") for row in FILTERS),
        pytest.param(EKF(), SOFTMAX, id="ekf-softmax"),
        *(
            pytest.param(row.scheme, SOFTMAX, id=f"{row.name}-softmax", marks=LONG)
            for row in FILTERS
            if serves(row.scheme, SOFTMAX) and row.name != "ekf"
        ),
    ],
)
def test_all_zero_rows_teach_nothing_of_theta(scheme, observed):
    p = task(observed, 9)
    state = stream(rule_of(observed, scheme), p.prior, 0 * p.x, p.y)
    same_gaussian(state.posterior, p.mean, p.cov, rtol=1e-14)
    # but they have a probability: every label is as likely as any other
    assert_close(state.log_evidence, -len(p.y) * np.log(len(observed.whole)), 1e-8)


@pytest.mark.parametrize("observed", NOISY, ids=name)
@given(st.permutations(range(8)))
@settings(max_examples=10)
def test_order_of_exact_updates_does_not_matter(observed, order):
    p = task(observed, 8)
    rule = rule_of(observed, block_size=4)
    one, other = (stream(rule, p.prior, p.x[i], p.y[i]) for i in (np.arange(8), order))
    same_gaussian(other.posterior, one.posterior.mean, one.posterior.cov, rtol=1e-10)
    assert_close(other.log_evidence, one.log_evidence, 1e-10)


class Stubborn(Probit):
    """Never solved."""

    def implicit(self, y, mean, var, weight, **how):
        return Normal(1.0).implicit(y, mean, var, weight)._replace(solved=jnp.asarray(False))


class StubbornVector(MultiNormal):
    """Never solved."""

    def implicit(self, y, mean, var, weight, **how):
        return super().implicit(y, mean, var, weight)._replace(solved=jnp.asarray(False))


@pytest.mark.parametrize(
    "observed",
    [
        BERNOULLI._replace(likelihood=Stubborn()),
        MULTINORMAL._replace(likelihood=StubbornVector(np.array([0.4, 1.5]))),
    ],
    ids=name,
)
def test_unsolved_rows_are_counted(observed):
    p = task(observed, 5)
    weight = np.array([1, 1, 0, 1, 1.0])
    state = stream(rule_of(observed, block_size=4), p.prior, p.x, p.y, weight)
    assert int(state.unsolved) == 4


@pytest.mark.parametrize(
    ("scheme", "observed"),
    [
        pytest.param(EKF(), BERNOULLI, id="ekf-bernoulli"),
        pytest.param(EKF(), MULTINORMAL, id="ekf-multinormal"),
        *(
            pytest.param(
                s,
                o,
                id=f"{i}-{o.name}",
                marks=pytest.mark.slow(reason="compiles integrals operation by operation"),
            )
            for s, i, o in (
                (MirrorProx(), "mirror prox", BERNOULLI),
                (MirrorProx(), "mirror prox", SOFTMAX),
            )
        ),
    ],
)
def test_jit_changes_nothing(scheme, observed):
    p = task(observed, 4)
    rule, rows = rule_of(observed, scheme, block_size=2), batch(p.x, p.y)
    with jax.disable_jit():
        plain = rule.update(rule.init(p.prior), rows)
    same_state(absorb(rule, rule.init(p.prior), rows), plain, rtol=1e-12)


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_an_empty_batch_changes_nothing(observed):
    p = task(observed, 0)
    state = rule_of(observed).init(p.prior)
    after = rule_of(observed).update(state, batch(p.x, p.y))
    np.testing.assert_array_equal(after.posterior.root, state.posterior.root)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax(3)], ids=["bernoulli", "softmax"])
def test_low_rank_streams_never_form_a_square_matrix(likelihood):
    features, b, c = 200, 4, likelihood.outputs
    d = c * features
    prior = LowRankPrecision(np.zeros(d), np.zeros((d, 3)), np.ones(d))
    rows = batch(np.ones((2 * b, features)), np.ones(2 * b))
    settings = {"forgetting": 0.9, "process_noise": 0.1, "block_size": b}
    rule = RVGA(likelihood, predictor=linear_predictor(c), **settings)
    assert largest_array(lambda r, s, x: r.update(s, x), rule, rule.init(prior), rows) < d * d // 4


# classes --------------------------------------------------------------------------------------------


def classes(n=24, c=3, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    scores = 2 * x @ rng.normal(size=(2, c)) + rng.gumbel(size=(n, c))
    return x, np.argmax(scores, axis=1).astype(float)


def multi(likelihood, scheme=None, **settings):
    outputs = MultiLinear(likelihood.outputs)
    return RVGA(likelihood, scheme or Implicit(), predictor=outputs, **settings)


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(MirrorProx(2), id="mirror prox"),
        pytest.param(
            Implicit(),
            id="implicit",
            marks=pytest.mark.slow(reason="compiles a softmax and a logistic search"),
        ),
    ],
)
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


@pytest.mark.parametrize(
    ("dtype", "make"),
    [
        (np.float32, "dense"),
        *(
            pytest.param(*case, marks=pytest.mark.slow(reason="compiles a softmax search again"))
            for case in ((np.float64, "dense"), (np.float32, "low rank"))
        ),
    ],
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sampled_expectations_approach_the_integrals(dtype):
    """Draws of the predictors in place of integrals, for several classes too."""
    x, y = classes(6)
    prior = Dense(np.zeros(6, dtype), np.eye(6, dtype=dtype))
    exact = stream(multi(Softmax(3), Explicit(), block_size=2), prior, x, y, dtype=dtype)
    rule = multi(Softmax(3), Explicit(), block_size=2, samples=4000)
    state = eqx.filter_jit(lambda rule, rows, key: rule.update(rule.init(prior), rows, key=key))(
        rule, batch(x, y, dtype=dtype), jr.key(0)
    )
    assert state.posterior.mean.dtype == dtype
    assert_close(state.posterior.mean, exact.posterior.mean, 0.05)
    assert_close(state.posterior.cov, exact.posterior.cov, 0.05)


class Valley(MultiNormal):
    """Normal noise whose log-probability is said to bend upwards along the second output."""

    log_concave = False

    def expect(self, y, mean, var):
        value, gradient, curvature = super().expect(y, mean, var)
        return Expected(value, gradient, curvature * jnp.asarray([[1.0, 0.0], [0.0, -1.0]]))


def test_negative_curvatures_of_several_outputs_are_set_to_zero_and_counted():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    rule = multi(Valley(jnp.asarray([0.5, 0.5])), Explicit(), block_size=5)
    state = stream(rule, Dense(np.zeros(4), np.eye(4)), x, y)
    assert int(state.clipped) == 5
    # the second output teaches nothing of its parameters' precision
    first = np.linalg.inv(np.eye(2) + x.T @ x / 0.5)
    assert_close(state.posterior.cov[:2, :2], first, 1e-10)
    assert_close(state.posterior.cov[2:, 2:], np.eye(2), 1e-10)
    concave = multi(MultiNormal(jnp.asarray([0.5, 0.5])), Explicit(), block_size=5)
    assert int(stream(concave, Dense(np.zeros(4), np.eye(4)), x, y).clipped) == 0


def test_learned_noise_counts_a_block_once_however_its_rows_are_taken():
    """A wide prior has the first rows absorbed one by one; the noise is that of the block's start."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 2))
    y = x @ [1.0, -2.0] + rng.normal(size=8)
    prior = Dense(np.zeros(2), 1e12 * np.eye(2))
    state = stream(RVGA(Normal(0.5), learn_noise=True, block_size=8), prior, x, y)
    mean, cov, squares = np.zeros(2), 1e12 * np.eye(2), []
    for row, label in zip(x, y, strict=True):
        cov = np.linalg.inv(np.linalg.inv(cov) + np.outer(row, row) / 0.5)
        mean = mean + cov @ row * (label - row @ mean) / 0.5
        squares.append((label - row @ mean) ** 2 + row @ cov @ row)
    assert int(state.noise.blocks) == 1
    wanted = 0.5 + 2**-0.6 * (np.mean(squares) - 0.5)
    assert_close(state.noise.variance, [wanted], 1e-6)  # 1e12 · eps of the oracle's inverses


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="Linear gives 1 numbers for an input and Softmax needs 3"):
        RVGA(Softmax(3))
    with pytest.raises(ValueError, match="MultiLinear gives 3 numbers for an input and Normal"):
        RVGA(Normal(), predictor=MultiLinear(3))
    with pytest.raises(ValueError, match="look_ahead= is for networks"):
        RVGA(Normal(), look_ahead=1)
    with pytest.raises(
        TypeError, match="directions= is for a Network; the predictor is MultiLinear"
    ):
        multi(Softmax(3), directions=1)
    rule = RVGA(Normal(), predictor=OffsetLinear())
    with pytest.raises(TypeError, match="variance of their own, and OffsetLinear has one"):
        rule.update(rule.init(Dense(np.zeros(1), np.eye(1))), batch(np.ones((2, 3)), np.ones(2)))
    with pytest.raises(ValueError, match=r"MultiNormal needs .* two outputs or more.* use Normal"):
        MultiNormal(jnp.ones(1))
    with pytest.raises(ValueError, match=r"MultiLinear needs two outputs or more; got 1"):
        MultiLinear(1)
    with pytest.raises(TypeError, match=r"QKF takes likelihoods of one predictor .* Implicit"):
        QKF().site(Softmax(3), *(jnp.zeros(s) for s in ((), 3, (3, 3), ())))


# all at once -----------------------------------------------------------------------------------------


def alike_rows(spread):
    """Twelve rows of three numbers: the law of their predictors, and labels of every weight."""
    rng = np.random.default_rng(4)
    x = jnp.asarray(spread * rng.normal(size=(12, 3)))
    weight = jnp.asarray(rng.integers(0, 3, 12), float)
    y = jnp.asarray(rng.integers(0, 2, 12), float)
    return x @ jnp.asarray(rng.normal(size=3)), x @ x.T, Observations(y, weight, weight / 3 + 0.3)


def sites_by(find, scheme):
    likelihood = Bernoulli()
    return jax.jit(lambda *law: find(scheme, lambda j: likelihood, *law))


@pytest.mark.parametrize(("scheme", "spreads"), [(Implicit(), (0.1, 1)), (EKF(), (0.1, 1, 3))])
def test_sites_found_together_are_those_found_one_by_one(scheme, spreads):
    in_turn, at_once = sites_by(find_sites, scheme), sites_by(find_together, scheme)
    for spread in spreads:
        law = alike_rows(spread)
        found, settled = at_once(*law)
        assert bool(settled)
        for mine, wanted in zip(found, in_turn(*law), strict=True):
            assert_close(mine, wanted, 1e-11)


def test_rounds_that_do_not_settle_leave_it_to_the_recursion(monkeypatch):
    law = alike_rows(1.0)
    wanted = sites_by(find_sites, EKF())(*law)
    monkeypatch.setattr(recursion, "MOST_ROUNDS", 2)
    assert not bool(sites_by(find_together, EKF())(*law)[1])
    monkeypatch.setattr(recursion, "platform", lambda: "gpu")
    for mine, other in zip(sites_by(find_sites, EKF())(*law), wanted, strict=True):
        assert_close(mine, other, 1e-15)
