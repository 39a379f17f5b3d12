from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalvi.gaussians import Dense, Diagonal, LowRankCovariance, LowRankPrecision
from kalvi.gaussians.divergences import kl, wasserstein
from tests import oracles
from tests.laws import largest_array
from tests.tables import STRUCTURES

PAIRS = list(product(STRUCTURES, STRUCTURES))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda s: s.name)
def test_divergences_of_all_pairs(first, second):
    rng = np.random.default_rng(0)
    (q, mean_q, cov_q), (p, mean_p, cov_p) = first.make(rng), second.make(rng)
    wanted = oracles.gaussian_kl(mean_q, cov_q, mean_p, cov_p)
    np.testing.assert_allclose(kl(q, p), wanted, rtol=1e-11)
    wanted = oracles.gaussian_w2(mean_q, cov_q, mean_p, cov_p)
    np.testing.assert_allclose(wasserstein(q, p), wanted, rtol=1e-9)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_zero_on_itself(structure):
    q = structure.make(np.random.default_rng(1)).q
    np.testing.assert_allclose(kl(q, q), 0, atol=1e-13)
    # a root of a difference: √(1e-14 · tr Σ)
    np.testing.assert_allclose(wasserstein(q, q), 0, atol=3e-6)


@given(st.integers(0, 10**6))
def test_divergences_are_never_negative(seed):
    rng = np.random.default_rng(seed)
    q, p = (STRUCTURES[int(i)].make(rng).q for i in rng.integers(0, 4, 2))
    assert kl(q, p) > 0
    assert kl(q, q) > -1e-12


def test_wide_scales():
    rng = np.random.default_rng(2)
    scale = 10.0 ** np.arange(-5, 5)
    factor = rng.normal(size=(10, 2)) * scale[:, None]
    q = LowRankCovariance(np.zeros(10), factor, scale**2)
    p = LowRankPrecision(np.ones(10), factor[::-1], 1 / scale)
    wanted = oracles.gaussian_kl(q.mean, q.to_dense().cov, p.mean, p.to_dense().cov)
    # the dense oracle inverts a matrix of condition 1e20; agreement to 1e-6 is what it can show
    np.testing.assert_allclose(kl(q, p), wanted, rtol=1e-6)


def test_closed_forms():
    one, two = Diagonal([0.0], [1.0]), Dense([3.0], [[4.0]])
    np.testing.assert_allclose(kl(one, two), np.log(2) + (1 + 9) / 8 - 0.5, rtol=1e-14)
    np.testing.assert_allclose(wasserstein(one, two), np.sqrt(10), rtol=1e-12)


def test_float32():
    rng = np.random.default_rng(3)
    q, p = STRUCTURES[2].make(rng).q, STRUCTURES[3].make(rng).q
    single = [jax.tree.map(lambda a: a.astype(jnp.float32), g) for g in (q, p)]
    assert kl(*single).dtype == wasserstein(*single).dtype == np.float32
    np.testing.assert_allclose(kl(*single), kl(q, p), rtol=1e-4)
    np.testing.assert_allclose(wasserstein(*single), wasserstein(q, p), rtol=1e-4)


def test_low_rank_divergences_never_form_a_square_matrix():
    d = 200
    rng = np.random.default_rng(4)
    makes = (LowRankCovariance, LowRankPrecision)
    gaussians = [m(np.zeros(d), rng.normal(size=(d, 3)), np.ones(d)) for m in makes]
    gaussians.append(Diagonal(np.zeros(d), np.ones(d)))
    for q, p in product(gaussians, gaussians):
        assert largest_array(kl, q, p) < d * d // 4
        assert largest_array(wasserstein, q, p) < d * d // 4
