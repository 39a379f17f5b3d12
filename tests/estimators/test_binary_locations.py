"""Locations as people have them, and what their digits do."""

import datetime

import numpy as np
import pandas as pd
import pytest

import kalvi
from kalvi.estimators.binary_factorization.locations import locations_as_numbers
from kalvi.rules.silk import find_neighbours, group_locations, separate_ties

DAYS = [datetime.date(2020, 1, 1), datetime.date(2020, 3, 1), datetime.date(2021, 1, 1)]
SINCE_1970 = [18262, 18322, 18628]


@pytest.mark.parametrize(
    "given",
    [
        DAYS,
        [str(day) for day in DAYS],
        [pd.Timestamp(day) for day in DAYS],
        pd.DatetimeIndex(DAYS),
        pd.DatetimeIndex(DAYS).tz_localize("UTC"),
        pd.PeriodIndex(DAYS, freq="D"),
        pd.Series(DAYS),
        np.array(DAYS, "datetime64[ns]"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_dates_are_days(given):
    np.testing.assert_allclose(locations_as_numbers("row_locations", given), SINCE_1970)


def test_times_are_days_in_any_unit():
    hours = np.array([0, 12, 36], "timedelta64[h]")
    for unit in ("s", "ns"):
        found = locations_as_numbers("row_locations", hours.astype(f"timedelta64[{unit}]"))
        np.testing.assert_allclose(found, [0, 0.5, 1.5])


@pytest.mark.parametrize(
    "given",
    [
        np.array([1, "NaT"], "timedelta64[s]"),
        np.ma.array([1.0, 2.0], mask=[False, True]),
        np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    ],
)
def test_what_is_not_there_is_refused(given):
    with pytest.raises(ValueError, match="row_locations must be finite; entry 1 is nan"):
        locations_as_numbers("row_locations", given)


@pytest.mark.parametrize("given", [[1 + 2j, 3], ["a", "b"]])
def test_what_is_no_number_is_refused(given):
    with pytest.raises(ValueError, match="must hold numbers or dates"):
        locations_as_numbers("row_locations", given)


def test_locations_are_one_only_where_their_digits_end():
    far = np.append(np.arange(7.0), 1e10)
    assert group_locations(far).n == 8
    assert group_locations(np.array([0.0, 0.0, 1e-10, 5.0])).n == 3
    assert group_locations(1.7e9 + np.array([0, 1e-8, 1.0])).n == 2
    np.testing.assert_array_equal(separate_ties(np.array([0.0, 0.0, 1.0])), [0, 0.5, 1])


def test_gaps_that_differ_are_not_even():
    assert group_locations(np.linspace(0, 1, 1000)).even
    assert not group_locations(1.7e9 + np.cumsum([0, 1e-3, 1.0, 1e-3])).even


def test_neighbours_of_far_locations_keep_their_digits_in_float32():
    known = np.concatenate([np.arange(20.0), 4e7 + np.arange(20.0)])
    found = find_neighbours(known, known + 0.25, np.dtype("float32"))
    np.testing.assert_array_equal(found.left, np.arange(40))
    np.testing.assert_array_equal(found.to_left, 0.25)
    np.testing.assert_array_equal(found.to_right[:19], 0.75)
    assert np.isinf(found.to_right[-1]) and found.right[-1] == 39


def test_gaps_beyond_float32_are_refused():
    with pytest.raises(
        ValueError, match="leave the range of float32; give locations in another unit"
    ):
        group_locations(np.linspace(0, 1e-40, 9)).on_device("float32")


@pytest.mark.slow(reason="compiles fits and transforms of two posteriors")
def test_what_was_fitted_transforms_whatever_the_parameters_are_now():
    rng = np.random.default_rng(0)
    x = rng.random((12, 9)) < 0.5
    model = kalvi.BinaryFactorization(3, random_state=0, max_sweeps=400, tol=1e-3).fit(x)
    before = model.transform(x)
    np.testing.assert_array_equal(model.set_params(posterior="coupled").transform(x), before)
    again = model.set_params(posterior="chains").fit(
        x, start=(model.row_factors_, model.col_factors_)
    )
    assert again.elbo_history_[0] > again.elbo_ - 5 and again.n_sweeps_ < 100
    with pytest.raises(
        ValueError, match=r"start must hold two arrays .* shapes \(12, 3\) and \(9, 3\)"
    ):
        model.fit(x, start=(model.row_factors_, model.row_factors_))
    assert model.predict_proba(rows=np.zeros(12, bool)).shape == (0, 9)
    assert model.predict_proba(cols=np.zeros(9, bool)).shape == (12, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mask": np.full((4, 3), np.nan)}, "mask must be true where an entry was observed"),
        ({"weight": np.full((4, 3), 1e39)}, "weight must be finite and not negative"),
    ],
)
def test_masks_and_weights_that_mean_nothing(given, message):
    with pytest.raises(ValueError, match=message):
        kalvi.BinaryFactorization(1, dtype="float32").fit(np.eye(4)[:, :3], **given)
