import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kalvi.custom import Custom
from kalvi.likelihoods import Bernoulli, Laplace, Normal, Poisson, Probit, StudentT
from kalvi.logistic import InverseProbit
from tests import oracles
from tests.tables import BOUNDED, LIKELIHOODS, name, scalars

LAWS = [(-2.0, 0.01), (0.3, 1.0), (1.2, 4.0), (-0.5, 30.0)]  # of f: mean and variance
CONCAVE = [o for o in LIKELIHOODS if o.concave]


@pytest.fixture(params=LIKELIHOODS, ids=name, scope="module")
def observed(request):
    return request.param


def cases(observed):
    """Columns of labels, means and variances."""
    return np.array([(y, m, v) for y in observed.labels for m, v in LAWS]).T


def over(fn, *columns):
    return jax.jit(jax.vmap(fn))(*(jnp.asarray(c) for c in columns))


def integral(observed, fn, y, m, v):
    centre = observed.feature(y)
    return oracles.expect(fn, m, v, [*oracles.around(centre), centre + 1e-3, centre - 1e-3])


def tolerance(observed):
    # Bernoulli's closed forms are good to 1e-8 absolutely; everything else to rounding
    return {"atol": 1.2e-8, "rtol": 1e-10} if observed.name == "bernoulli" else {"rtol": 1e-9}


def test_log_prob(observed):
    f, y = np.array([(f, y) for y in observed.labels for f in (-3.0, -0.1, 0.0, 2.0)]).T
    wanted = [float(observed.log_prob(a, b)) for a, b in zip(f, y, strict=True)]
    found = over(lambda f, y: observed.likelihood.log_prob(f, y), f, y)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


def test_expected_value_against_quadrature(observed):
    y, m, v = cases(observed)
    found = over(lambda y, m, v: observed.likelihood.expect(y, m, v), y, m, v)
    wanted = [
        integral(observed, lambda f, a=a: observed.log_prob(f, a), a, b, c)
        for a, b, c in zip(y, m, v, strict=True)
    ]
    np.testing.assert_allclose(found.value, wanted, **tolerance(observed))


def test_gradient_and_curvature_are_derivatives_of_the_value(observed):
    """d/dm E[log p] = E[∂ log p] and −d²/dm² E[log p] = −E[∂² log p], also where log p has a kink.

    The inverse probit is left out: its gradient and curvature approximate those of the true value, and
    are not the derivatives of any one function.
    """
    y, m, v = cases(observed)

    def value(m, y, v):
        return observed.likelihood.expect(y, m, v).value

    found = over(lambda y, m, v: observed.likelihood.expect(y, m, v), y, m, v)
    gradient = over(jax.grad(value), m, y, v)
    curvature = -over(jax.grad(jax.grad(value)), m, y, v)
    np.testing.assert_allclose(found.gradient, gradient, **tolerance(observed))
    np.testing.assert_allclose(found.curvature, curvature, **tolerance(observed))


def test_gradient_against_quadrature(observed):
    """Stein's identity, E[∂ log p] = E[(f − m) log p]/v: no derivative is taken."""
    y, m, v = cases(observed)
    found = over(lambda y, m, v: observed.likelihood.expect(y, m, v), y, m, v)
    for i, (a, b, c) in enumerate(zip(y, m, v, strict=True)):
        moment = integral(observed, lambda f, a=a, b=b: (f - b) * observed.log_prob(f, a), a, b, c)
        np.testing.assert_allclose(found.gradient[i], moment / c, rtol=1e-8, atol=2e-8)
        square = integral(
            observed,
            lambda f, a=a, b=b, c=c: ((f - b) ** 2 / c - 1) * observed.log_prob(f, a),
            a,
            b,
            c,
        )
        # divided by v ≥ 0.01: the adaptive rule's 1e-13 times |log p| becomes 1e-9
        np.testing.assert_allclose(found.curvature[i], -square / c, rtol=1e-7, atol=3e-8)


def test_log_predictive_against_quadrature(observed):
    y, m, v = cases(observed)
    found = over(lambda y, m, v: observed.likelihood.log_predictive(y, m, v), y, m, v)
    wanted = [
        np.log(integral(observed, lambda f, a=a: np.exp(observed.log_prob(f, a)), a, b, c))
        for a, b, c in zip(y, m, v, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7)  # Bernoulli: 3e-9 of p


def test_predictive_moments_against_quadrature(observed):
    m, v = np.array(LAWS[:3]).T
    mean, variance = over(lambda m, v: observed.likelihood.predict(m, v), m, v)
    for i, (a, b) in enumerate(zip(m, v, strict=True)):
        # the Poisson's moments grow like e^{2f}: the oracle reaches 12 deviations, enough for v ≤ 4
        first = oracles.expect(lambda f: observed.moments(f)[0], a, b, oracles.around(0.0))
        spread = oracles.expect(
            lambda f, e=first: observed.moments(f)[1] + (observed.moments(f)[0] - e) ** 2,
            a,
            b,
            oracles.around(0.0),
        )
        np.testing.assert_allclose(mean[i], first, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(variance[i], spread, rtol=1e-7, atol=1e-10)


def test_moments_and_information(observed):
    f = np.array([-2.0, -0.3, 0.0, 1.5])
    mean, variance = over(
        lambda f: tuple(jnp.asarray(a) for a in observed.likelihood.moments(f)), f
    )
    np.testing.assert_allclose(mean, observed.moments(f)[0], rtol=1e-12)
    np.testing.assert_allclose(variance, observed.moments(f)[1], rtol=1e-12)
    found = over(lambda f: jnp.asarray(observed.likelihood.information(f)), f)
    np.testing.assert_allclose(found, [observed.fisher(a) for a in f], rtol=1e-11)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Probit(), Poisson()], ids=["b", "probit", "p"])
def test_probabilities_sum_to_one_and_information_is_the_expected_curvature(likelihood):
    f = jnp.asarray([-2.0, 0.0, 1.5])
    labels = jnp.arange(80.0 if isinstance(likelihood, Poisson) else 2.0)
    table = jax.vmap(jax.vmap(likelihood.log_prob, (None, 0)), (0, None))
    probability = jnp.exp(table(f, labels))
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-13)
    np.testing.assert_allclose(probability @ labels, jax.vmap(likelihood.moments)(f)[0], rtol=1e-12)
    bend = jax.grad(jax.grad(likelihood.log_prob))
    bends = jax.vmap(jax.vmap(bend, (None, 0)), (0, None))(f, labels)
    wanted = -jnp.sum(probability * bends, axis=1)
    np.testing.assert_allclose(jax.vmap(likelihood.information)(f), wanted, rtol=1e-10)


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
    m, v = np.array(LAWS).T
    up = over(lambda m, v: likelihood.predict(m, v)[0], m, v)
    down = over(lambda m, v: likelihood.predict(m, v)[0], -m, v)
    np.testing.assert_allclose(up + down, 1, atol=1e-8)


def test_predictive_probabilities_sum_to_one():
    for likelihood in (Bernoulli(), Probit()):
        m, v = np.array(LAWS).T
        both = [
            np.exp(over(lambda y, m, v, p=likelihood: p.log_predictive(y, m, v), 0 * m + y, m, v))
            for y in (0.0, 1.0)
        ]
        np.testing.assert_allclose(sum(both), 1, atol=1e-8)
    p = over(lambda y: Poisson().log_predictive(y, *scalars(0.3, 0.3)), np.arange(200.0))
    np.testing.assert_allclose(jnp.exp(p).sum(), 1, rtol=1e-9)


def test_inverse_probit_is_the_papers_prediction_and_curvature():
    y, m, v = cases(LIKELIHOODS[1])
    found = over(lambda y, m, v: Bernoulli(InverseProbit()).expect(y, m, v), y, m, v)
    p, slope = oracles.inverse_probit(m, v)
    np.testing.assert_allclose(found.gradient, y - p, rtol=1e-12)
    np.testing.assert_allclose(found.curvature, slope, rtol=1e-12)


EXPECT = {o.name: jax.jit(lambda y, m, v, o=o: o.likelihood.expect(y, m, v)) for o in CONCAVE}


@given(
    st.sampled_from(CONCAVE),
    st.floats(-50, 50),
    st.floats(-6, 4),
    st.integers(0, 2),
)
def test_curvature_of_a_log_concave_likelihood_is_never_negative(observed, m, log_v, label):
    y = observed.labels[label % len(observed.labels)]
    expected = EXPECT[observed.name](*scalars(y, m, 10**log_v if observed.name != "poisson" else 1))
    assert expected.curvature >= 0


SUPER = [o for o in LIKELIHOODS if o.name in BOUNDED]
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
    y, m, v = cases(LIKELIHOODS[1])
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


@pytest.mark.parametrize("observed", LIKELIHOODS, ids=name)
def test_float32_agrees_with_float64(observed):
    y, m, v = cases(observed)
    one = over(lambda y, m, v: observed.likelihood.expect(y, m, v), y, m, v)
    single = jax.tree.map(
        lambda a: a.astype(jnp.float32) if hasattr(a, "astype") else a, observed.likelihood
    )
    other = jax.jit(jax.vmap(lambda y, m, v: single.expect(y, m, v)))(
        *(jnp.asarray(a, jnp.float32) for a in (y, m, v))
    )
    for found, wanted in zip(other, one, strict=True):
        assert found.dtype == np.float32
        # panels around a kink lose 1e-7 · log p · a few; curvature is divided by the deviation 0.1
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_tails_are_finite_and_right():
    # log Φ(−40) and its derivatives, where Φ underflows
    expected = jax.jit(lambda y, m, v: Probit().expect(y, m, v))(*scalars(1.0, -40.0, 1e-12))
    np.testing.assert_allclose(expected.value, special.log_ndtr(-40.0), rtol=1e-10)
    ratio = np.sqrt(2 / np.pi) / special.erfcx(40 / np.sqrt(2))
    np.testing.assert_allclose(expected.gradient, ratio, rtol=1e-12)
    np.testing.assert_allclose(expected.curvature, ratio * (ratio - 40), rtol=1e-9)
    np.testing.assert_allclose(Bernoulli().log_prob(*scalars(-800.0, 1.0)), -800, rtol=1e-14)
    assert Probit().information(jnp.asarray(30.0)) > 0
