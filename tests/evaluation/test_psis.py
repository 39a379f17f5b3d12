import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from kalvi.evaluation import psis

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [100, 200, 1000])
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_weights_and_shape_are_those_of_arviz(n, spread):
    ratios = spread * RNG.normal(size=n) - 700
    expected, k = array_stats.psislw(-ratios)
    found = psis.psis(ratios)
    np.testing.assert_allclose(found.pareto_k, k, rtol=1e-8)
    np.testing.assert_allclose(found.log_weights, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("k", [0.2, 0.6, 1.1])
def test_a_tail_of_known_shape(k):
    """exp(k E) with exponential E is Pareto of shape k; k̂ has the standard error (1 + k)/√M."""
    n = 100_000
    ratios = k * np.random.default_rng(1).exponential(size=n)
    assert abs(psis.psis(ratios).pareto_k - k) < 4 * (1 + k) / np.sqrt(3 * np.sqrt(n))


def test_the_fit_against_maximum_likelihood():
    excess = np.sort(stats.genpareto.rvs(0.4, scale=2.0, size=20_000, random_state=2))
    shape, _, scale = stats.genpareto.fit(excess, floc=0)
    np.testing.assert_allclose(psis.fit_pareto(excess), (shape, scale), rtol=5e-3)


def test_equal_ratios_have_no_tail():
    found = psis.diagnosis(-3 + 1e-9 * RNG.normal(size=400), 7)
    assert found[:2] == (0.0, "good")
    np.testing.assert_allclose(found.ess, 400, rtol=1e-6)
    assert found[3:] == (400, 7, 0.0)


@pytest.mark.parametrize(("k", "verdict"), [(0.1, "good"), (0.6, "usable"), (0.95, "poor")])
def test_verdicts(k, verdict):
    places = (np.arange(4000) + 0.5) / 4000
    assert psis.diagnosis(-k * np.log1p(-places), 1).verdict == verdict


def test_even_ratios_are_good_unless_they_have_no_mean():
    places = (np.arange(4000) + 0.5) / 4000
    for k, size, verdict in ((0.8, 1e-3, "good"), (1.3, 1e-5, "poor")):
        ratios = np.log1p(size * (np.exp(-k * np.log1p(-places)) - 1))
        found = psis.diagnosis(ratios, 1)
        assert found.ess > 3600
        assert found.verdict == verdict
        assert abs(found.pareto_k - k) < 0.1


def test_good_needs_means_that_weighting_leaves_where_they_are():
    ratios = 0.3 * RNG.normal(size=1000)
    ess = psis.diagnosis(ratios, 1).ess
    noise = np.sqrt((1 / ess - 1 / 1000) * 2 * np.log(2 * 3))
    for shift, verdict in ((0.2 + 0.9 * noise, "good"), (0.2 + 1.1 * noise, "usable")):
        found = psis.diagnosis(ratios, 1, np.array([0.0, -shift, 0.1]))
        assert (found.verdict, found.shift) == (verdict, shift)


def test_refusals():
    with pytest.raises(ValueError, match="finite and at least 100; got 99, 0 of them"):
        psis.psis(np.zeros(99))
    with pytest.raises(ValueError, match="got 100, 1 of them not finite"):
        psis.psis(np.append(np.zeros(99), np.nan))
