import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from kalvi.likelihoods import logistic
from kalvi.likelihoods.logistic import InverseProbit, ScaleMixture
from tests import oracles

MEANS = np.array([-30.0, -3.0, -0.2, 0.0, 1.0, 5.0, 40.0])
VARS = np.array([1e-6, 0.1, 1.0, 9.0, 100.0, 1e4])
GRID = [a.ravel() for a in np.meshgrid(MEANS, VARS)]


def over_grid(fn):
    return jax.jit(jax.vmap(fn))(*(jnp.asarray(a) for a in GRID))


def quadrature(fn):
    points = oracles.around(0.0)
    return np.array([oracles.expect(fn, m, v, points) for m, v in zip(*GRID, strict=True)])


@pytest.fixture(scope="module")
def tails():
    return over_grid(lambda m, v: ScaleMixture().tail(m, v))


def test_mixture_is_the_logistic_function():
    a = np.linspace(-40, 40, 20_001)
    p, s = logistic.MIXTURE.T
    np.testing.assert_allclose(p.sum(), 1, atol=1e-8)
    mixture = special.ndtr(a[:, None] * s[None, :]) @ p
    assert np.max(np.abs(mixture - special.expit(a))) < 3.5e-9


def test_the_compiled_normal_tail_is_the_error_function():
    u = np.concatenate([np.linspace(-9, 37, 4001), [0.0, -0.0, 38.4, 1e200, np.inf, -np.inf]])
    found = jax.jit(logistic._normal_survival)(jnp.asarray(u))
    exact = special.ndtr(-u)
    # the exponential of u²/2, which is rounded, is as far off
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-320)
    small = np.abs(u) < 5
    np.testing.assert_allclose(found[small], exact[small], rtol=1e-14)
    slope = jax.jit(jax.vmap(jax.grad(logistic._normal_survival)))(jnp.asarray(u[small]))
    np.testing.assert_allclose(
        slope, -np.exp(-(u[small] ** 2) / 2) / np.sqrt(2 * np.pi), rtol=1e-12
    )


def test_mixture_tail_against_quadrature(tails):
    # 1e-8 is what eight normal distribution functions can do
    np.testing.assert_allclose(tails.value, quadrature(lambda f: special.expit(-f)), atol=4e-9)
    slope = quadrature(lambda f: special.expit(f) * special.expit(-f))
    np.testing.assert_allclose(tails.slope, slope, atol=1.1e-8)


def test_softplus_against_quadrature():
    wanted = quadrature(lambda f: np.logaddexp(0, f))
    np.testing.assert_allclose(over_grid(logistic.softplus), wanted, atol=1.1e-8)


def test_log_sigmoid_against_quadrature():
    wanted = np.log(quadrature(special.expit))
    # 3e-9 of a probability as small as 1e-7 before the exponential tail takes over
    np.testing.assert_allclose(over_grid(logistic.log_sigmoid), wanted, atol=3e-2)
    likely = wanted > np.log(1e-3)
    np.testing.assert_allclose(over_grid(logistic.log_sigmoid)[likely], wanted[likely], atol=5e-6)


def test_log_sigmoid_far_out_is_the_exponential():
    m = jnp.asarray([-30.0, -100.0, -500.0])
    found = jax.vmap(logistic.log_sigmoid)(m, jnp.full(3, 0.5))
    np.testing.assert_allclose(found, m + 0.25, rtol=1e-14)


@pytest.mark.parametrize("integrals", [InverseProbit(), ScaleMixture()], ids=["probit", "mixture"])
def test_tail_derivatives_are_those_of_the_value(integrals):
    def derivative(name, axis):
        return over_grid(jax.grad(lambda m, v: getattr(integrals.tail(m, v), name), axis))

    tail = over_grid(integrals.tail)
    close = {"rtol": 1e-9, "atol": 1e-15}
    np.testing.assert_allclose(tail.slope, -derivative("value", 0), **close)
    np.testing.assert_allclose(tail.bend, -derivative("slope", 0), **close)
    np.testing.assert_allclose(tail.value_by_var, derivative("value", 1), **close)
    np.testing.assert_allclose(tail.slope_by_var, derivative("slope", 1), **close)


def test_mixture_solves_the_heat_equation():
    # ∂S/∂v = ½ ∂²S/∂m²: all terms are derivatives of one function, unlike the paper's integrals
    in_var = over_grid(jax.grad(lambda m, v: ScaleMixture().tail(m, v).value, 1))
    tail = over_grid(ScaleMixture().tail)
    np.testing.assert_allclose(in_var, tail.bend / 2, rtol=1e-9, atol=1e-16)


def test_inverse_probit_is_as_far_off_as_the_paper_says():
    # (62): within 0.0177 everywhere, and it really is off by 0.011 somewhere on this grid
    found = over_grid(lambda m, v: InverseProbit().tail(m, v).value)
    off = np.abs(np.asarray(found) - quadrature(lambda f: special.expit(-f)))
    assert 0.01 < off.max() < 0.0177


def test_inverse_probit_is_the_printed_formula():
    tail = over_grid(InverseProbit().tail)
    value, slope = oracles.inverse_probit(-GRID[0], GRID[1])
    np.testing.assert_allclose(tail.value, value, rtol=1e-13)
    np.testing.assert_allclose(tail.slope, slope, rtol=1e-12)
