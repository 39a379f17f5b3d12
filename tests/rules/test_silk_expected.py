"""Sweeps with expected log-likelihoods: quadrature and dense Gaussians as judges."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import kalvi
from kalvi.rules.silk import Chains, Coupled, ExpectedSILK
from kalvi.rules.silk.expected import NARROW, expected
from kalvi.streams import run
from tests.laws import assert_close
from tests.rules import silk_dense as dense

NODES, WEIGHTS = np.polynomial.legendre.leggauss(600)


def integrals(mean, var):
    """E log σ(a), E σ(−a) and E σ′(a), a ~ N(mean, var)."""
    z = 12 * NODES
    weights = 12 * WEIGHTS * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    a = mean[..., None] + np.sqrt(var)[..., None] * z
    p = 1 / (1 + np.exp(-a))
    return [values @ weights for values in (-np.logaddexp(0, -a), 1 - p, p * (1 - p))]


def said(silk, data):
    """Pull, blocks of curvature and expected log-likelihood of the rows, entry by entry."""
    mean, square = dense.logits(silk)
    sign = 2 * data.x - 1
    value, tail, bend = integrals(sign * mean, square - mean**2)
    alpha, second = np.asarray(silk.cols.posterior.mean), dense.second_moments(silk.cols)
    pull = (data.share * (sign * tail + bend * mean)) @ alpha
    return pull, np.einsum("rc,cij->rij", data.share * bend, second), data.share * value


def bound(silk, data):
    return said(silk, data)[2].sum() - dense.side_kl(silk.rows) - dense.side_kl(silk.cols)


@pytest.mark.parametrize(("family", "scale"), [(Chains, 0.3), (Coupled, 2.0)])
def test_what_entries_say(family, scale):
    """Narrow logits by few nodes, others by the mixture."""
    data, silk = dense.data(), dense.some_silk(family)
    silk = eqx.tree_at(
        lambda s: [s.rows.posterior.mean, s.cols.posterior.mean],
        silk,
        [scale * s.posterior.mean for s in (silk.rows, silk.cols)],
    )
    mean, square = dense.logits(silk)
    widest = (square - mean**2)[data.seen].max()
    assert (widest <= NARROW) == (scale < 1)
    pull, blocks, loss = said(silk, data)
    tolerance = 1e-3 if widest <= NARROW else 1e-6
    for observed in (data.table(), data.list()):
        found = run.call(expected, silk, observed)
        i, j = np.triu_indices(dense.K)
        assert_close(found.pull, pull, tolerance)
        assert_close(found.curvature, blocks[:, i, j], tolerance)
        assert_close(found.loss, loss.sum(axis=1), tolerance)


@pytest.fixture(scope="module")
def climbed():
    """A hundred sweeps from anywhere, with the bound before each."""
    data, rule = dense.data(seen=1.0).unweighted(), ExpectedSILK()
    state, history = rule.init(dense.some_silk(Chains)), []
    for _ in range(100):
        state = run.advance(rule, state, data.table(weighted=False))
        history.append(state.elbo)
    return data, state.best.silk, history


def test_the_bound_does_not_fall_and_is_the_dense_one(climbed):
    data, silk, history = climbed
    assert np.all(np.diff(history) > -1e-9) and history[-1] - history[-6] < 0.01
    assert_close(history[-1], bound(silk, data), 1e-4)


def test_nothing_nearby_is_better(climbed):
    data, silk, _ = climbed
    best, rng = bound(silk, data), np.random.default_rng(0)
    for side in ("rows", "cols"):
        for name in ("posterior.mean", "prior.mean", "prior.variance", "prior.rate"):
            where = eqx.tree_at(
                lambda s, side=side, name=name: [_part(getattr(s, side), name)],
                silk,
                [_part(getattr(silk, side), name) * 1.0],
            )
            old = np.asarray(_part(getattr(where, side), name))
            for size in (0.1, -0.1):
                moved = jnp.asarray(old * (1 + size * rng.choice([-1, 1], old.shape)))
                there = eqx.tree_at(
                    lambda s, side=side, name=name: _part(getattr(s, side), name), silk, moved
                )
                assert bound(there, data) < best + 0.01


def _part(side, name):
    for step in name.split("."):
        side = getattr(side, step)
    return side


def test_the_estimator_goes_on_without_the_bound():
    """Votes that are nearly certain: the bound of the paper holds logits back."""
    rng = np.random.default_rng(0)
    n, m = 60, 40
    truth = np.outer(np.sin(np.arange(n) / 9), 8 * rng.normal(size=m)) + 2
    x = (rng.random((n, m)) < 1 / (1 + np.exp(-truth))) * 1.0
    seen = rng.random((n, m)) < 0.8
    fits = [
        kalvi.BinaryFactorization(
            2, bound=bound, col_locations="unordered", random_state=0, max_sweeps=300
        ).fit(x, mask=seen)
        for bound in ("polya_gamma", "expected")
    ]
    held, free = fits
    assert free.elbo_ > held.elbo_ + 20
    assert np.all(np.diff(free.elbo_history_) > -1e-6)
    size = [np.mean((one.row_factors_ @ one.col_factors_.T) ** 2) for one in fits]
    assert size[1] > 1.1 * size[0]
    assert_close(free.transform(np.where(seen, x, np.nan)), free.row_factors_, 0.05)
