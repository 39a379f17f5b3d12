"""What shards say together, by the three verbs alone."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import special
from sklearn.exceptions import ConvergenceWarning

import kalvi
from kalvi import distributed
from tests import problems
from tests.laws import assert_close

N, D, PLACES = 160, 3, 4
LINEAR = problems.linear(n=N, d=D, variance=1.0)
BINARY = problems.binary(n=N, d=D)
PLAIN = {"fit_intercept": False, "prior_scale": 2.0}


def places(x, y, k=PLACES):
    return [[(x[i::k], y[i::k])] for i in range(k)]


def learned(model, parts, classes=None):
    first = distributed.Learn(model, classes)
    return first.finish(distributed.tree(first.join, [first.over(part) for part in parts]))


def refined(model, parts, rounds, known=None):
    climb = distributed.Refinement(model, known)
    for _ in range(rounds + 1):
        visit = pickle.loads(pickle.dumps(climb.visit()))  # as it travels
        climb = climb.turn(distributed.tree(visit.join, [visit.over(part) for part in parts]))
    return climb.finish()


def exact(x, y):
    """The posterior of a linear model with unit noise under N(0, 4)."""
    precision = x.T @ x + np.eye(D) / 4
    return np.linalg.solve(precision, x.T @ y), precision


def precision_of(model):
    return np.linalg.inv(np.asarray(model.posterior_.to_dense().cov))


def test_a_linear_model_is_merged_exactly_goes_on_and_refining_changes_nothing(tmp_path):
    x, y = LINEAR.x, LINEAR.y
    parts = places(x[:120], y[:120])
    model = learned(kalvi.LinearRegression(noise_scale=1.0, **PLAIN), parts)
    for found in (model, refined(model, parts, 1)):
        mean, precision = exact(x[:120], y[:120])
        assert_close(found.coef_, mean, 1e-9)
        assert_close(precision_of(found), precision, 1e-9)
    kalvi.save(tmp_path / "model", found)
    onwards = kalvi.load(tmp_path / "model").partial_fit(x[120:], y[120:])
    assert_close(onwards.coef_, exact(x, y)[0], 1e-9)


def test_a_model_that_has_learned_goes_on():
    x, y = LINEAR.x, LINEAR.y
    known = kalvi.LinearRegression(noise_scale=1.0, **PLAIN).partial_fit(x[:40], y[:40])
    parts = places(x[40:], y[40:])
    before = known.posterior_
    model = learned(known, parts)
    mean, precision = exact(x, y)
    for found in (model, refined(model, parts, 1, known)):
        assert_close(found.coef_, mean, 1e-9)
        assert_close(precision_of(found), precision, 1e-9)
    assert known.posterior_ is before


def optimality(model, x, y):
    """How far a logistic posterior is from solving the optimum's equations, by its own quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    mean, cov = np.asarray(model.posterior_.mean), np.asarray(model.posterior_.to_dense().cov)
    f = (x @ mean)[:, None] + np.sqrt(np.sum((x @ cov) * x, axis=1))[:, None] * nodes
    p = special.expit(f)
    gradient = x.T @ (y - p @ weights) - mean / 4
    target = (x * ((p * (1 - p)) @ weights)[:, None]).T @ x + np.eye(D) / 4
    return np.sqrt(gradient @ cov @ gradient), target @ cov - np.eye(D)


def test_refining_goes_to_the_optimum_of_all_rows():
    x, y = BINARY.x, BINARY.y
    parts = places(x, y)
    merged = learned(kalvi.LogisticRegression(**PLAIN), parts, classes=[0, 1])
    assert optimality(merged, x, y)[0] > 0.05  # there is something to do
    once, often = (refined(merged, parts, rounds) for rounds in (1, 10))
    assert optimality(once, x, y)[0] < 0.1 * optimality(merged, x, y)[0]
    gradient, excess = optimality(often, x, y)
    assert gradient < 1e-6
    assert np.abs(excess).max() < 1e-6
    assert (once.n_passes_, often.n_passes_) == (3, 12)
    assert merged.log_evidence_ == once.log_evidence_
    assert once.elbo_ <= often.elbo_


@pytest.mark.parametrize(
    "rank",
    [0, pytest.param(1, marks=pytest.mark.slow(reason="compiles a low-rank stream and pass"))],
)
def test_the_bound_of_a_low_rank_rises(rank):
    x, y = BINARY.x, BINARY.y
    parts = places(x, y)
    merged = learned(kalvi.LogisticRegression(rank=rank, **PLAIN), parts, classes=[0, 1])
    often = refined(merged, parts, 12)
    assert optimality(often, x, y)[0] < 0.1 * optimality(merged, x, y)[0]
    # the optimum's precision has the diagonal of the whole
    target = (optimality(often, x, y)[1] + np.eye(D)) @ precision_of(often)
    assert_close(np.diag(precision_of(often)), np.diag(target), 1e-2)
    assert type(often.posterior_) is type(merged.posterior_)


def test_three_classes_are_refined_to_the_fit_of_all_rows():
    """Which tests/estimators/test_classes.py holds against quadrature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    y = np.argmax(x @ rng.normal(size=(2, 3)) + rng.gumbel(size=(12, 3)), axis=1)
    parts = places(x, y, 2)
    merged = learned(kalvi.LogisticRegression(**PLAIN), parts, classes=[0, 1, 2])
    often = refined(merged, parts, 8)
    whole = kalvi.LogisticRegression(**PLAIN).fit(x, y)
    deviation = np.sqrt(np.diag(np.asarray(whole.posterior_.cov)))

    def away(model):
        mean = np.max(np.abs(model.posterior_.mean - whole.posterior_.mean) / deviation)
        found = np.asarray(model.posterior_.to_dense().cov) - np.asarray(whole.posterior_.cov)
        return mean, np.max(np.abs(found) / np.outer(deviation, deviation))

    assert away(merged)[0] > 0.01  # there is something to do
    assert max(away(often)) < 1e-6
    assert_close(often.elbo_, whole.elbo_, 1e-9)


def test_places_may_be_empty_or_have_one_class():
    x, y = BINARY.x, BINARY.y
    parts = [[(x[y == 0], y[y == 0])], [], [(x[:0], y[:0])], [(x[y == 1], y[y == 1])]]
    model = learned(kalvi.LogisticRegression(**PLAIN), parts, classes=[0, 1])
    twice = learned(kalvi.LogisticRegression(**PLAIN), [parts[0], parts[3]], classes=[0, 1])
    assert_close(model.coef_, twice.coef_, 1e-12)
    assert model.log_evidence_ == twice.log_evidence_


def test_rows_without_weight_are_no_rows():
    x, y = LINEAR.x, LINEAR.y
    nothing = (x[:40], y[:40], np.zeros(40))
    parts = [[nothing], [nothing, (x[40:], y[40:], np.ones(N - 40))]]
    model = learned(kalvi.LinearRegression(noise_scale=1.0, **PLAIN), parts)
    for found in (model, refined(model, parts, 1)):
        assert_close(found.coef_, exact(x[40:], y[40:])[0], 1e-9)


def test_far_from_the_optimum_a_warning_says_so():
    x, y = BINARY.x, BINARY.y
    order = np.argsort(y, kind="stable")
    parts = [[(x[piece], y[piece])] for piece in np.array_split(order, PLACES)]
    merged = learned(kalvi.LogisticRegression(**PLAIN), parts, classes=[0, 1])
    for rounds, far in ((0, True), (2, False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = refined(merged, parts, rounds)
        gradient, excess = optimality(found, x, y)
        assert_close(found.elbo_gap_, gradient**2 + np.trace(excess @ excess) / 2, 1e-6)
        assert far == (found.elbo_gap_ > 0.1 * D)
        told = [str(one.message) for one in said if one.category is ConvergenceWarning]
        assert len(told) == far
        assert all("had not converged after 2 passes" in one and "Refine" in one for one in told)


def test_adding_leaves_what_was_there():
    first = distributed.Learn(kalvi.LinearRegression(noise_scale=1.0, **PLAIN))
    before = first.add(first.begin(), (LINEAR.x[:80], LINEAR.y[:80]))
    coef = before.coef_.copy()
    again = [first.add(before, (LINEAR.x[80:], LINEAR.y[80:])).coef_ for _ in range(2)]
    assert np.array_equal(*again)
    assert np.array_equal(before.coef_, coef)


AUTO = kalvi.LogisticRegression(prior_scale="auto")
CORRELATED = kalvi.Dense(np.zeros(4), np.eye(4))
REFUSED = [
    (kalvi.FactorAnalysis(2), TypeError, "learns LinearRegression.*got FactorAnalysis"),
    (AUTO, ValueError, "need a given prior_scale"),
    (kalvi.LogisticRegression(forgetting=0.9), ValueError, "forgetting=1"),
    (kalvi.LinearRegression(), ValueError, "fit the shards with a noise_scale"),
    (kalvi.LogisticRegression(rank=1, prior=CORRELATED), ValueError, "without correlations"),
    (kalvi.LogisticRegression(rank=-1), ValueError, "rank must be"),
    (kalvi.LogisticRegression(), ValueError, "needs all labels as classes="),
]


@pytest.mark.parametrize(("model", "error", "message"), REFUSED)
def test_refused(model, error, message):
    with pytest.raises(error, match=message):
        distributed.Learn(model)


def test_refused_rows():
    first = distributed.Learn(kalvi.PoissonRegression())
    with pytest.raises(TypeError, match=r"a batch of rows is a tuple .X, y.*got ndarray"):
        first.add(first.begin(), LINEAR.x)
    with pytest.raises(ValueError, match="no rows to learn from"):
        first.finish(first.begin())


def test_refined_by_a_scheme_that_seeks_no_optimum():
    model = kalvi.LinearRegression(noise_scale=1.0, scheme="ekf").partial_fit(LINEAR.x, LINEAR.y)
    with pytest.raises(ValueError, match="got scheme='ekf'"):
        distributed.Refinement(model)
