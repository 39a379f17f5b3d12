"""prior_scale="auto" and drift="auto" in a stream: the mixture is that of brute force, a resume changes no
bit, and what is learned is as good as what could have been set."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp

import kalvi
from kalvi import LinearRegression, LogisticRegression
from kalvi.estimators.linear.shards import merge_models
from kalvi.rules import side_by_side

NOISE = 0.5


def linear_rows(n=300, jump=150, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    slope = np.where(np.arange(n)[:, None] < jump, [1.0, -1.0], [-2.0, 0.5])
    return x, np.sum(slope * x, axis=1) + NOISE * rng.normal(size=n)


class Filter:
    """A Kalman filter in natural parameters whose rows fade: dense NumPy, one row at a time."""

    def __init__(self, scale, keep):
        self.prior = np.eye(2) / scale**2
        self.keep, self.precision, self.shift = keep, self.prior.copy(), np.zeros(2)
        self.rows = 0.0

    def predict(self, x):
        covariance = np.linalg.inv(self.precision)
        return x @ covariance @ self.shift, x @ covariance @ x + NOISE**2

    def fade(self):
        self.precision = self.keep * self.precision + (1 - self.keep) * self.prior
        self.shift, self.rows = self.keep * self.shift, self.keep * self.rows

    def learn(self, x, y):
        self.fade()
        mean, var = self.predict(x)
        self.precision = self.precision + np.outer(x, x) / NOISE**2
        self.shift, self.rows = self.shift + x * y / NOISE**2, self.rows + 1
        return -0.5 * (np.log(2 * np.pi * var) + (y - mean) ** 2 / var)

    def woken(self, scale, keep):
        other = Filter(scale, keep)
        left = 1 / max((1 - keep) * self.rows, 1)
        other.precision = left * (self.precision - self.prior) + other.prior
        other.shift, other.rows = left * self.shift, left * self.rows
        return other


def mixture(x, y, model):
    """Weights and evidence of the mixture by explicit sums; the grid is the model's."""
    grid = model.fit_.stream.grid
    points = grid.points
    g = len(points)
    weights = np.full(g, 1 / g)
    awake = {p: Filter(*points[p]) for p in grid.beginners}
    total, since = 0.0, 0
    gained = dict.fromkeys(awake, 0.0)
    for t in range(len(y)):
        for p, one in awake.items():
            gained[p] += one.learn(x[t], y[t])
        if t + 1 != side_by_side.next_turn(since):
            continue
        weights, step = judged(weights, gained)
        total += step
        least = max(weights[p] for p in awake) * np.exp(-side_by_side.BEHIND)
        close = [p for p in awake if weights[p] > least]
        alpha = 1 - (1 - side_by_side.SHARE) ** (t + 1 - since)
        weights = (1 - alpha) * weights + alpha / g
        most = side_by_side.places(t + 1, 0)
        stay = sorted(close, key=lambda p: -weights[p])[:most]
        near = [p for p in grid.beside(stay[0]) if p not in stay]
        near = sorted(near, key=lambda p: -weights[p])[: most - len(stay)]
        leader = awake[stay[0]]
        woken = {p: leader.woken(*points[p]) for p in near if p not in awake}
        awake = {p: awake[p] for p in (*stay, *near) if p in awake} | woken
        gained, since = dict.fromkeys(awake, 0.0), t + 1
    weights, step = judged(weights, gained)
    return weights, awake, total + step


def judged(weights, gained):
    now = weights.copy()
    before = sum(weights[p] for p in gained)
    step = logsumexp([np.log(weights[p]) + gain for p, gain in gained.items()]) - np.log(before)
    for p, gain in gained.items():
        now[p] = weights[p] * np.exp(gain - step)
    return now, step


def learned(**others):
    return LinearRegression(
        prior_scale="auto",
        drift="auto",
        noise_scale=NOISE,
        fit_intercept=False,
        block_size=1,
        **others,
    )


@pytest.mark.parametrize("rank", [None, 2])
def test_the_mixture_is_that_of_brute_force(rank):
    x, y = linear_rows()
    model = learned(rank=rank).partial_fit(x[:100], y[:100]).partial_fit(x[100:], y[100:])
    weights, awake, evidence = mixture(x, y, model)
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-8)
    assert set(model.state_.points) == set(awake)
    found = model.fit_.stream.counted(model.state_).log_weights
    np.testing.assert_allclose(np.exp(found), weights, rtol=1e-5, atol=1e-12)

    new = np.array([[0.3, -1.0], [2.0, 1.0]])
    mean, std = model.predict(new, return_std=True)
    share = {p: weights[p] for p in awake}
    share = {p: w for p, w in share.items() if w >= 1e-3 * sum(share.values())}
    share = {p: w / sum(share.values()) for p, w in share.items()}
    laws = np.array([[awake[p].predict(row) for row in new] for p in share])
    w = np.array(list(share.values()))[:, None]
    centre = np.sum(w * laws[:, :, 0], axis=0)
    second = np.sum(w * (laws[:, :, 1] + laws[:, :, 0] ** 2), axis=0)
    np.testing.assert_allclose(mean, centre, rtol=1e-6)
    np.testing.assert_allclose(std, np.sqrt(second - centre**2), rtol=1e-6)


def test_unknown_noise_is_integrated_out_row_by_row():
    """Without drift the evidence of a copy is that of the normal-inverse-gamma model, in closed form."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2))
    y = x @ [1.0, 2.0] + 0.3 * rng.normal(size=60)
    model = LinearRegression(prior_scale="auto", drift=1, fit_intercept=False).partial_fit(x, y)
    for stream, i in zip(model.state_.streams, model.state_.points, strict=True):
        scale = model.fit_.stream.points[i].scale
        cov = np.eye(60) + scale**2 * x @ x.T
        total = y @ np.linalg.solve(cov, y)
        expected = gammaln(30) - 30 * np.log(np.pi * total) - np.linalg.slogdet(cov)[1] / 2
        np.testing.assert_allclose(float(stream.log_evidence), expected, rtol=1e-8)


@pytest.mark.parametrize(("dtype", "unit"), [("float64", 1e12), ("float32", 1e6)])
def test_with_unknown_noise_the_unit_of_y_changes_nothing(dtype, unit):
    x, y = linear_rows(200)
    one, other = (LinearRegression(dtype=dtype).partial_fit(x, y * by) for by in (1.0, unit))
    digits = 1e-9 if dtype == "float64" else 1e-4
    assert abs(other.log_evidence_ + len(y) * np.log(unit) - one.log_evidence_) < 200 * digits
    assert (other.prior_scale_, other.drift_) == (one.prior_scale_, one.drift_)
    np.testing.assert_allclose(other.predict(x) / unit, one.predict(x), atol=digits)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_resume_changes_no_bit(rank, tmp_path):
    x, y = linear_rows(400, 200)
    cuts = (0, 90, 100, 130, 131, 400)
    whole, resumed = learned(rank=rank), learned(rank=rank)
    for start, end in pairwise(cuts):
        whole.partial_fit(x[start:end], y[start:end])
        resumed.partial_fit(x[start:end], y[start:end])
        kalvi.save(tmp_path / "model.kalvi", resumed)
        resumed = kalvi.load(tmp_path / "model.kalvi")
    np.testing.assert_array_equal(whole.state_.log_weights, resumed.state_.log_weights)
    np.testing.assert_array_equal(whole.state_.history.rows, resumed.state_.history.rows)
    np.testing.assert_array_equal(whole.predict(x[:5]), resumed.predict(x[:5]))
    assert whole.log_evidence_ == resumed.log_evidence_
    assert whole.prior_scale_ == resumed.prior_scale_
    assert whole.drift_ == resumed.drift_


def test_how_rows_are_cut_changes_nothing_but_rounding():
    x, y = linear_rows(300)
    whole = learned().partial_fit(x, y)
    parts = learned()
    for start in range(0, 300, 7):
        parts.partial_fit(x[start : start + 7], y[start : start + 7])
    np.testing.assert_array_equal(whole.state_.points, parts.state_.points)
    np.testing.assert_allclose(whole.state_.log_weights, parts.state_.log_weights, rtol=1e-6)
    np.testing.assert_allclose(whole.log_evidence_, parts.log_evidence_, rtol=1e-9)


def logistic_rows(n, jump, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    slope = np.where(np.arange(n)[:, None] < jump, [1.0, -1.0, 0.5], [-1.5, 1.0, 1.5])
    return x, (rng.random(n) < 1 / (1 + np.exp(-np.sum(slope * x, axis=1)))).astype(int)


def test_a_change_of_the_world_is_followed():
    x, y = logistic_rows(1500, 500)
    model = LogisticRegression().partial_fit(x, y, [0, 1])
    still = LogisticRegression(prior_scale=1).partial_fit(x, y, [0, 1])
    assert model.log_evidence_ > still.log_evidence_ + 25
    assert model.drift_ < 1
    assert np.all(np.sign(model.coef_[0]) == [-1, 1, 1])


def test_a_world_that_stands_still_costs_little():
    x, y = logistic_rows(1500, 10_000)
    model = LogisticRegression().partial_fit(x, y, [0, 1])
    fixed = [
        LogisticRegression(prior_scale=scale).partial_fit(x, y, [0, 1]).log_evidence_
        for scale in (0.3, 1.0, 3.0)
    ]
    assert model.log_evidence_ > max(fixed) - 5
    assert model.drift_ > 0.999


def test_what_was_learned_is_told_turn_by_turn():
    x, y = logistic_rows(300, 10_000)
    model = LogisticRegression().partial_fit(x, y, [0, 1])
    found = model.learned_settings_
    assert list(found.rows) == [64, 128, 256, 300]
    assert (found.prior_scale, found.drift) == (model.prior_scale_, model.drift_)
    for values, weights in (
        (found.scales, found.scale_weights),
        (found.drifts, found.drift_weights),
    ):
        assert weights.shape == (4, len(values))
        np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(found.changing, 1 - found.drift_weights[:, 0])
    assert "prior scale" in found.words()[0]
    given = LogisticRegression(prior_scale=1.0).partial_fit(x, y, [0, 1])
    assert not hasattr(given, "learned_settings_")


def test_new_features_are_as_if_they_had_been_there():
    x, y = logistic_rows(200, 100)
    wide = np.column_stack([x, np.zeros((200, 2))])
    wide[120:, 3:] = x[120:, :2] ** 2
    grown = LogisticRegression().partial_fit(x[:120], y[:120], [0, 1]).widen(5)
    grown.partial_fit(wide[120:], y[120:])
    whole = LogisticRegression().partial_fit(wide[:120], y[:120], [0, 1])
    whole.partial_fit(wide[120:], y[120:])
    np.testing.assert_allclose(grown.coef_, whole.coef_, rtol=1e-8)
    np.testing.assert_allclose(grown.log_evidence_, whole.log_evidence_, rtol=1e-9)


def test_a_model_widened_to_longer_blocks_goes_on(tmp_path):
    x, y = logistic_rows(100, 50)
    model = LogisticRegression().partial_fit(x, y, [0, 1])
    before = model.fit_.stream
    model.widen(300)
    after = model.fit_.stream
    assert after.schedule.largest > before.schedule.largest
    assert after.points == before.points
    kalvi.save(tmp_path / "wide.kalvi", model)
    loaded = kalvi.load(tmp_path / "wide.kalvi")
    assert loaded.learned_settings_.words() == model.learned_settings_.words()


def test_a_model_whose_memories_do_not_suit_wider_rows_is_not_widened():
    x, y = logistic_rows(20, 10)
    model = LogisticRegression(rank=0).partial_fit(x, y, [0, 1])
    with pytest.raises(
        ValueError, match=r"blocks of 256 rows cannot go on in blocks of 32, .*=32\."
    ):
        model.widen(20_000)
    assert model.n_features_in_ == x.shape[1]


def test_parameters_that_are_given_are_not_learned():
    x, y = logistic_rows(200, 100)
    for given in ({"prior_scale": 1.0}, {"drift": 0.99}, {"forgetting": 0.99}):
        model = LogisticRegression(**given).partial_fit(x, y, [0, 1])
        assert model.prior_scale_ == 1
    both = LogisticRegression(prior_scale=2.0, drift="auto").partial_fit(x, y, [0, 1])
    assert both.prior_scale_ == 2
    assert isinstance(both.drift_, float)
    assert both.learned_settings_.prior_scale == 2
    assert not any("prior scale" in sentence for sentence in both.learned_settings_.words())
    scale = LogisticRegression(prior_scale="auto", drift=0.99).partial_fit(x, y, [0, 1])
    assert scale.drift_ == 0.99
    assert LogisticRegression().fit(x, y).prior_scale_ == 1
    assert LinearRegression().fit(x, y).prior_scale_ == 1000
    with pytest.raises(ValueError, match=r"drift='auto' learns how coefficients change"):
        LogisticRegression(drift="auto", forgetting=0.9).partial_fit(x, y, [0, 1])


@pytest.mark.parametrize(
    ("given", "change", "name"),
    [
        ({"prior_scale": 2.0, "drift": "auto"}, {"drift": 0.9}, "drift"),
        ({"prior_scale": 2.0, "drift": "auto"}, {"forgetting": 0.9, "drift": None}, "drift"),
        ({}, {"prior_scale": 1.0}, "prior_scale"),
        ({"block_size": 1}, {"block_size": 64}, "block_size"),  # other memories can be learned
    ],
)
def test_what_a_stream_learns_must_not_change(given, change, name):
    x, y = logistic_rows(100, 50)
    model = LogisticRegression(**given).partial_fit(x, y, [0, 1]).set_params(**change)
    with pytest.raises(ValueError, match=rf"^{name} was .* when this model was fitted"):
        model.partial_fit(x, y)


def test_classes_counts_and_sparse_rows_are_averaged_too():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    labels = np.argmax(x + rng.normal(size=(200, 3)), axis=1)
    proba = LogisticRegression().partial_fit(x, labels, [0, 1, 2]).predict_proba(x)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.mean(np.argmax(proba, axis=1) == labels) > 0.5
    counts = kalvi.PoissonRegression().partial_fit(x, rng.poisson(np.exp(x[:, 0])))
    assert counts.predict(x).shape == (200,)
    wide = sp.csr_array(np.where(rng.random((200, 60)) < 0.05, 1.0, 0.0))
    sparse = LogisticRegression(rank=3).partial_fit(wide, labels == 0, [False, True])
    assert np.all(np.isfinite(sparse.predict_proba(wide)))
    assert sparse.sample_predictors(wide[:4], 7).shape == (7, 4)


def test_shards_that_learned_their_settings_are_merged():
    x, y = logistic_rows(1000, 10_000)
    whole = LogisticRegression().partial_fit(x, y, [0, 1])
    parts = [
        LogisticRegression().partial_fit(x[rows], y[rows], [0, 1])
        for rows in (slice(500), slice(500, 1000))
    ]
    merged = merge_models(parts)
    std = np.sqrt(np.asarray(whole.posterior_.variance()))
    gap = np.asarray(merged.posterior_.mean) - np.asarray(whole.posterior_.mean)
    assert np.max(np.abs(gap) / std) < 0.5
    assert merged.fit_.n_rows == 1000
    merged.partial_fit(x[:100], y[:100])
    assert np.all(np.isfinite(merged.predict_proba(x)))
