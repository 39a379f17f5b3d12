"""Sparse rows give the same model as the same rows written out, by either engine."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import kalvi
from kalvi.numerics.namespaces import on_device
from kalvi.numerics.precision import matching_precision
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.streams import array_batches, engines, row_blocks, stays_sparse

N, WIDTH = 90, 80


def table(classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = sp.random_array((N, WIDTH), density=0.08, rng=rng, format="csr")
    theta = 3 * rng.normal(size=(WIDTH, classes))
    return x, np.argmax(x @ theta + rng.gumbel(size=(N, classes)), axis=1)


def check_same(sparse, dense, x):
    np.testing.assert_allclose(sparse.posterior_.mean, dense.posterior_.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        sparse.posterior_.variance(), dense.posterior_.variance(), rtol=1e-7, atol=1e-10
    )
    assert sparse.log_evidence_ == pytest.approx(dense.log_evidence_, rel=1e-9)
    wanted = dense.predict_proba(x.toarray())
    np.testing.assert_allclose(sparse.predict_proba(x), wanted, rtol=1e-8)
    np.testing.assert_allclose(sparse.predict_proba(x[[3]]), wanted[[3]], rtol=1e-8)


several = pytest.mark.slow(reason="compiles two programs, of which the quick case has enough")


@pytest.mark.parametrize("rank", [None, 0, 3])
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=several)])
def test_one_pass(rank, classes):
    (x, y), weight = table(classes), np.random.default_rng(1).uniform(0, 2, N).round(1)
    settings = {"rank": rank, "passes": 1, "forgetting": 0.995}
    sparse = kalvi.LogisticRegression(**settings).fit(x, y, weight)
    dense = kalvi.LogisticRegression(**settings).fit(x.toarray(), y, weight)
    check_same(sparse, dense, x)


def test_further_passes_and_pieces():
    x, y = table()
    sparse = kalvi.LogisticRegression(rank=3, passes=3).fit(x, y)
    dense = kalvi.LogisticRegression(rank=3, passes=3).fit(x.toarray(), y)
    check_same(sparse, dense, x)
    pieces = kalvi.LogisticRegression(rank=3, prior_scale=1.0)
    for first in range(0, N, 7):
        rows = slice(first, first + 7)
        pieces.partial_fit(x[rows], y[rows], classes=[0, 1])
    check_same(pieces, kalvi.LogisticRegression(rank=3, passes=1).fit(x.toarray(), y), x)


@pytest.mark.parametrize(
    "rank", [3, pytest.param(None, marks=several), pytest.param(0, marks=several)]
)
def test_compiled_programs(rank, monkeypatch):
    monkeypatch.setattr(engines, "FEW_ROWS", 0)
    monkeypatch.setattr(engines, "FIRST_ROWS", 0)
    x, y = table()
    sparse = kalvi.LogisticRegression(rank=rank, passes=1, block_size=8).fit(x, y)
    dense = kalvi.LogisticRegression(rank=rank, passes=1, block_size=8).fit(x.toarray(), y)
    check_same(sparse, dense, x)


def test_blocks_of_like_rows_have_one_shape_and_several_are_stacked():
    x, y = table()
    x = x[:, : WIDTH - 5]
    batches = list(array_batches(x, y.astype(float), block_size=8, stacked=True, intercept=True))
    assert {batch.x.values.ndim for batch in batches} <= {1, 2}
    assert len({batch.x.values.shape[-1] for batch in batches}) == 1
    assert sum(np.sum(batch.weight) for batch in batches) == N
    singles = array_batches(x, y.astype(float), block_size=8, intercept=True)
    assert all(batch.x.values.ndim == 1 for batch in singles)


def test_rows_of_many_numbers_or_few_columns_are_made_dense():
    assert stays_sparse(table()[0], True)
    assert not stays_sparse(sp.csr_array(np.ones((3, WIDTH))), True)
    assert not stays_sparse(sp.csr_array((3, 20)), True)
    assert not stays_sparse(np.zeros((3, WIDTH)), True)


def test_rows_to_predict_stay_sparse():
    x, _ = table()
    blocks = list(row_blocks(x, size=40, intercept=True))
    assert all(isinstance(block, SparseRows) for block in blocks)
    np.testing.assert_array_equal(blocks[0].toarray()[:, :-1], x[:40].toarray())


@pytest.mark.parametrize("rank", [None, 0, 3])
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=several)])
def test_draws_of_predictors_have_their_joint_law(rank, classes):
    x, y = table(classes)
    model = kalvi.LogisticRegression(rank=rank, passes=1).fit(x, y)
    some, n = x[:4], 20_000
    drawn = model.sample_predictors(some, n, random_state=0).reshape(n, -1)
    ones = np.hstack([some.toarray(), np.ones((4, 1))])
    design = ones if classes == 2 else np.kron(ones, np.eye(3)).reshape(12, WIDTH + 1, 3)
    design = design if classes == 2 else design.swapaxes(1, 2).reshape(12, -1)
    with matching_precision(np.float64):
        q = on_device(
            model.fit_.predicting.posterior
        ).to_dense()  # before waiting rows are projected
    cov = design @ np.asarray(q.cov) @ design.T
    error = 5 * np.sqrt(np.diag(cov) / n)
    assert np.all(abs(drawn.mean(axis=0) - design @ np.asarray(q.mean)) < error)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.05 * np.max(np.diag(cov)))


def test_rows_that_are_the_same_have_the_same_draws():
    x, y = table()
    model = kalvi.LogisticRegression(rank=3, passes=1).fit(x, y)
    drawn = model.sample_predictors(x[[1, 1, 2]], 5, random_state=0)
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=1e-5)
    assert np.all(drawn[:, 0] != drawn[:, 2])
    again = model.sample_predictors(x[[1, 1, 2]], 5, random_state=0)
    np.testing.assert_array_equal(drawn, again)


def test_merged_shards_are_those_of_the_same_rows_written_out():
    (x, y), half = table(), N // 2

    def merged(rows):
        settings = {"rank": 3, "passes": 1, "prior_scale": 1.0, "fit_intercept": False}
        shards = [
            kalvi.LogisticRegression(**settings).fit(rows[part], y[part]).posterior_
            for part in (slice(0, half), slice(half, N))
        ]
        zeros = np.zeros(WIDTH), np.zeros((WIDTH, 3)), np.ones(WIDTH)
        return kalvi.merge(shards, kalvi.LowRankPrecision(*zeros))

    sparse, dense = merged(x), merged(x.toarray())
    np.testing.assert_allclose(sparse.mean, dense.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(sparse.variance(), dense.variance(), rtol=1e-6)


def test_hashed_texts_and_levels_in_pipelines():
    """Words, tokens and levels of scikit-learn's encoders, none of them made dense."""
    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice(["good", "bad", "fine", "poor"], 5)) for _ in range(80)]
    y = np.array([text.count("good") + text.count("fine") > 2 for text in texts])
    levels = np.array([[f"level {i % 70}"] for i in range(80)])
    tokens = [dict.fromkeys(text.split(), 1.0) for text in texts]
    encoders = {
        "text": (HashingVectorizer(n_features=2**12, ngram_range=(1, 2)), texts, ["unheard of"]),
        "tokens": (FeatureHasher(2**12), tokens, [{"unheard": 1.0}]),
        "levels": (OneHotEncoder(handle_unknown="ignore"), levels, [["unheard"]]),
    }
    for encoder, rows, new in encoders.values():
        model = kalvi.LogisticRegression(rank=2, passes=1, prior_scale=2.0)
        pipeline = make_pipeline(encoder, model).fit(rows, y)
        assert stays_sparse(encoder.transform(rows), True)
        assert pipeline.predict_proba(rows).shape == (80, 2)
        # what was never seen has the doubt of the prior
        unseen = encoder.transform(new)
        spread = model.sample_predictors(unseen, 4000, random_state=0)
        own = np.sqrt(unseen.multiply(unseen).sum()) * 2.0
        assert np.std(spread) > 0.9 * own
