"""Scores in bounded sums against scikit-learn, their baselines, and drift along a stream."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from kalvi.tabular.scores import ODDS_BINS, POINTS, ClassScores, Losses, NumberScores

N = 4000


def named(measures):
    return {m["name"]: (m["value"], m["baseline"]) for m in measures}


def classes(k, sharpness=1.5, seed=0):
    rng = np.random.default_rng(seed)
    p = softmax(sharpness * rng.normal(size=(N, k)) - np.arange(k), axis=1)
    return p, np.array([rng.choice(k, p=row) for row in p]).astype(float)


def in_parts(scores, *arrays):
    for part in zip(*(np.array_split(a, 7) for a in arrays), strict=True):
        scores = scores.add(*part)
    return scores


def test_scores_of_two_classes_are_those_of_scikit_learn():
    p, y = classes(2)
    found = named(in_parts(ClassScores.none(2), p, y).measures(("no", "yes")))
    share = y.mean()
    base = np.full(N, share)
    np.testing.assert_allclose(
        found["accuracy"], [np.mean((p[:, 1] > 0.5) == y), max(share, 1 - share)]
    )
    np.testing.assert_allclose(found["AUC"], [metrics.roc_auc_score(y, p[:, 1]), 0.5], atol=1e-4)
    brier = [metrics.brier_score_loss(y, q) for q in (p[:, 1], base)]
    np.testing.assert_allclose(found["Brier score"], brier)
    loss = [metrics.log_loss(y, q) for q in (p[:, 1], base)]
    np.testing.assert_allclose(found["log loss"], loss)


@pytest.mark.parametrize("k, error", [(3, 5e-4), (10, 2e-3), (26, 5e-3)])
def test_scores_of_several_classes_are_those_of_scikit_learn(k, error):
    p, y = classes(k, sharpness=2.5)
    found = named(in_parts(ClassScores.none(k), p, y).measures(tuple(map(str, range(k)))))
    hit = y[:, None] == np.arange(k)
    there = hit.any(axis=0)
    area = np.mean([metrics.roc_auc_score(hit[:, j], p[:, j]) for j in np.flatnonzero(there)])
    np.testing.assert_allclose(found["AUC"][0], area, atol=error)
    np.testing.assert_allclose(found["accuracy"][0], metrics.accuracy_score(y, p.argmax(axis=1)))
    np.testing.assert_allclose(found["Brier score"][0], np.mean(np.sum((p - hit) ** 2, axis=1)))
    np.testing.assert_allclose(found["Brier score"][1], 1 - np.sum(hit.mean(axis=0) ** 2))
    np.testing.assert_allclose(found["log loss"][0], metrics.log_loss(y, p, labels=range(k)))


def test_rare_events_keep_their_order():
    rng = np.random.default_rng(1)
    p = np.exp(rng.normal(-8, 1, N))
    y = (rng.random(N) < 100 * p).astype(float)
    scores = ClassScores.none(2).add(np.column_stack([1 - p, p]), y)
    area = named(scores.measures(("a", "b")))["AUC"][0]
    np.testing.assert_allclose(area, metrics.roc_auc_score(y, p), atol=2e-3)
    assert scores.ranks.shape == (1, 2, ODDS_BINS)


def test_one_class_alone_has_no_area():
    p = np.full((10, 2), 0.5)
    measures = named(ClassScores.none(2).add(p, np.zeros(10)).measures(("a", "b")))
    assert "AUC" not in measures and measures["log loss"][1] == 0


def test_scores_of_numbers_are_those_of_scikit_learn():
    """Also where the numbers are far from zero."""
    rng = np.random.default_rng(2)
    y = 1e8 + rng.normal(size=N)
    mean = y + 0.5 * rng.normal(size=N)
    scores, before = NumberScores.none(), []
    for part in np.array_split(np.arange(N), 9):
        if part[0]:
            scores = scores.add(mean[part], y[part])
            before.append(np.full(len(part), y[: part[0]].mean()))
        scores = scores.after(y[part])
    start = len(np.array_split(np.arange(N), 9)[0])
    y, mean, base = y[start:], mean[start:], np.concatenate(before)
    found = named(scores.measures())
    np.testing.assert_allclose(found["R²"], [metrics.r2_score(y, mean), 0], rtol=1e-6)
    rmse = [metrics.root_mean_squared_error(y, q) for q in (mean, base)]
    np.testing.assert_allclose(found["RMSE"], rmse, rtol=1e-6)
    mae = [metrics.mean_absolute_error(y, q) for q in (mean, base)]
    np.testing.assert_allclose(found["MAE"], mae, rtol=1e-6)


def test_sums_of_shards_are_those_of_all():
    p, y = classes(3)
    halves = [ClassScores.none(3).add(p[i::2], y[i::2]) for i in range(2)]
    whole = ClassScores.none(3).add(p, y)
    for a, b in zip(halves[0].join(halves[1]), whole, strict=True):
        np.testing.assert_allclose(a, b)
    numbers = [NumberScores.none().add(p[i::2, 0], y[i::2]).after(y[i::2]) for i in range(2)]
    whole = NumberScores.none().add(p[:, 0], y).after(y)
    np.testing.assert_allclose(numbers[0].join(numbers[1]), whole)


def along(loss, size=100):
    losses = Losses.none()
    for start in range(0, len(loss), size):
        part = loss[start : start + size]
        losses = losses.add(np.arange(start, start + len(part)), part)
    return losses


def test_a_rise_of_the_loss_at_the_end_is_seen():
    rng = np.random.default_rng(3)
    loss = rng.exponential(size=50_000)
    loss[45_000:] *= 1.5
    losses = along(loss)
    assert len(losses.at) <= 2 * POINTS
    drift = losses.drift()
    assert drift["sure"]
    np.testing.assert_allclose(drift["change"], 0.5, atol=0.08)
    np.testing.assert_allclose(drift["before"], loss[40_000:45_000].mean(), rtol=0.02)


def test_noise_is_no_drift():
    rng = np.random.default_rng(4)
    sure = [along(rng.exponential(size=2000)).drift()["sure"] for _ in range(100)]
    assert sum(sure) <= 3
    assert along(np.ones(100)).drift() is None  # ten rows say nothing
    assert Losses.none().drift() is None
