"""What is special to likelihoods of one predictor: bounds, tails, the paper's integrals, `Custom`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kalvi.likelihoods import Bernoulli, Laplace, Normal, Poisson, Probit, StudentT
from kalvi.likelihoods.custom import Custom
from kalvi.likelihoods.logistic import InverseProbit
from tests import oracles
from tests.tables import BY_NAME, LIKELIHOODS, NUMBERS, scalars

BERNOULLI = BY_NAME["bernoulli"]


def cases(observed):
    """Columns of labels, means and variances."""
    return np.array([(y, m, v) for y in observed.labels for m, v in NUMBERS]).T


def over(fn, *columns):
    return jax.jit(jax.vmap(fn))(*(jnp.asarray(c) for c in columns))


@pytest.mark.parametrize("likelihood", [Normal(0.7), Laplace(0.6), StudentT(4.0, 0.6)])
def test_densities_integrate_to_one_and_information_is_the_expected_squared_score(likelihood):
    # −E[∂² log p] = E[(∂ log p)²], which also holds for the Laplace's kink
    density = jax.jit(jax.vmap(lambda y: jnp.exp(likelihood.log_prob(jnp.asarray(0.3), y))))
    score = jax.jit(jax.vmap(lambda y: jax.grad(likelihood.log_prob)(jnp.asarray(0.3), y)))
    grid, weight = np.polynomial.legendre.leggauss(200)
    # y = 0.3 ± s, s = u/(1 − u)
    u = (grid + 1) / 2
    s, weight = u / (1 - u), weight / 2 / (1 - u) ** 2
    total = information = 0.0
    for sign in (-1, 1):
        y = jnp.asarray(0.3 + sign * s)
        mass = weight * np.asarray(density(y))
        total, information = total + mass.sum(), information + mass @ np.asarray(score(y)) ** 2
    np.testing.assert_allclose(total, 1, rtol=1e-9)
    wanted = likelihood.information(jnp.asarray(0.3))
    np.testing.assert_allclose(information, wanted, rtol=1e-9)


@pytest.mark.parametrize("integrals", [InverseProbit(), None], ids=["paper", "accurate"])
def test_bernoulli_predictions_sum_to_one(integrals):
    likelihood = Bernoulli(integrals) if integrals else Bernoulli()
    m, v = np.array(NUMBERS).T
    up = over(lambda m, v: likelihood.predict(m, v)[0], m, v)
    down = over(lambda m, v: likelihood.predict(m, v)[0], -m, v)
    np.testing.assert_allclose(up + down, 1, atol=1e-8)


def test_predictive_probabilities_of_counts_sum_to_one():
    p = over(lambda y: Poisson().log_predictive(y, *scalars(0.3, 0.3)), np.arange(200.0))
    np.testing.assert_allclose(jnp.exp(p).sum(), 1, rtol=1e-9)


def test_inverse_probit_is_the_papers_prediction_and_curvature():
    y, m, v = cases(BERNOULLI)
    found = over(lambda y, m, v: Bernoulli(InverseProbit()).expect(y, m, v), y, m, v)
    p, slope = oracles.inverse_probit(m, v)
    np.testing.assert_allclose(found.gradient, y - p, rtol=1e-12)
    np.testing.assert_allclose(found.curvature, slope, rtol=1e-12)


SUPER = [o for o in LIKELIHOODS if o.bounded]
BOUNDS = {
    o.name: jax.jit(lambda y, z, o=o: (*o.likelihood.bound(y), o.likelihood.bound_curvature(z)))
    for o in SUPER
}


@given(st.sampled_from(SUPER), st.floats(1e-4, 40), st.floats(-60, 60), st.integers(0, 2))
def test_quadratic_bound_is_below_and_touches(observed, z, f, label):
    y = observed.labels[label % len(observed.labels)]
    centre, slope, curvature = (float(a) for a in BOUNDS[observed.name](*scalars(y, z)))

    def gap(f):
        """log p minus the bound's shape, up to the constant that makes them touch."""
        away = f - centre
        return float(observed.log_prob(f, y)) - slope * away + curvature * away**2 / 2

    touch = gap(centre + z)
    scale = 1 + abs(touch) + curvature * (f - centre) ** 2
    np.testing.assert_allclose(gap(centre - z), touch, atol=1e-12 * (1 + abs(touch) + slope * z))
    assert gap(f) >= touch - 1e-12 * scale


def test_bound_curvature_of_bernoulli_is_smooth_at_zero():
    z = jnp.asarray([0.0, 1e-8, 0.00999999, 0.01, 0.01000001])
    found = jax.vmap(Bernoulli().bound_curvature)(z)
    safe = np.where(z == 0, 1, z)
    wanted = np.where(z == 0, 0.25, np.tanh(safe / 2) / (2 * safe))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_custom_needs_only_a_log_prob():
    plain = Custom(lambda f, y: jax.nn.log_sigmoid((2 * y - 1) * f))
    y, m, v = cases(BERNOULLI)
    ours = over(lambda y, m, v: plain.expect(y, m, v), y, m, v)
    theirs = over(lambda y, m, v: Bernoulli().expect(y, m, v), y, m, v)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1.2e-8)


@pytest.mark.parametrize(
    "ask", [lambda c: c.moments(*scalars(0.0)), lambda c: c.predict(*scalars(0.0, 1.0))]
)
def test_custom_without_moments_says_what_it_needs(ask):
    with pytest.raises(
        TypeError, match="was given no moments, so it cannot predict y; pass moments"
    ):
        ask(Custom(lambda f, y: -((f - y) ** 2)))


def test_custom_centre_and_width_help_a_wide_predictor():
    width = 1e-3
    likelihood = Custom(
        lambda f, y: -jnp.log1p(((f - y) / width) ** 2),
        centre=lambda y: y,
        width=lambda y: jnp.full_like(y, width),
    )
    found = likelihood.log_predictive(*scalars(2.0, 0.0, 1.0))
    cuts = oracles.around(2.0, (1e-3, 1e-2, 0.1, 1))
    wanted = oracles.expect(lambda f: 1 / (1 + ((f - 2) / width) ** 2), 0, 1, cuts)
    np.testing.assert_allclose(found, np.log(wanted), rtol=1e-9)


def test_student_variance_is_infinite_for_two_degrees_of_freedom():
    assert np.isinf(StudentT(2.0, 1.0).moments(jnp.asarray(0.0))[1])
    np.testing.assert_allclose(StudentT(6.0, 2.0).moments(jnp.asarray(0.0))[1], 4 * 6 / 4)


def test_tails_are_finite_and_right():
    # log Φ(−40) and its derivatives, where Φ underflows
    expected = jax.jit(lambda y, m, v: Probit().expect(y, m, v))(*scalars(1.0, -40.0, 1e-12))
    np.testing.assert_allclose(expected.value, special.log_ndtr(-40.0), rtol=1e-10)
    ratio = np.sqrt(2 / np.pi) / special.erfcx(40 / np.sqrt(2))
    np.testing.assert_allclose(expected.gradient, ratio, rtol=1e-12)
    np.testing.assert_allclose(expected.curvature, ratio * (ratio - 40), rtol=1e-9)
    np.testing.assert_allclose(Bernoulli().log_prob(*scalars(-800.0, 1.0)), -800, rtol=1e-14)
    assert Probit().information(jnp.asarray(30.0)) > 0
