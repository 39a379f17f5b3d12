"""Tables of factors, intervals of probabilities and draws, written out in NumPy."""

import numpy as np
import pytest
from scipy.stats import norm

from tests.estimators import test_binary_factorization as plain
from tests.estimators import test_binary_groups as groups
from tests.laws import assert_close


@pytest.fixture(scope="module")
def fitted():
    return plain.model().fit(plain.HOLES)


@pytest.fixture(scope="module")
def grouped():
    return groups.model().fit(groups.X)


def test_the_table_has_a_line_for_each_row_and_factor(fitted, grouped):
    table = fitted.ideal_points(level=0.5)
    assert list(table.columns) == ["name", "location", "factor", "mean", "std", "low", "high"]
    assert len(table) == plain.N * plain.K and list(table["factor"][:2]) == [1, 2]
    mean, std = (table[part].to_numpy().reshape(-1, plain.K) for part in ("mean", "std"))
    assert_close(mean, fitted.row_factors_, 1e-12)
    assert_close(std, fitted.row_stds_, 1e-12)
    assert_close(table["location"].to_numpy()[:: plain.K], plain.LOCATIONS, 1e-12)
    ends = norm.interval(0.5, table["mean"], table["std"])
    assert_close(table[["low", "high"]].to_numpy().T, ends, 1e-10)
    columns = fitted.ideal_points("col", names=[f"c{i}" for i in range(plain.M)])
    assert columns["name"].iloc[-1] == "c19" and "location" not in columns
    assert_close(columns["mean"].to_numpy().reshape(-1, plain.K), fitted.col_factors_, 1e-12)
    people = grouped.ideal_points()
    assert list(people["group"]) == list(groups.PEOPLE)


def test_anchors_are_where_they_are_put(fitted, grouped):
    anchors = {0: (1, 0), 3: (-1, 0), 5: (0, 2)}
    table = fitted.ideal_points(anchors=anchors)
    mean = table["mean"].to_numpy().reshape(-1, 2)
    assert_close(mean[list(anchors)], np.array(list(anchors.values()), float), 1e-9)
    design = np.column_stack([fitted.row_factors_, np.ones(plain.N)])
    by = np.linalg.lstsq(design, mean, rcond=None)[0]
    assert_close(design @ by, mean, 1e-9)
    std = np.sqrt(fitted.row_stds_**2 @ by[:2] ** 2)
    assert_close(table["std"].to_numpy().reshape(-1, 2), std, 1e-9)
    once = grouped.ideal_points(names=groups.PEOPLE, anchors={"ada": -1, "cy": 1})
    means = once.groupby("name")["mean"].mean()
    assert_close(means[["ada", "cy"]].to_numpy(), [-1, 1], 1e-9)


def test_intervals_are_those_of_the_logits(fitted):
    mean, var = plain.law(fitted)
    ends = norm.interval(0.9, mean, np.sqrt(var))
    found = fitted.predict_interval(level=0.9)
    for one, end in zip(found, ends, strict=True):
        assert_close(one, 1 / (1 + np.exp(-end)), 1e-8)
    low, high = fitted.predict_interval([0, 4], [3, 3], level=0.9)
    assert_close(low, found[0][[0, 4], [3, 3]], 1e-12)
    assert np.all(low < high)


def test_draws_have_the_moments_of_the_factors(fitted):
    draws = fitted.sample_posterior(4000, random_state=0)
    for drawn, mean, std in (
        (draws.rows, fitted.row_factors_, fitted.row_stds_),
        (draws.cols, fitted.col_factors_, fitted.col_stds_),
    ):
        assert drawn.shape == (4000, *mean.shape)
        assert np.abs((drawn.mean(axis=0) - mean) / std).max() < 5 / np.sqrt(4000)
        assert_close(drawn.std(axis=0) / std, np.ones_like(std), 0.06)
    again = fitted.sample_posterior(4000, random_state=0)
    assert np.array_equal(draws.rows, again.rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"side": "both"}, "side must be 'row' or 'col'; got 'both'"),
        ({"names": ["a"]}, "names must hold one name for each of the 30 rows; got shape"),
        ({"names": "abc"}, "names must hold one name for each of the 30 rows; got shape"),
        ({"level": 95.0}, "level must be between 0 and 1; got 95"),
        ({"anchors": {0: (1, 1)}}, "anchors must be at least 3, one more than factors; got 1"),
        ({"anchors": dict.fromkeys([0, 1, 99], (0, 0))}, "must be among the names; 99 is not"),
        ({"anchors": {0: 1, 1: 2, 2: 3}}, "anchors must give 2 numbers for each name"),
    ],
)
def test_tables_that_cannot_be_made_are_refused(fitted, given, message):
    with pytest.raises(ValueError, match=message):
        fitted.ideal_points(**given)


@pytest.mark.parametrize("n", [0, -1])
def test_draws_that_cannot_be_made_are_refused(fitted, n):
    with pytest.raises(ValueError, match="n_samples must be a whole number, at least 1"):
        fitted.sample_posterior(n)
