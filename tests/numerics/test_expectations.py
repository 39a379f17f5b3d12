import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from kalvi.numerics import expectations
from tests import oracles
from tests.tables import scalars


def integrate(fn, mean, std, centre, width):
    points, weights = expectations.panels(*scalars(mean, std, centre, width))
    return float(weights @ fn(points))


@pytest.mark.parametrize("std", [1e-3, 1.0, 30.0, 1e3, 1e5])
def test_panels_resolve_a_kink_far_narrower_than_the_gaussian(std):
    for mean, centre in [(0.0, 0.0), (0.7, -0.3), (2 * std, 0.5)]:
        found = integrate(lambda f, c=centre: jax.nn.softplus(f - c), mean, std, centre, 1.0)
        points = oracles.around(centre, np.logspace(-1, 5, 13))
        wanted = oracles.expect(lambda f, c=centre: np.logaddexp(0, f - c), mean, std**2, points)
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4, 1e6])
def test_panels_resolve_a_peak(ratio):
    # E of a Gaussian bump: closed form
    width, mean, std = 1 / ratio, 0.3, 1.0
    found = integrate(lambda f: jnp.exp(-((f / width) ** 2) / 2), mean, std, 0.0, width)
    total = np.sqrt(width**2 + std**2)
    wanted = np.sqrt(2 * np.pi) * width * stats.norm.pdf(mean, 0, total)
    # ten Legendre nodes a panel: a Gaussian bump is the hardest feature they meet
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_panels_are_a_probability_with_the_right_moments():
    points, weights = expectations.panels(*scalars(1.5, 2.0, 0.0, 1.0))
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-14)
    assert np.all(np.asarray(weights) >= 0)
    np.testing.assert_allclose(weights @ points, 1.5, rtol=1e-13)
    np.testing.assert_allclose(weights @ (points - 1.5) ** 4, 3 * 2.0**4, rtol=1e-11)


def test_panels_of_no_width_are_the_point():
    points, weights = expectations.panels(*scalars(1.5, 0.0, 0.0, 1.0))
    np.testing.assert_array_equal(points, 1.5)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-14)


def test_log_expect_exp_of_something_tiny():
    # exp(fn) underflows everywhere; log E[exp(b f − 1000)] = b m + b² s²/2 − 1000
    fn = lambda f: 2.0 * f - 1000.0  # noqa: E731
    found = expectations.log_expect_exp(fn, *scalars(0.3, 0.5, 0.0, 1.0))
    np.testing.assert_allclose(found, 0.6 + 0.5 - 1000, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 4, 20])
def test_gauss_hermite_is_exact_for_polynomials(n):
    nodes, weights = expectations.gauss_hermite(n)
    for degree in range(2 * n):
        wanted = np.prod(np.arange(degree - 1, 0, -2.0)) if degree % 2 == 0 else 0.0
        scale = weights @ np.abs(nodes) ** degree
        assert abs(weights @ nodes**degree - wanted) < 1e-12 * max(scale, 1)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_sigma_points_are_exact_to_degree_five(dim):
    points, weights = expectations.sigma_points(dim)
    assert len(points) == 2 * dim**2 + 1

    def average(*powers):
        values = np.ones(len(points))
        for axis, power in enumerate(powers):
            values = values * points[:, axis] ** power
        return weights @ values

    for power, wanted in enumerate([1, 0, 1, 0, 3, 0]):
        np.testing.assert_allclose(average(power), wanted, atol=1e-13)
    if dim > 1:
        np.testing.assert_allclose(average(2, 2), 1, atol=1e-13)
        np.testing.assert_allclose(average(1, 1), 0, atol=1e-13)
        np.testing.assert_allclose(average(1, 3), 0, atol=1e-13)
        np.testing.assert_allclose(average(2, 3), 0, atol=1e-13)


def test_mills_ratio():
    a = np.concatenate([np.linspace(-40, 30, 400), -np.logspace(1, 8, 20)])
    ratio, excess = jax.vmap(expectations.mills_ratio)(jnp.asarray(a))
    # φ/Φ = √(2/π)/erfcx(−a/√2), which never underflows
    wanted = np.sqrt(2 / np.pi) / special.erfcx(-a / np.sqrt(2))
    np.testing.assert_allclose(ratio, wanted, rtol=1e-12)
    # h + a = E[t] of an exponential-like tail, by its own integral ∫ t e^{at − t²/2} / ∫ e^{at − t²/2}
    for value in (-300.0, -20.0, -8.1, -7.9, -3.0, 0.0, 2.0):
        scale = min(1.0, 1 / abs(value)) if value else 1.0
        grid, weight = np.polynomial.legendre.leggauss(200)
        t = (grid + 1) / 2 * 40 * scale if value < 0 else (grid + 1) / 2 * 15
        density = weight * np.exp(value * t - t**2 / 2)
        found = expectations.mills_ratio(*scalars(value))[1]
        np.testing.assert_allclose(found, density @ t / density.sum(), rtol=2e-11)
    assert np.all(np.asarray(excess) > 0) and np.all(np.diff(np.asarray(excess)[:400]) > 0)
