"""Other people's tools on our estimators: dask-ml, scikit-learn's own machinery, river, ArviZ, pandas."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kalvi

RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 3))
Y = (RNG.random(96) < expit(X @ [2.0, -1.0, 0.0])).astype(int)


def test_incremental_of_dask_ml_is_a_stream():
    """Blocks one after the other are the rows one after the other."""
    da = pytest.importorskip("dask.array")
    wrappers = pytest.importorskip("dask_ml.wrappers")
    rows, labels = (da.from_array(a, chunks=(32, *a.shape[1:])) for a in (X, Y))
    model = wrappers.Incremental(kalvi.LogisticRegression(), shuffle_blocks=False)
    model.fit(rows, labels, classes=[0, 1])
    whole = kalvi.LogisticRegression().partial_fit(X, Y)
    found = model.estimator_.posterior_
    np.testing.assert_allclose(found.mean, whole.posterior_.mean, rtol=1e-10)
    np.testing.assert_allclose(found.variance(), whole.posterior_.variance(), rtol=1e-10)
    np.testing.assert_array_equal(np.asarray(model.predict(rows)), whole.predict(X))


def test_pipelines_searches_and_scores_of_scikit_learn():
    pipe = make_pipeline(StandardScaler(), kalvi.LogisticRegression(passes=1))
    grid = {"logisticregression__prior_scale": [1e-3, 1.0]}
    search = GridSearchCV(pipe, grid, cv=3, scoring="neg_log_loss").fit(X, Y)
    assert search.best_params_ == {"logisticregression__prior_scale": 1.0}
    scores = cross_val_score(search.best_estimator_, X, Y, cv=3, scoring="neg_log_loss")
    np.testing.assert_allclose(scores.mean(), search.best_score_, rtol=1e-12)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"][0], -np.log(2), atol=0.01
    )  # a prior as narrow as this knows nothing


def test_river_feeds_one_row_at_a_time():
    compat = pytest.importorskip("river.compat")
    still = kalvi.LogisticRegression(prior_scale=1.0)  # blocks of other sizes drift at other rows
    wrapped = compat.convert_sklearn_to_river(still, classes=[0, 1])
    names = ["a", "b", "c"]
    for row, label in zip(X[:40], Y[:40], strict=True):
        wrapped.learn_one(dict(zip(names, row, strict=True)), int(label))
    whole = kalvi.LogisticRegression(prior_scale=1.0).partial_fit(X[:40], Y[:40])
    found = wrapped.predict_proba_one(dict(zip(names, X[50], strict=True)))
    np.testing.assert_allclose([found[0], found[1]], whole.predict_proba(X[50:51])[0], rtol=1e-9)


def test_summary_of_arviz_is_the_posterior():
    arviz_stats = pytest.importorskip("arviz_stats")
    frame = pd.DataFrame(X, columns=["age", "size", "spare"])
    model = kalvi.LogisticRegression().partial_fit(frame, Y)
    n = 4000
    table = arviz_stats.summary(model.to_arviz(n, random_state=0), round_to="none")
    q = model.posterior_
    std = np.sqrt(np.asarray(q.variance()))
    assert list(table.index) == [f"coef[{name}]" for name in ("age", "size", "spare", "intercept")]
    assert np.all(np.abs(table["mean"] - np.asarray(q.mean)) < 4 * std / np.sqrt(n))
    assert np.all(np.abs(table["sd"] - std) < 4 * std / np.sqrt(2 * n))
    assert np.all(table["r_hat"] < 1.01)


def test_transformers_give_data_frames():
    frame = pd.DataFrame(X, columns=["age", "size", "spare"], index=[f"r{i}" for i in range(96)])
    model = kalvi.FactorAnalysis(2).set_output(transform="pandas").fit(frame)
    found = model.transform(frame)
    assert found.columns.tolist() == ["factoranalysis0", "factoranalysis1"]
    assert found.index.equals(frame.index)
    plain = model.set_output(transform="default").transform(frame)
    np.testing.assert_array_equal(found.to_numpy(), plain)


@pytest.mark.slow(reason="compiles two fits and a transform")
def test_factors_of_a_binary_matrix_as_a_data_frame():
    table = pd.DataFrame((RNG.random((8, 6)) < 0.5).astype(float), columns=list("abcdef"))
    model = kalvi.BinaryFactorization(1).set_output(transform="pandas").fit(table)
    found = model.transform(table)
    assert found.columns.tolist() == ["binaryfactorization0"]
    assert found.index.equals(table.index)
    fitted = model.fit_transform(table)
    np.testing.assert_allclose(fitted.to_numpy(), model.row_factors_, rtol=1e-12)
