"""The factor-analysis estimator: scikit-learn and SciPy as judges, streams cut anyhow, refusals."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn import decomposition
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import kalvi
from kalvi.streams import run
from tests.laws import assert_close

N, D, P = 100, 6, 2
STREAMING = ("eigen", "recursive_em", "online_em", "incremental_em", "sga")
every_stream = pytest.mark.parametrize("method", STREAMING)


def table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    factor, noise = rng.normal(size=(P, D)), rng.uniform(0.5, 1, D)
    return 5 + rng.normal(size=(n, P)) @ factor + noise * rng.normal(size=(n, D))


def model(method="eigen", **settings):
    settings = {"warm_up": 20, "random_state": 0} | settings
    return kalvi.FactorAnalysis(P, method=method, **settings)


def fed(estimator, x, sizes):
    for first, last in zip(np.cumsum([0, *sizes]), np.cumsum(sizes), strict=False):
        estimator.partial_fit(x[first:last])
    return estimator


@every_stream
def test_any_pieces_are_one_stream(method):
    x = table()
    whole = model(method).fit(x)
    pieces = fed(model(method), x, [1, 4, 30, 1, 16, 48])
    assert_close(pieces.get_covariance(), whole.get_covariance(), 1e-12)
    assert_close(pieces.mean_, x.mean(axis=0), 1e-13)
    assert pieces.n_samples_seen_ == N and pieces.n_iter_ == 1
    compiled = run._advance._cache_size()
    looked = model(method)
    for size in (3, 2, 7, 11, 17, 23, 37):
        _ = looked.partial_fit(x[:size]).components_  # looking commits nothing
    assert run._advance._cache_size() == compiled
    again = fed(model(method), np.concatenate([x[:s] for s in (3, 2, 7, 11, 17, 23, 37)]), [100])
    assert_close(looked.get_covariance(), again.get_covariance(), 1e-12)


@every_stream
def test_sparse_rows_and_saved_models(method):
    x = table() * (np.random.default_rng(1).uniform(size=(N, D)) < 0.5)
    dense = model(method).fit(x)
    sparse = fed(model(method), sp.csr_array(x), [30, 40])
    sparse = pickle.loads(pickle.dumps(sparse)).partial_fit(sp.csr_array(x[70:]))
    assert_close(sparse.get_covariance(), dense.get_covariance(), 1e-12)
    assert_close(sparse.transform(sp.csr_array(x)), dense.transform(x), 1e-10)


def test_scores_factors_and_matrices_are_those_of_the_model():
    x = table()
    found = model().fit(x)
    cov, precision = found.get_covariance(), found.get_precision()
    factor = found.components_.T
    assert_close(cov, factor @ factor.T + np.diag(found.noise_variance_), 1e-12)
    assert_close(cov @ precision, np.eye(D), 1e-10)
    expected = stats.multivariate_normal(found.mean_, cov).logpdf(x)
    assert_close(found.score_samples(x), expected, 1e-10)
    assert_close(found.score(x), expected.mean(), 1e-10)
    assert_close(found.transform(x), (x - found.mean_) @ precision @ factor, 1e-10)
    inner = found.components_ / found.noise_variance_ @ factor
    assert_close(inner, np.diag(np.diag(inner)), 1e-10)
    assert inner[0, 0] > inner[1, 1] and np.all(
        found.components_.max(axis=1) > -found.components_.min(axis=1)
    )
    assert_close(found.gaussian_.log_prob(jnp.asarray(x[0])), expected[0], 1e-10)
    assert list(found.get_feature_names_out()) == ["factoranalysis0", "factoranalysis1"]


def test_a_factor_for_each_feature_is_the_covariance_itself():
    x = table()
    first = x[:16].var(axis=0)  # the start, which counts as half a row
    expected = (N * np.cov(x.T, bias=True) + 0.5 * np.diag(first)) / (N + 0.5)
    found = kalvi.FactorAnalysis(prior_rows=0.5).fit(x)
    assert_close(found.get_covariance(), expected, 1e-3)


def test_batch_em_is_the_maximum_likelihood_and_one_pass_is_near():
    x = table()
    judge = decomposition.FactorAnalysis(P, tol=1e-7, max_iter=20000, svd_method="lapack").fit(x)
    best, one = model("batch_em").fit(x), model().fit(x)
    assert_close(best.score(x), best.log_likelihood_, 1e-12)
    assert judge.score(x) - 1e-6 < best.score(x) < judge.score(x) + 1e-4
    assert best.score(x) - 0.05 < one.score(x) < best.score(x)
    assert 1 < best.n_iter_ < 100
    assert_close(np.abs(best.transform(x)), np.abs(judge.transform(x)), 1e-2)


@pytest.mark.slow(reason="compiles four methods on 2000 rows")
def test_one_pass_in_any_units_is_near_the_maximum_likelihood():
    """Features in units from 1e-3 to 1e3: the log density of a row within so many nats of the best.

    scikit-learn is given the rows in one unit; the logarithms of the others add up to zero.
    """
    x = table(n=2000)
    best = decomposition.FactorAnalysis(P, tol=1e-3, svd_method="lapack").fit(x)
    best = best.score(x)
    x = x * 10.0 ** np.linspace(-3, 3, D)
    bounds = {"eigen": 1e-3, "online_em": 0.04, "incremental_em": 0.1, "sga": 0.25}
    for method, nats in bounds.items():
        assert best - nats < model(method, warm_up=100).fit(x).score(x) < best + 1e-5


def test_batch_em_warns_where_it_did_not_converge():
    with pytest.warns(ConvergenceWarning, match="not converged after 1 passes; raise max_iter"):
        model("batch_em", max_iter=1).fit(table())


@pytest.mark.parametrize("method", ["eigen", "batch_em"])
def test_float32_and_features_without_variance(method):
    x = table()
    x[:, 0], x[:, 1] = 0, 1e3
    found = model(method, dtype="float32").fit(x)
    assert found.components_.dtype == found.transform(x).dtype == np.float32
    assert np.all(found.noise_variance_ > 0)
    cov = np.cov(x.T, bias=True)
    assert_close(found.get_covariance()[2:, 2:], cov[2:, 2:], 0.5)
    assert np.all(found.get_covariance()[:2, :2] < 0.05 * cov[2, 2])
    assert np.all(np.isfinite(found.score_samples(x)))


def test_progress_is_shown(capsys):
    model(verbose=True).fit(table())
    assert "100/100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "svd"}, "one of eigen, .*, incremental_em, sga, batch_em; got 'svd'"),
        ({"n_components": 0}, "n_components must be None or a positive integer; got 0"),
        ({"n_components": 7}, "n_components=7 exceeds the 6 features; choose n_components ≤ 6"),
        ({"block_size": 1.5}, "block_size must be 'auto' or a positive integer; got 1.5"),
        ({"loops": 0}, "loops must be a positive integer; got 0"),
        ({"max_iter": True}, "max_iter must be a positive integer; got True"),
        ({"prior_rows": -1.0}, "prior_rows must be a non-negative number; got -1.0"),
        ({"tol": np.nan}, "tol must be a non-negative number; got nan"),
        ({"warm_up": 0}, "warm_up must be a positive integer; got 0"),
        ({"step_size": -0.1}, "step_size must be a non-negative number; got -0.1"),
        ({"step_decay": np.inf}, "step_decay must be a non-negative number; got inf"),
        ({"scaled": "yes"}, "scaled must be True or False; got 'yes'"),
        ({"dtype": "int32"}, "dtype must be 'float32' or 'float64'; got 'int32'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    for call in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(kalvi.FactorAnalysis().set_params(**settings), call)(table())


def test_calls_that_make_no_sense_are_refused_and_change_nothing():
    x = table()
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        model().fit(x[:1])
    with pytest.raises(NotFittedError):
        model().transform(x)
    with pytest.raises(AttributeError, match="gaussian_ exists only after fit"):
        _ = model().gaussian_
    with pytest.raises(AttributeError, match="after fit with method='batch_em'"):
        _ = model().fit(x).log_likelihood_
    with pytest.raises(AttributeError) as caught:
        model("batch_em").partial_fit(x)
    assert "needs a method of one pass" in str(caught.value.__cause__)
    found = model().fit(x)
    before = found.get_covariance()
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains NaN in row 3, column 2.*impute"):
        found.partial_fit(x)
    assert found.n_samples_seen_ == N
    assert_close(found.get_covariance(), before, 0)
    with pytest.raises(
        ValueError, match="n_components was 2 when this model was fitted and is 1 now"
    ):
        found.set_params(n_components=1).partial_fit(table())


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("n_features_in_", -1, "n_features_in_"),
        ("structure_", {"method": "eigen"}, "structure_"),
        ("buffer_", None, "buffer_"),
        ("n_iter_", "many", "n_samples_seen_ and n_iter_"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(name, wrong, message):
    kept = model().fit(table()).__getstate__() | {name: wrong}
    with pytest.raises(ValueError, match=f"attributes that contradict each other: {message}"):
        kalvi.FactorAnalysis().__setstate__(kept)
