"""Copies side by side: weights are those of brute force, places follow from counts, and a copy that wakes
has the posterior that its prior and the leading copy's rows give."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Normal
from kalvi.rules import side_by_side
from kalvi.rules.drifts import Geometric
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.rules.side_by_side import SHARE, Copies, Grid, Point, judge, log_sum, turn
from kalvi.streams import run


def stands(n):
    """Streams that learn nothing."""
    zero, none = np.zeros(()), jnp.zeros((), jnp.int32)
    q = Diagonal.from_parts(np.zeros(1), np.ones(1))
    return [Streaming(q, zero, zero, zero, none, none)] * n


def wake(stream, here, there):
    return stream


def test_weights_and_evidence_are_those_of_every_sequence_of_settings():
    grid = Grid((0.5, 1.0, 2.0), (1.0,), None, turns=True)
    gains = np.random.default_rng(0).normal(size=(4, 3)) * 4
    ends = (64, 128, 256, 512)
    copies = Copies.begin(grid, stands(3))
    for end, gained in zip(ends[:-1], gains[:-1], strict=True):
        assert side_by_side.next_turn(int(copies.turned)) == end
        order = [list(copies.points).index(p) for p in range(3)]
        assert sorted(order) == [0, 1, 2]
        copies = turn(grid, copies, list(gained[copies.points]), end, wake)
    found = judge(copies, list(gains[-1][copies.points]))

    share = [1 - (1 - SHARE) ** rows for rows in (64, 64, 128)]
    total = np.zeros(3)
    for path in product(range(3), repeat=4):
        chance = 1 / 3
        for a, b, alpha in zip(path, path[1:], share, strict=False):
            chance *= (1 - alpha) * (a == b) + alpha / 3
        total[path[-1]] += chance * np.exp(sum(gains[t, g] for t, g in enumerate(path)))
    np.testing.assert_allclose(found.log_evidence, np.log(total.sum()), rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_weights), total / total.sum(), rtol=1e-9)


def test_a_point_that_sleeps_is_taken_to_predict_as_the_mixture():
    grid = Grid((0.5, 1.0, 2.0), (1.0,), (0, 2), turns=True)
    found = judge(Copies.begin(grid, stands(2)), [-3.0, -5.0])
    mixed = np.log((np.exp(-3) + np.exp(-5)) / 2)
    expected = np.array([np.exp(-3 - mixed), 1, np.exp(-5 - mixed)]) / 3
    np.testing.assert_allclose(np.exp(found.log_weights), expected, rtol=1e-12)
    np.testing.assert_allclose(found.log_evidence, mixed, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_copy_that_fails_leaves_numbers(bad):
    grid = Grid((0.5, 1.0, 2.0), (1.0,), None, turns=True)
    copies = turn(grid, Copies.begin(grid, stands(3)), [bad, -1.0, -2.0], 64, wake)
    assert np.all(np.isfinite(copies.log_weights))
    assert 0 not in copies.points[:1]
    np.testing.assert_allclose(log_sum(copies.log_weights), 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["best stays", "noise", "best changes", "surprises"])
def test_further_copies_cost_few_rows(kind):
    """At most 2.5 streams over 10,000 rows and 1.5 over 100,000, whatever the evidence says."""
    rng = np.random.default_rng(1)
    keeps = (1.0, 0.999, 0.99, 0.97)
    grid = Grid(tuple(np.logspace(-2, 2, 9)), keeps, tuple(range(0, 32, 4)), turns=True)
    quality = rng.normal(size=len(grid.points)) * 0.01
    copies, seen, cost = Copies.begin(grid, stands(8)), 0, {}
    while seen < 100_000:
        end = side_by_side.next_turn(seen)
        if kind == "best changes":
            quality = np.roll(quality, 1)
        gained = quality[copies.points] * (end - seen)
        if kind == "noise":
            gained = rng.normal(size=len(gained)) * 30
        if kind == "surprises" and rng.random() < 0.4:
            gained = gained - 10 * (end - seen)
        copies, seen = turn(grid, copies, list(gained), end, wake), end
        cost[seen] = 1 + int(copies.extra) / seen
        assert len(set(copies.points)) == len(copies.points) >= 1
    assert cost[10240] <= 2.5
    assert all(ratio <= 1.5 for rows, ratio in cost.items() if rows >= 90_000)


def test_a_surprise_wakes_shorter_memories():
    keeps = (1.0, 0.9999, 0.999, 0.997, 0.99)
    grid = Grid((1.0,), keeps, (0,), turns=True)
    copies, seen = Copies.begin(grid, stands(1)), 0
    for _ in range(20):
        end = side_by_side.next_turn(seen)
        gained = [-0.5 * (end - seen)] * len(copies.points)
        copies, seen = turn(grid, copies, gained, end, wake), end
    end = side_by_side.next_turn(seen)
    copies = turn(grid, copies, [-0.8 * (end - seen)] * len(copies.points), end, wake)
    assert {grid.points[p].keep for p in copies.points[1:]} == {0.999, 0.99}


def test_the_history_is_thinned():
    grid = Grid((1.0, 2.0), (1.0,), None, turns=True)
    copies, seen = Copies.begin(grid, stands(2)), 0
    for _ in range(1200):
        end = side_by_side.next_turn(seen)
        copies, seen = turn(grid, copies, [-1.0] * len(copies.points), end, wake), end
    rows = copies.history.rows
    assert len(rows) <= side_by_side.MOST_HISTORY + 1
    assert np.all(np.diff(rows) > 0)
    assert rows[-1] == seen


def variance(q):
    return np.asarray(run.call(lambda q: q.variance(), q))


STRUCTURES = {
    "dense": lambda mean, var: Dense.from_root(mean, np.diag(np.sqrt(var))),
    "diagonal": Diagonal.from_parts,
    "low rank": lambda mean, var: LowRankPrecision.from_parts(mean, np.zeros((3, 3)), 1 / var),
}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("keep", "other"), [(1.0, 1.0), (0.95, 1.0), (0.95, 0.8)])
def test_a_copy_that_wakes_has_the_same_rows_and_another_prior(structure, keep, other):
    """Dense algebra: κ (Λ − P/s²) + P/s'², as much of the sum of xy, for wider and narrower priors."""
    rng = np.random.default_rng(2)
    mean, var, n = rng.normal(size=3), np.array([1.0, 2.0, 0.5]), 40
    x = rng.normal(size=(n, 3)) if structure != "diagonal" else np.eye(3)[rng.integers(0, 3, n)]
    y = rng.normal(size=n)
    rule = RVGA(Normal(np.asarray(0.5)), drift=Geometric(np.asarray(keep)), block_size=1)
    state = run.begin(rule, STRUCTURES[structure](mean, var))
    for j in range(n):
        state = run.advance(rule, state, Batch(x[j : j + 1], y[j : j + 1], np.ones(1)))
    for narrower in (16.0, 1 / 16):
        parts = np.asarray(narrower), np.asarray(keep), np.asarray(other)
        woken = run.call(side_by_side.other_settings, state, *parts)
        weight = keep ** np.arange(n)[::-1]
        weight = weight * (min(1, 5 / weight.sum()) if other == 0.8 else 1)
        np.testing.assert_allclose(float(woken.rows), weight.sum())
        precision = np.diag(narrower / var) + (x.T * weight) @ x / 0.5
        shift = narrower * mean / var + x.T @ (weight * y) / 0.5
        covariance = np.linalg.inv(precision)
        np.testing.assert_allclose(woken.posterior.mean, covariance @ shift, rtol=1e-8)
        np.testing.assert_allclose(variance(woken.posterior), np.diag(covariance), rtol=1e-8)
        np.testing.assert_allclose(variance(woken.drifting.anchor), var / narrower)


def test_neighbours_are_those_on_the_grid():
    grid = Grid((0.1, 1.0, 10.0), (1.0, 0.99, 0.9))
    assert [grid.points[p] for p in grid.beside(4)] == [
        Point(1.0, 0.9),
        Point(1.0, 1.0),
        Point(10.0, 0.99),
        Point(0.1, 0.99),
    ]
    assert [grid.points[p] for p in grid.beside(0)] == [Point(0.1, 0.99), Point(1.0, 1.0)]
    assert [grid.points[p] for p in grid.quicker(0)] == [Point(0.1, 0.9)]
