"""Times of rows: drift by what has passed, whatever pieces the rows come in."""

import pickle
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from sklearn.base import clone

import kalvi
from tests import oracles
from tests.laws import assert_close

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -1.0] + 0.5 * RNG.normal(size=N)
LABELS = (Y > 0).astype(int)
TIMES = np.cumsum(RNG.exponential(size=N))


def regression(**given):
    return kalvi.LinearRegression(
        noise_scale=0.5, prior_scale=2.0, fit_intercept=False, drift=0.95, **given
    )


def test_rows_count_by_their_age():
    model = regression().partial_fit(X, Y, time=TIMES)
    weight = 0.95 ** (TIMES[-1] - TIMES)
    mean, cov = oracles.linear_posterior(np.zeros(2), 4 * np.eye(2), X, Y, 0.25, weight)
    assert_close(model.coef_, mean, 1e-9)
    assert_close(np.asarray(model.posterior_.variance()), np.diag(cov), 1e-9)


@pytest.mark.parametrize("rank", [None, 1])
def test_pieces_do_not_matter(rank):
    whole = regression(rank=rank).partial_fit(X, Y, time=TIMES)
    parts = regression(rank=rank)
    for part in np.split(np.arange(N), [1, 2, 20, 41]):
        parts.partial_fit(X[part], Y[part], time=TIMES[part])
    assert_close(parts.coef_, whole.coef_, 1e-9)
    # a full covariance drifts once a block, which a piece ends
    assert_close(parts.log_evidence_, whole.log_evidence_, 1e-9 if rank else 1e-2)


def test_rows_of_weight_zero_only_let_time_pass():
    some = np.arange(N) % 3 > 0
    one = regression().partial_fit(X, Y, sample_weight=some.astype(float), time=TIMES)
    other = regression().partial_fit(X[some], Y[some], time=TIMES[some])
    assert_close(one.coef_, other.coef_, 1e-12)


def test_dates_are_counted_in_days():
    dates = np.datetime64("2024-03-01") + (TIMES * 86400).astype("timedelta64[s]")
    days = (TIMES * 86400).astype(int) / 86400
    one = kalvi.LogisticRegression(drift=0.9).partial_fit(X, LABELS, [0, 1], time=dates)
    other = kalvi.LogisticRegression(drift=0.9).partial_fit(X, LABELS, [0, 1], time=days)
    assert_close(one.coef_, other.coef_, 1e-9)


def test_a_saved_model_knows_what_time_it_is(tmp_path):
    for rank in (None, 1):
        whole = regression(rank=rank).partial_fit(X[:30], Y[:30], time=TIMES[:30])
        kalvi.save(tmp_path / "m.kalvi", whole)
        again = kalvi.load(tmp_path / "m.kalvi")
        for model in (whole, again):
            model.partial_fit(X[30:], Y[30:], time=TIMES[30:])
        np.testing.assert_array_equal(whole.coef_, again.coef_)


def test_a_long_pause_leaves_the_prior():
    model = regression().partial_fit(X, Y, time=TIMES)
    model.partial_fit(np.zeros((1, 2)), [0.0], time=[1e6])
    assert_close(model.coef_, np.zeros(2), 1e-9)
    assert_close(np.asarray(model.posterior_.variance()), [4.0, 4.0], 1e-9)


@pytest.mark.parametrize(
    ("given", "time", "message"),
    [
        ({}, TIMES[::-1], r"time must not go back; row 1 has .* Sort the rows\."),
        (
            {},
            TIMES[:3],
            r"a finite number or a date for each of the 60 rows; got shape \(3,\)",
        ),
        ({}, np.full(N, np.nan), "with missing entries"),
        ({}, np.full(N, np.datetime64("NaT")), "with missing entries"),
        (
            {"drift": None},
            TIMES,
            "time= says how long coefficients drift between rows; give drift= too",
        ),
    ],
)
def test_bad_times_are_refused(given, time, message):
    model = regression().set_params(**given)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, Y, time=time)
    assert not hasattr(model, "fit_")


def test_times_are_of_all_rows_or_none_and_in_order():
    model = regression().partial_fit(X, Y, time=TIMES)
    with pytest.raises(
        ValueError, match="time= must be given for all rows of a stream or for none"
    ):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="time must not go back; row 0 has"):
        model.partial_fit(X, Y, time=TIMES)
    with pytest.raises(ValueError, match="time= must be given for all rows"):
        regression().partial_fit(X, Y).partial_fit(X, Y, time=TIMES)


# drift of the estimators ----------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_drift_is_saved_cloned_and_changed(rank, tmp_path):
    drift = kalvi.drifts.OrnsteinUhlenbeck(0.99)
    model = clone(kalvi.LogisticRegression(rank=rank, drift=drift)).partial_fit(X, LABELS, [0, 1])
    kalvi.save(tmp_path / "m.kalvi", model)
    for again in (kalvi.load(tmp_path / "m.kalvi"), pickle.loads(pickle.dumps(model))):
        assert again.drift.keep == 0.99
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        again.partial_fit(X, LABELS)
        assert not np.array_equal(again.coef_, model.coef_)
    still = kalvi.LogisticRegression(rank=rank, prior_scale=1.0).partial_fit(X, LABELS, [0, 1])
    still.set_params(drift=0.999).partial_fit(X, LABELS)  # begins to drift
    still.set_params(drift=None).partial_fit(X, LABELS)  # and stops
    assert np.all(np.isfinite(still.coef_))


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_a_drifting_model_widens(rank):
    wide = np.column_stack([X, np.zeros(N)])
    one = kalvi.LogisticRegression(rank=rank, drift=0.95, prior_scale=0.7, block_size=10)
    other = clone(one).partial_fit(wide, LABELS, [0, 1])
    one.partial_fit(X, LABELS, [0, 1]).widen(3)
    for model in (one, other):
        model.partial_fit(wide + 1, LABELS)
    assert_close(
        one.coef_, other.coef_, 1e-2 if rank else 1e-10
    )  # a projection counts the features


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"drift": 1.5},
            r"drift must be None, 'auto', a drift of kalvi\.drifts or a number in \(0, 1\]",
        ),
        ({"drift": "fast"}, "drift must be None"),
        ({"drift": 0.9, "passes": 3}, "passes=3 needs forgetting=1, process_noise=0, drift=None"),
        ({"drift": 0.9, "method": "klprox"}, "drift=None"),
    ],
)
def test_bad_drifts_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        kalvi.LogisticRegression(**given).fit(X, LABELS)


def test_to_keep_everything_is_today():
    one, other = (kalvi.LogisticRegression(drift=drift).fit(X, LABELS) for drift in (None, 1.0))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert other.converged_


@pytest.mark.parametrize("drift", [0.5, kalvi.drifts.OrnsteinUhlenbeck(0.9), None])
def test_another_drift_in_the_middle_never_exceeds_the_prior(drift):
    x = np.random.default_rng(1).normal(size=(400, 64))
    x[:, 0] = 0  # a column that says nothing
    y = (x[:, 1] > 0).astype(int)
    model = kalvi.LogisticRegression(drift=0.995, fit_intercept=False)
    model.partial_fit(x[:336], y[:336], classes=[0, 1])
    model.set_params(drift=drift)
    for k in range(336, 400, 4):
        model.partial_fit(x[k : k + 4], y[k : k + 4])
        assert np.asarray(model.posterior_.variance()).max() <= model.prior_scale_**2 * (1 + 1e-9)


def test_any_dates_are_times():
    days = np.arange(N)
    expected = regression().partial_fit(X, Y, time=days).coef_
    start = datetime(2024, 1, 1)
    zone = timezone(timedelta(hours=5))
    for time in (
        [start + timedelta(days=int(k)) for k in days],
        [(start + timedelta(days=int(k))).date() for k in days],
        [(start + timedelta(days=int(k))).replace(tzinfo=zone) for k in days],
        days * np.timedelta64(24, "h"),
    ):
        assert_close(regression().partial_fit(X, Y, time=time).coef_, expected, 1e-12)


def test_times_that_are_neither_numbers_nor_dates_are_refused():
    with pytest.raises(ValueError, match="time must be numbers, dates or durations"):
        regression().partial_fit(X, Y, time=[f"2024-01-{k:02d}" for k in range(N)])
    with pytest.raises(ValueError, match=r"finite in float64; got times from .* larger unit"):
        regression().partial_fit(X, Y, time=np.r_[-1.5e308, np.linspace(1.5e308, 1.6e308, N - 1)])
