"""The implicit step m = m₀ + ω v₀ E[∂ log p], 1/v = 1/v₀ − ω E[∂² log p], re-evaluated independently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from kalvi.likelihoods import Bernoulli, Laplace, Poisson, Probit, StudentT
from kalvi.likelihoods.custom import Custom
from kalvi.likelihoods.logistic import MIXTURE, InverseProbit
from tests import oracles

GOLDEN = np.array(
    # alpha0, nu0, y, xi, gamma: an 80-bit reference
    [
        (0, 1, 1, 0.411540499151812, 0.210433513604735),
        (3, 0.01, 0, -0.951874882224886, 0.0457194497865781),
        (1, 300, 1, 0.0527706218935283, 0.00857566213431404),
        (100, 300, 0, -0.338172937973883, 0.10350560947226),
        (-5, 1e4, 1, 0.0122197253250911, 0.000452383871843951),
        (150, 300, 0, -0.5, 0.12353754436845),
        (0, 1e8, 1, 0.000174543625103888, 8.65165093397194e-08),
        (-1e6, 1e8, 1, 0.0100018234095117, 0.000249521974330524),
    ]
)


def solve(likelihood, y, mean, var, weight, dtype=jnp.float64):
    args = (jnp.asarray(a, dtype) for a in (y, mean, var, weight))
    return jax.jit(jax.vmap(lambda *row: likelihood.implicit(*row)))(*args)


def draws(n, rng):
    """Predictors from tiny to enormous, a third of them on the ridge where the sign of m is decided."""
    var = 10 ** rng.uniform(-10, 8, n)
    mean = 10 ** rng.uniform(-8, 6, n) * rng.choice([-1, 1], n)
    y, weight = rng.integers(0, 2, n).astype(float), rng.uniform(0, 3, n)
    weight = np.where(weight == 0, 3.0, weight)
    ridge = rng.uniform(size=n) < 1 / 3
    near = -(2 * y - 1) * weight * var / 2 * (1 + 1e-3 * rng.normal(size=n))
    return y, np.where(ridge, near, mean), var, weight


def residuals(y, m0, v0, weight, step, curvature):
    """How far the printed equations are from holding at a site, each relative to its terms.

    The first is read both ways: the step from the mean, and the mean from the step. On the ridge the
    mean m₀ + v₀ ξ is a difference of huge numbers, in the tail the step says little of the mean; the
    equation holds if it does in the direction that is well posed.
    """
    sign = 2 * y - 1
    m, v = m0 + v0 * step, v0 / (1 + v0 * curvature)
    k = oracles.BETA / np.sqrt(v + oracles.BETA**2)
    slope = oracles.inverse_probit(m, v)[1]
    scale = np.abs(m0) + v0 * np.abs(step)
    forward = np.abs(v0 * (step - weight * sign * special.expit(-sign * k * m))) / scale
    share = np.clip(sign * step / weight, 1e-300, 1 - 1e-16)
    backward = np.abs(m + sign * special.logit(share) / k) / scale
    first = np.minimum(forward, backward)
    second = np.abs(v0 * (curvature - weight * slope)) / (1 + v0 * curvature)
    return first, second


def test_golden_table():
    m0, v0, y, xi, gamma = GOLDEN.T
    site = solve(Bernoulli(InverseProbit()), y, m0, v0, np.ones(len(y)))
    assert np.all(site.solved)
    np.testing.assert_allclose(site.step, xi, rtol=1e-12)
    np.testing.assert_allclose(site.curvature, gamma, rtol=1e-12)


def test_inverse_probit_over_all_scales():
    y, m0, v0, weight = draws(100_000, np.random.default_rng(0))
    site = solve(Bernoulli(InverseProbit()), y, m0, v0, weight)
    assert np.all(site.solved)
    first, second = residuals(y, m0, v0, weight, np.asarray(site.step), np.asarray(site.curvature))
    assert first.max() < 1e-10
    assert second.max() < 1e-9  # the mean m₀ + v₀ ξ is known to 1e-10 where m₀ is a million


def test_inverse_probit_in_float32():
    rng = np.random.default_rng(1)
    y, m0, v0, weight = (np.float32(a).astype(float) for a in draws(20_000, rng))
    double = solve(Bernoulli(InverseProbit()), y, m0, v0, weight)
    single = solve(Bernoulli(InverseProbit()), y, m0, v0, weight, jnp.float32)
    assert single.step.dtype == jnp.float32
    assert np.all(single.solved)
    m = [m0 + v0 * np.asarray(s.step, float) for s in (single, double)]
    v = [v0 / (1 + v0 * np.asarray(s.curvature, float)) for s in (single, double)]
    moved = np.abs(m[0] - m[1]) / (np.abs(m0) + v0 * np.abs(double.step))
    spread = np.abs(v[0] - v[1]) / (v[1] + 8 / np.pi)
    assert moved.max() < 1e-4  # `solved` promises 500 eps = 6e-5
    assert spread.max() < 1e-4


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("likelihood", [Bernoulli(InverseProbit()), Bernoulli()], ids=["ip", "mix"])
def test_the_quick_search_agrees_where_it_says_so(likelihood, dtype):
    rng = np.random.default_rng(5)
    y, m0 = rng.integers(0, 2, 5000).astype(float), 3 * rng.normal(size=5000)
    v0, weight = 10 ** rng.uniform(-6, 3, 5000), np.ones(5000)

    def search(thorough):
        rows = (jnp.asarray(a, dtype) for a in (y, m0, v0, weight))
        return jax.jit(jax.vmap(lambda *row: likelihood.implicit(*row, thorough=thorough)))(*rows)

    quick, thorough = search(False), search(True)
    good = np.asarray(quick.solved)
    assert np.all(good[v0 < 3]) and not np.all(good) and np.all(thorough.solved)
    away = np.abs(np.asarray(quick.step) - np.asarray(thorough.step))[good]
    assert away.max() < (1e-12 if dtype == jnp.float64 else 1e-4)


@pytest.mark.parametrize("likelihood", [Bernoulli(InverseProbit()), Bernoulli()], ids=["ip", "mix"])
def test_enormous_variances_are_solved(likelihood):
    rng = np.random.default_rng(6)
    y, v0 = rng.integers(0, 2, 5000).astype(float), 10 ** rng.uniform(8, 18, 5000)
    m0 = rng.choice([-1, 1], 5000) * 10 ** rng.uniform(-8, 6, 5000)
    assert np.all(solve(likelihood, y, m0, v0, np.ones(5000)).solved)


@pytest.mark.parametrize("likelihood", [Bernoulli(InverseProbit()), Bernoulli()], ids=["ip", "mix"])
def test_symmetry(likelihood):
    y, m0, v0, weight = draws(2000, np.random.default_rng(2))
    site = solve(likelihood, y, m0, v0, weight)
    mirrored = solve(likelihood, 1 - y, -m0, v0, weight)
    np.testing.assert_array_equal(site.step, -mirrored.step)
    np.testing.assert_array_equal(site.curvature, mirrored.curvature)


def test_mixture_over_all_scales():
    y, m0, v0, weight = draws(20_000, np.random.default_rng(3))
    site = solve(Bernoulli(), y, m0, v0, weight)
    assert np.all(site.solved)
    m, v = m0 + v0 * np.asarray(site.step), v0 / (1 + v0 * np.asarray(site.curvature))
    p, s = MIXTURE.T
    w = np.sqrt(v[:, None] + s[None, :] ** -2)
    u = (2 * y - 1)[:, None] * m[:, None] / w
    gradient = (2 * y - 1) * weight * (special.ndtr(-u) @ p)
    slope = weight * (np.exp(-(u**2) / 2) / w @ p / np.sqrt(2 * np.pi))
    scale = np.abs(m0) + v0 * np.abs(site.step)
    rounding = 4 * np.finfo(float).eps * v0 * slope  # of m₀ + v₀ ξ, as the equation sees it
    first = np.abs(v0 * (site.step - gradient)) / scale - rounding
    second = np.abs(v0 * (site.curvature - slope)) / (1 + v0 * site.curvature)
    assert first.max() < 1e-10
    assert second.max() < 1e-9  # the same rounding, seen by the slope


@pytest.mark.parametrize(
    ("m0", "v0", "y", "weight"),
    [
        (0.3, 0.5, 1.0, 1.0),
        (-2.0, 4.0, 1.0, 1.0),
        (5.0, 30.0, 0.0, 2.0),
        (-40.0, 100.0, 1.0, 0.5),
        (10.0, 1e4, 0.0, 1.0),
        (-4900.0, 1e4, 1.0, 1.0),
        (3.0, 1e4, 1.0, 1.0),
    ],
)
def test_mixture_equations_hold_under_adaptive_quadrature(m0, v0, y, weight):
    site = solve(Bernoulli(), [y], [m0], [v0], [weight])
    step, curvature = float(site.step[0]), float(site.curvature[0])
    m, v = m0 + v0 * step, v0 / (1 + v0 * curvature)
    points = oracles.around(0.0)
    gradient = weight * (y - oracles.expect(special.expit, m, v, points))
    slope = weight * oracles.expect(lambda f: special.expit(f) * special.expit(-f), m, v, points)
    np.testing.assert_allclose(step, gradient, atol=1e-8)
    np.testing.assert_allclose(curvature, slope, atol=1.1e-8)  # the mixture's own error


# any likelihood ------------------------------------------------------------------------------------

CUSTOM = Custom(lambda f, y: jax.nn.log_sigmoid((2 * y - 1) * f))
WIDE = {
    "probit": (Probit(), lambda rng, n: rng.integers(0, 2, n).astype(float), 1e4),
    "laplace": (Laplace(0.7), lambda rng, n: 10 * rng.normal(size=n), 1e6),
    "student": (StudentT(4.0, 0.7), lambda rng, n: 10 * rng.normal(size=n), 1e4),
    "custom": (CUSTOM, lambda rng, n: rng.integers(0, 2, n).astype(float), 1e4),
}


def stationary(likelihood, y, m0, v0, weight, site):
    """Residuals of the implicit equations with the library's own integrals, tested elsewhere."""
    m, v = m0 + v0 * site.step, v0 / (1 + v0 * site.curvature)
    expected = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v))(
        jnp.asarray(y), jnp.asarray(m), jnp.asarray(v)
    )
    first = np.abs(np.sqrt(v0) * (site.step - weight * expected.gradient))
    first = first / (1 + np.sqrt(v0) * np.abs(site.step))
    second = np.abs(v0 * (site.curvature - weight * expected.curvature)) / (1 + v0 * site.curvature)
    return first, second


@pytest.mark.parametrize(
    "name",
    [
        "laplace",
        *(
            pytest.param(n, marks=pytest.mark.slow(reason="compiles the general search"))
            for n in WIDE
            if n != "laplace"
        ),
    ],
)
def test_general_solver_over_wide_ranges(name):
    likelihood, labels, widest = WIDE[name]
    rng = np.random.default_rng(4)
    n = 60
    y, m0 = labels(rng, n), 10 * rng.normal(size=n)
    v0, weight = 10 ** rng.uniform(-6, np.log10(widest), n), rng.uniform(0.1, 3, n)
    site = solve(likelihood, y, m0, v0, weight)
    assert np.all(site.solved)
    first, second = stationary(likelihood, y, m0, v0, weight, site)
    assert first.max() < 1e-7  # the solver's own promise: √eps of the whitened gradient
    assert second.max() < 1e-7


@pytest.mark.slow(reason="compiles the general search")
def test_general_solver_is_the_logistic_solver():
    rng = np.random.default_rng(5)
    n = 60
    y, m0 = rng.integers(0, 2, n).astype(float), 10 * rng.normal(size=n)
    v0, weight = 10 ** rng.uniform(-4, 3, n), rng.uniform(0.1, 3, n)
    general, special_ = (solve(like, y, m0, v0, weight) for like in (CUSTOM, Bernoulli()))
    # 1e-8 of the mixture's integrals, carried through the step
    np.testing.assert_allclose(general.step, special_.step, atol=3e-8)
    np.testing.assert_allclose(general.curvature, special_.curvature, atol=3e-8)


def test_general_solver_finds_the_best_gaussian():
    """No Gaussian near the one found is closer to N(f) p(y | f), by adaptive quadrature."""
    m0, v0, y = 0.5, 2.0, -1.5
    site = solve(StudentT(4.0, 0.7), [y], [m0], [v0], [1.0])
    m, v = m0 + v0 * float(site.step[0]), v0 / (1 + v0 * float(site.curvature[0]))

    def log_joint(f):
        return -2.5 * np.log1p(((y - f) / 0.7) ** 2 / 4) - (f - m0) ** 2 / (2 * v0)

    def height(m, v):
        return oracles.expect(log_joint, m, v, oracles.around(y)) + np.log(v) / 2

    best = height(m, v)
    h = 1e-4
    assert all(best > height(m + a * h, v * (1 + b * h)) for a in (-1, 0, 1) for b in (-1, 1))
    assert abs(height(m + h, v) - height(m - h, v)) / (2 * h) < 1e-7
    assert abs(height(m, v + h) - height(m, v - h)) / (2 * h) < 1e-7


def test_poisson_over_wide_ranges():
    rng = np.random.default_rng(6)
    n = 20_000
    m0, v0 = 5 * rng.normal(size=n), 10 ** rng.uniform(-8, 4, n)
    y, weight = np.floor(10 ** rng.uniform(-1, 5, n)), rng.uniform(0.05, 3, n)
    site = solve(Poisson(), y, m0, v0, weight)
    assert np.all(site.solved)
    step, curvature = np.asarray(site.step), np.asarray(site.curvature)
    m, v = m0 + v0 * step, v0 / (1 + v0 * curvature)
    # the rate ω e^{m + v/2} is the curvature, and ω y minus it the step
    off = np.abs(np.log(curvature / weight) - m - v / 2)
    np.testing.assert_array_less(off, 1e-12 * (1 + np.abs(m0) + np.abs(m) + v))
    off = np.abs(step - weight * y + curvature)
    np.testing.assert_array_less(off, 1e-12 * (1 + weight * y + curvature) * (1 + np.abs(m0)))


def test_poisson_in_float32():
    rng = np.random.default_rng(7)
    n = 2000
    m0, v0 = rng.normal(size=n), 10 ** rng.uniform(-4, 4, n)
    y, weight = np.floor(10 ** rng.uniform(0, 4, n)), np.ones(n)
    single = solve(Poisson(), y, m0, v0, weight, jnp.float32)
    double = solve(Poisson(), y, m0, v0, weight)
    assert np.all(single.solved)
    np.testing.assert_allclose(single.curvature, double.curvature, rtol=1e-4)
    mean = [m0 + v0 * np.asarray(s.step, float) for s in (single, double)]
    np.testing.assert_allclose(mean[0], mean[1], rtol=1e-4, atol=1e-4)


def test_rows_that_stand_for_thousands_are_solved():
    rng = np.random.default_rng(8)
    y, m0, v0, _ = draws(20_000, rng)
    site = solve(Bernoulli(), y, m0, v0, 10 ** rng.uniform(1, 4, 20_000))
    assert np.all(site.solved)


@pytest.mark.parametrize("var", [0.0, 2.0, 1e3, 1e8])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_counts_of_no_weight_say_nothing(var, dtype):
    site = solve(Poisson(), [2.0], [0.3], [var], [0.0], dtype)
    assert float(site.step[0]) == float(site.curvature[0]) == 0.0
    assert site.solved[0]


def test_no_weight_is_no_step_of_the_papers_integrals():
    """Nor of any other likelihood, as `test_base` has it."""
    site = solve(Bernoulli(InverseProbit()), [1.0], [0.3], [2.0], [0.0])
    assert float(site.step[0]) == float(site.curvature[0]) == 0.0


def test_no_variance_is_the_plain_derivative():
    # an all-zero row has v₀ = 0: the site is that of the point f = m₀
    site = solve(Bernoulli(), [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])
    np.testing.assert_allclose(site.step, [0.5, -0.5], rtol=1e-12)
    np.testing.assert_allclose(site.curvature, 0.25, atol=1.1e-8)
    assert np.all(site.solved)
