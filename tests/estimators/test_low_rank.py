"""rank= on the estimators: blocks that do not depend on calls, sparse rows, further passes."""

import pickle
import tracemalloc

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import kalvi
from kalvi.evaluation import metrics
from kalvi.rules.rvga import RVGA
from kalvi.streams import run
from tests import oracles, problems
from tests.laws import assert_close, same_gaussian

N, D = 120, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
THETA = RNG.normal(size=D)
BINARY = (RNG.random(N) < 1 / (1 + np.exp(-X @ THETA))).astype(int)
TARGET = X @ THETA + 0.3 * RNG.normal(size=N)
DESIGN = np.column_stack([X, np.ones(N)])
PRIOR = kalvi.Diagonal(np.zeros(D + 1), np.array([1.0] * D + [100.0]))


def bound(posterior):
    rows = problems.batch(DESIGN, BINARY.astype(float))
    return float(metrics.elbo(posterior, PRIOR, kalvi.likelihoods.Bernoulli(), rows))


def in_pieces(model, x, sizes):
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        model.partial_fit(x[part], BINARY[part], classes=[0, 1])
        start += size
    return model


@pytest.mark.parametrize(
    "sparse",
    [
        False,
        pytest.param(True, marks=pytest.mark.slow(reason="compiles the stream of sparse rows")),
    ],
)
def test_any_batching_gives_the_same_posterior(sparse):
    x = sp.csr_matrix(X) if sparse else X
    whole = kalvi.LogisticRegression(rank=2, passes=1).fit(x, BINARY)
    pieces = in_pieces(
        kalvi.LogisticRegression(prior_scale=1.0, rank=2), x, [1, 2, 30, 5, 1, 60, 21]
    )
    for name in ("mean", "precision"):
        first, second = (getattr(m.posterior_, name) for m in (whole, pieces))
        if name == "precision":
            first, second = first.to_dense(), second.to_dense()
        np.testing.assert_array_equal(first, second)
    assert whole.log_evidence_ == pieces.log_evidence_


NOISE = 0.3
KNOWN = np.zeros(D + 1), np.diag(PRIOR.var), DESIGN, TARGET, NOISE**2


def line(**settings):
    """A linear model of known noise, which has every number in closed form."""
    return kalvi.LinearRegression(noise_scale=NOISE, prior_scale=1.0, **settings)


def test_all_the_rank_of_a_linear_model_is_exact():
    model = line(rank=D + 1, passes=1).fit(X, TARGET)
    same_gaussian(model.posterior_, *oracles.linear_posterior(*KNOWN))
    assert_close(model.log_evidence_, oracles.linear_log_evidence(*KNOWN), 1e-10)
    # and a posterior is a prior
    first = line(rank=D + 1, passes=1).fit(X[:70], TARGET[:70])
    onward = line(rank=D + 1, passes=1, prior=first.posterior_).fit(X[70:], TARGET[70:])
    same_gaussian(onward.posterior_, *oracles.linear_posterior(*KNOWN))
    with pytest.raises(ValueError, match="prior is LowRankPrecision of rank 6, but rank=1"):
        line(rank=1, prior=first.posterior_).fit(X, TARGET)


def test_waiting_rows_of_a_linear_model_count_before_their_block_is_full():
    model = line(rank=2).partial_fit(X[:3], TARGET[:3])
    mean, cov = oracles.linear_posterior(*KNOWN[:2], DESIGN[:3], TARGET[:3], NOISE**2)
    assert_close(model.coef_, mean[:-1], 1e-9)
    thawed = pickle.loads(pickle.dumps(model))
    for one in (model, thawed):
        found, std = one.predict(X, return_std=True)
        assert_close(found, DESIGN @ mean, 1e-9)
        assert_close(std**2, np.einsum("ni,ij,nj->n", DESIGN, cov, DESIGN) + NOISE**2, 1e-9)
        one.partial_fit(X[3:], TARGET[3:])
    np.testing.assert_array_equal(model.coef_, thawed.coef_)


def test_further_passes_of_a_low_rank_find_the_exact_mean():
    once, often = line(rank=1, passes=1).fit(X, TARGET), line(rank=1).fit(X, TARGET)
    mean, cov = oracles.linear_posterior(*KNOWN)
    away = [np.max(np.abs(m.posterior_.mean - mean) / np.sqrt(np.diag(cov))) for m in (once, often)]
    assert once.n_passes_ == 1 < often.n_passes_ and not hasattr(once, "elbo_")
    assert away[0] > 0.1 and away[1] < 0.02
    lost = oracles.gaussian_kl(
        np.asarray(often.posterior_.mean),
        np.asarray(often.posterior_.covariance.to_dense()),
        mean,
        cov,
    )
    assert_close(often.elbo_, oracles.linear_log_evidence(*KNOWN) - lost, 1e-9)


def test_a_diagonal_posterior_of_a_linear_model_has_one_pass():
    model = line(rank=0).fit(X, TARGET)
    assert model.n_passes_ == 1 and isinstance(model.posterior_, kalvi.Diagonal)
    precision = 1 / np.asarray(PRIOR.var) + np.sum(DESIGN**2, axis=0) / NOISE**2
    assert_close(model.posterior_.var, 1 / precision, 1e-10)


@pytest.mark.slow(reason="compiles a stream of rank one")
def test_ragged_calls_compile_nothing_new():
    model = in_pieces(kalvi.LogisticRegression(prior_scale=1.0, rank=1), X, [40, 70, 10])
    _ = model.posterior_
    compiled = run._advance._cache_size()
    again = in_pieces(
        kalvi.LogisticRegression(prior_scale=1.0, rank=1), X, [3, 50, 1, 7, 20, 9, 30]
    )
    _ = again.posterior_
    assert run._advance._cache_size() == compiled


@pytest.mark.slow(reason="compiles streams of both structures, without intercept")
def test_waiting_rows_count_before_their_block_is_full():
    model = kalvi.LogisticRegression(prior_scale=1.0, rank=2, fit_intercept=False).partial_fit(
        X[:3], BINARY[:3], classes=[0, 1]
    )
    exact = kalvi.LogisticRegression(fit_intercept=False, passes=1)
    exact.partial_fit(X[:3], BINARY[:3], classes=[0, 1])
    # three rows in two factors: the mean is that of the full covariance still
    assert_close(model.coef_, exact.coef_, 1e-9)
    probability = model.predict_proba(X)
    thawed = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(thawed.predict_proba(X), probability)
    model.partial_fit(X[3:], BINARY[3:])
    thawed.partial_fit(X[3:], BINARY[3:])
    np.testing.assert_array_equal(model.coef_, thawed.coef_)


@pytest.mark.slow(reason="compiles a stream of full rank and one of a full covariance")
def test_all_the_rank_loses_nothing():
    low = kalvi.LogisticRegression(rank=D + 1, passes=1).fit(X, BINARY)
    full = kalvi.LogisticRegression(passes=1).fit(X, BINARY)
    assert float(kalvi.kl(low.posterior_, full.posterior_)) < 1e-10
    assert_close(low.log_evidence_, full.log_evidence_, 1e-9)


@pytest.mark.slow(reason="compiles the passes of both structures")
def test_further_passes_close_the_gap():
    one = kalvi.LogisticRegression(rank=1, passes=1).fit(X, BINARY)
    many = kalvi.LogisticRegression(rank=1).fit(X, BINARY)
    best = kalvi.LogisticRegression().fit(X, BINARY)
    assert one.n_passes_ == 1 and not hasattr(one, "elbo_")
    assert 1 < many.n_passes_ < 100
    assert_close(many.elbo_, bound(many.posterior_), 1e-9)
    assert bound(one.posterior_) < many.elbo_ < best.elbo_
    few = clone(many).set_params(passes=3).fit(X, BINARY)
    assert few.n_passes_ == 3 and bound(one.posterior_) <= few.elbo_ <= many.elbo_


@pytest.mark.slow(reason="compiles the passes of a linear model")
def test_further_passes_of_a_linear_model_find_its_mean_and_noise():
    low = kalvi.LinearRegression(rank=1).fit(X, TARGET)
    exact = kalvi.LinearRegression().fit(X, TARGET)
    assert low.n_passes_ > 1 and exact.n_passes_ == 1
    std = np.sqrt(exact.posterior_.variance())
    assert np.max(np.abs(low.posterior_.mean - exact.posterior_.mean) / std) < 0.02
    assert_close(low.noise_scale_, exact.noise_scale_, 1e-4)


def test_one_pass_above_the_stated_size(monkeypatch):
    monkeypatch.setattr("kalvi.estimators.linear.refinement.REVISIT_BYTES", 8 * N * D - 1)
    assert kalvi.LogisticRegression(rank=1).fit(X, BINARY).n_passes_ == 1


@pytest.mark.slow(reason="compiles a diagonal stream")
def test_a_diagonal_posterior_has_one_pass():
    model = kalvi.LogisticRegression(rank=0).fit(X, BINARY)
    assert model.n_passes_ == 1 and isinstance(model.posterior_, kalvi.Diagonal)


@pytest.mark.slow(reason="compiles a stream in blocks of its own")
def test_a_posterior_as_prior():
    model = kalvi.LogisticRegression(rank=2, block_size=40, passes=1).fit(X, BINARY)
    onward = clone(model).set_params(prior=model.posterior_).fit(X, BINARY)
    np.testing.assert_array_equal(onward.coef_, model.partial_fit(X, BINARY).coef_)
    with pytest.raises(ValueError, match="prior is LowRankPrecision of rank 2, but rank=1"):
        kalvi.LogisticRegression(rank=1, prior=model.posterior_).fit(X, BINARY)


def test_the_block_size_cannot_change_while_rows_wait():
    model = kalvi.LogisticRegression(prior_scale=1.0, rank=2).partial_fit(X[:20], BINARY[:20])
    with pytest.raises(ValueError, match="block_size was 'auto' when this model was fitted"):
        model.set_params(block_size=4).partial_fit(X[20:], BINARY[20:])


@pytest.mark.slow(reason="compiles and fits 100,000 features")
def test_a_hundred_thousand_sparse_features_never_become_dense():
    d, n = 100_000, 240
    x = sp.random_array((n, d), density=1e-4, rng=np.random.default_rng(1), format="csr")
    x.data += 0.5  # every entry tells something
    y = np.arange(n) % 2
    model = kalvi.LogisticRegression(rank=2, block_size=8, dtype="float32", passes=1)
    model.partial_fit(x[:16], y[:16], classes=[0, 1]).predict_proba(x[:4])  # compiles
    tracemalloc.start()
    model.partial_fit(x[16:], y[16:])
    probability = model.predict_proba(x[:4])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # ten blocks of 8 rows of floats: 34 MB where the dense table has 96
    assert peak < 4 * n * d * 0.6
    assert np.all((probability > 0) & (probability < 1))
    assert model.posterior_.variance().shape == (d + 1,)
    seen = np.asarray((x != 0).sum(axis=0)).ravel() > 0
    variance = np.asarray(model.posterior_.variance())[:-1]
    assert np.all(variance[seen] < 1) and np.allclose(variance[~seen], 1, rtol=1e-5)


@pytest.mark.parametrize(
    "dtype",
    [
        "float64",
        pytest.param(
            "float32", marks=pytest.mark.slow(reason="compiles the streams in single precision")
        ),
    ],
)
def test_learned_noise_does_not_narrow_what_was_never_seen(dtype):
    # two equal columns: only their sum is known, and each coefficient stays as wide as its prior
    a = np.random.default_rng(2).normal(size=(1000, 1))
    x, y = np.hstack([a, a]), 2 * a[:, 0] + np.random.default_rng(3).normal(size=1000)
    low = kalvi.LinearRegression(rank=1, fit_intercept=False, passes=1, dtype=dtype).fit(x, y)
    full = kalvi.LinearRegression(fit_intercept=False).fit(x, y)
    std = np.sqrt([low.posterior_.variance(), full.posterior_.variance()])
    np.testing.assert_allclose(std[0], std[1], rtol=0.05)


def test_rows_of_no_weight_do_not_fill_blocks():
    weight = (np.arange(N) % 2).astype(float)
    model = kalvi.LogisticRegression(rank=2, passes=1)
    with_them = clone(model).fit(X, BINARY, sample_weight=weight)
    without = clone(model).fit(X[1::2], BINARY[1::2])
    np.testing.assert_array_equal(with_them.coef_, without.coef_)


def test_results_are_those_of_the_fit_whatever_is_set_later():
    first, second = (kalvi.LinearRegression(rank=2, passes=1).fit(X, TARGET) for _ in range(2))
    before = np.asarray(first.posterior_.variance())
    for model in (first, second):
        model.set_params(noise_scale=10.0, prior_scale="auto", block_size=4)
        np.testing.assert_array_equal(model.posterior_.variance(), before)


def test_a_diagonal_prior_serves_any_rank():
    given = kalvi.LogisticRegression(rank=2, prior=PRIOR, passes=1).fit(X, BINARY)
    usual = kalvi.LogisticRegression(rank=2, passes=1).fit(X, BINARY)
    assert_close(given.coef_, usual.coef_, 1e-12)


@pytest.mark.slow(reason="compiles a grid of streams and their passes")
def test_a_grid_of_scales_with_a_rank_and_further_passes():
    model = kalvi.LogisticRegression(rank=2, prior_scale="auto").fit(X, BINARY)
    fixed = kalvi.LogisticRegression(rank=2, prior_scale=model.prior_scale_).fit(X, BINARY)
    assert model.n_passes_ > 1
    assert_close(model.elbo_, fixed.elbo_, 1e-3)


def _one_by_one(model, start, end, predict):
    for i in range(start, end):
        model.partial_fit(X[i : i + 1], BINARY[i : i + 1], classes=[0, 1])
        if predict:
            model.predict_proba(X[:2])
    return model


@pytest.mark.parametrize("rank", [0, 1])
def test_predictions_between_blocks_know_all_rows_without_a_projection(rank):
    """They are those of a full covariance that begins where the last block ended."""
    model = kalvi.LogisticRegression(prior_scale=1.0, rank=rank, block_size=10)
    model = _one_by_one(model, 0, 10, predict=True)
    assert model.buffer_.waiting is None
    whole = kalvi.LogisticRegression(prior=model.posterior_.to_dense(), passes=1)
    model = _one_by_one(model, 10, 16, predict=True)
    whole.partial_fit(X[10:16], BINARY[10:16], classes=[0, 1])
    assert_close(model.predict_proba(X), whole.predict_proba(X), 1e-9)
    thawed = pickle.loads(pickle.dumps(model))
    assert_close(thawed.predict_proba(X), whole.predict_proba(X), 1e-9)


def test_predictions_between_blocks_of_several_priors_side_by_side():
    model = kalvi.LogisticRegression(rank=D + 1, prior_scale="auto", block_size=10)
    model = _one_by_one(model, 0, 16, predict=True)
    exact = kalvi.LogisticRegression(prior_scale="auto")
    exact.partial_fit(X[:16], BINARY[:16], classes=[0, 1])
    assert model.prior_scale_ == exact.prior_scale_
    assert_close(model.predict_proba(X), exact.predict_proba(X), 1e-6)


def test_predictions_leave_the_stream_as_it_is():
    asked = _one_by_one(
        kalvi.LogisticRegression(prior_scale=1.0, rank=1, block_size=10), 0, 25, predict=True
    )
    quiet = _one_by_one(
        kalvi.LogisticRegression(prior_scale=1.0, rank=1, block_size=10), 0, 25, predict=False
    )
    for a, b in zip(jax.tree.leaves(asked.state_), jax.tree.leaves(quiet.state_), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(asked.posterior_.mean, quiet.posterior_.mean)


def test_a_prediction_absorbs_each_waiting_row_once(monkeypatch):
    rows = []

    def counted(function, *args):
        if function is RVGA.update:
            rows.append(args[-1].x.shape[0])
        return call(function, *args)

    call = run.call
    monkeypatch.setattr(run, "call", counted)
    model = _one_by_one(
        kalvi.LogisticRegression(prior_scale=1.0, rank=1, block_size=10), 0, 9, predict=True
    )
    model.predict_proba(X)
    assert rows == [1] * 9
    model.partial_fit(X[9:14], BINARY[9:14]).predict_proba(X)
    assert rows == [1] * 9 + [10]  # four rows after the block, as one


def test_learned_noise_between_blocks_is_that_of_all_rows():
    model = kalvi.LinearRegression(prior_scale=1000.0, rank=1, block_size=10)
    for i in range(17):
        model.partial_fit(X[i : i + 1], TARGET[i : i + 1])
        mean, std = model.predict(X[:2], return_std=True)
    best = model.fit_.current.best
    np.testing.assert_allclose(model.noise_scale_, np.sqrt(best.innovations / best.rows), rtol=1e-9)
    assert np.all(np.isfinite(mean)) and np.all(std > model.noise_scale_)
