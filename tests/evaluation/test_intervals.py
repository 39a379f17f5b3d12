"""Whether an interval holds what came, at all levels at once, against the intervals themselves."""

import numpy as np

from kalvi.evaluation import intervals

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])


def held(make, y, mean, std):
    columns = []
    for level in LEVELS:
        _, lower, upper = make(mean, std, float(level))
        columns.append((lower <= y) & (y <= upper))
    return np.column_stack(columns)


def test_intervals_of_numbers_at_all_levels():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=500), rng.exponential(size=500)
    y = mean + std * rng.normal(size=500)
    found = intervals.normal_holds(y, mean, std, LEVELS)
    np.testing.assert_array_equal(found, held(intervals.normal, y, mean, std))
    assert 0.4 < found[:, 0].mean() < 0.6


def test_intervals_of_counts_at_all_levels():
    """Their ends are counts, and an end is held."""
    rng = np.random.default_rng(1)
    mean, std = rng.normal(1, 1.5, 800), 0.3 * rng.exponential(size=800)
    y = rng.poisson(np.exp(mean + std * rng.normal(size=800))).astype(float)
    found = intervals.counts_hold(y, mean, std, LEVELS)
    np.testing.assert_array_equal(found, held(intervals.counts, y, mean, std))
    assert (y == 0).any() and found[:, 3].mean() > 0.9
