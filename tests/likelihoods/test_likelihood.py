"""What every likelihood promises, of one predictor or of several: each law runs over all of `tables`.

The oracle is quadrature of what SciPy says of log p and of the moments of y.
"""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalvi.likelihoods.likelihood import need_labels
from tests.tables import BY_NAME, LIKELIHOODS, diagonal, name, per_point, squared

CONCAVE = [o for o in LIKELIHOODS if o.concave]
WEIGHT = 1.7


@pytest.fixture(params=LIKELIHOODS, ids=name, scope="module")
def observed(request):
    return request.param


def cases(observed, laws=None):
    """Labels, means and (co)variances, each stacked."""
    laws = observed.laws if laws is None else laws
    rows = [(y, m, v) for y in observed.labels for m, v in laws]
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def points(observed):
    """A few f."""
    if observed.outputs == 1:
        return np.array([-3.0, -0.3, 0.0, 1.5])
    return 1.5 * np.random.default_rng(1).normal(size=(4, observed.outputs))


def over(fn, *columns, dtype=np.float64):
    return jax.jit(jax.vmap(fn))(*(jnp.asarray(c, dtype) for c in columns))


def once(fn):
    """A function of a row that is computed once for each."""
    cached = lru_cache(lambda name: fn(BY_NAME[name]))
    return lambda observed: cached(observed.name)


@once
def expectations(observed):
    """`expect` in all cases."""
    return over(lambda y, m, v: observed.likelihood.expect(y, m, v), *cases(observed))


@once
def predictions(observed):
    """`predict` and `noise` under the laws but the widest, whose rates of counts no oracle can add up."""
    m, v = (np.array(column) for column in zip(*observed.laws[:3], strict=True))
    predicted = over(lambda m, v: observed.likelihood.predict(m, v), m, v)
    return predicted, over(lambda m, v: observed.likelihood.noise(m, v), m, v)


def error_of(observed, var):
    """What expectations may be off under a law, beside rounding."""
    return observed.error(float(np.mean(diagonal(var))))


def blur_of(observed, var):
    """And predictions."""
    return observed.blur(float(np.mean(diagonal(var))))


def spread(observed, mean, var):
    """The mean of E[y | f] and its (co)variance."""
    first = observed.average(lambda f: observed.moments(f)[0], mean, var)
    away = observed.average(
        lambda f: squared(observed.moments(f)[0] - first, observed.outputs), mean, var
    )
    return first, away


def test_log_prob(observed):
    f = points(observed)
    wanted = [[observed.log_prob(a, y) for a in f] for y in observed.labels]
    for y, row in zip(observed.labels, wanted, strict=True):
        found = over(lambda f, y=y: observed.likelihood.log_prob(f, jnp.asarray(y)), f)
        np.testing.assert_allclose(found, row, rtol=1e-11)


def test_it_observes_its_own_labels(observed):
    likelihood, rng = observed.likelihood, np.random.default_rng(0)
    f = np.zeros(5) if observed.outputs == 1 else np.zeros((5, observed.outputs))
    for y in (np.array(observed.labels), observed.draw(rng, f)):
        assert likelihood.label_shape in (None, y.shape[1:])
        need_labels(likelihood, y)
    assert observed.concave or not likelihood.log_concave


def test_expectations_against_quadrature(observed):
    found = expectations(observed)
    for i, (y, m, v) in enumerate(zip(*cases(observed), strict=True)):
        value, gradient, curvature = observed.expected(y, m, v)
        error = error_of(observed, v)
        np.testing.assert_allclose(found.value[i], value, rtol=1e-9, atol=error)
        np.testing.assert_allclose(found.gradient[i], gradient, rtol=1e-8, atol=max(error, 2e-8))
        # divided by v ≥ 0.01: the quadrature's 1e-13 times |log p| becomes 1e-9
        np.testing.assert_allclose(found.curvature[i], curvature, rtol=1e-7, atol=max(error, 3e-8))


def test_gradient_and_curvature_are_derivatives_of_the_value(observed):
    """∇ E[log p] = E[∇ log p] and −∇² E[log p] = −E[∇² log p] in the mean, also where log p has a kink.

    The inverse probit is left out: its gradient and curvature approximate those of the true value, and
    are not the derivatives of any one function.
    """
    y, m, v = cases(observed)

    def value(m, y, v):
        return observed.likelihood.expect(y, m, v).value

    gradient, curvature = over(jax.grad(value), m, y, v), -over(jax.hessian(value), m, y, v)
    # however coarse their points, sums over them have exact derivatives; the mixture of scales is no sum
    atol = 1.2e-8 if observed.name == "bernoulli" else 1e-12
    np.testing.assert_allclose(expectations(observed).gradient, gradient, rtol=1e-9, atol=atol)
    np.testing.assert_allclose(expectations(observed).curvature, curvature, rtol=1e-9, atol=atol)


def test_without_variance_the_expected_value_is_log_prob(observed):
    f, y = points(observed), observed.labels[-1]
    none = np.zeros((len(f), *(2 * f.shape[1:])))
    found = over(lambda m, v: observed.likelihood.expect(jnp.asarray(y), m, v).value, f, none)
    wanted = [observed.log_prob(a, y) for a in f]
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=error_of(observed, 0.0))


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_log_predictive_against_quadrature(observed, weight):
    """Of w equal rows ∫ pʷ N(f), and of labels w log ∫ p N(f), as the docstring has it."""
    power = weight if observed.tempered else 1.0
    y, m, v = cases(observed)
    found = over(
        lambda *row: observed.likelihood.log_predictive(*row, jnp.asarray(weight)), y, m, v
    )
    for i, (a, b, c) in enumerate(zip(y, m, v, strict=True)):
        total = observed.average(lambda f, a=a: np.exp(power * observed.log_prob(f, a)), b, c, a)
        wanted = weight / power * np.log(total)
        # Bernoulli: 3e-9 of p; of others what the integral may be off, relative to p
        atol = max(1e-7, weight * blur_of(observed, c) / total)
        np.testing.assert_allclose(found[i], wanted, rtol=1e-7, atol=atol)


def test_predictive_moments_against_quadrature(observed):
    (mean, variance), _ = predictions(observed)
    for i, (m, v) in enumerate(observed.laws[:3]):
        first, away = spread(observed, m, v)
        own = observed.average(lambda f: observed.moments(f)[1], m, v)
        error = blur_of(observed, v)
        np.testing.assert_allclose(mean[i], first, rtol=1e-8, atol=max(error, 1e-10))
        np.testing.assert_allclose(variance[i], own + away, rtol=1e-7, atol=max(error, 1e-10))


def test_noise_against_quadrature(observed):
    """E[Var y | f] of each output."""
    for i, (m, v) in enumerate(observed.laws[:3]):
        wanted = observed.average(lambda f: diagonal(observed.moments(f)[1]), m, v)
        found = predictions(observed)[1][i]
        assert found.shape == np.shape(m)
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=max(error_of(observed, v), 1e-10))


def test_noise_and_the_spread_of_the_mean_are_the_predictive_variance(observed):
    """Var y = E[Var y | f] + Var E[y | f]."""
    (_, variance), noise = predictions(observed)
    for i, (m, v) in enumerate(observed.laws[:3]):
        total = noise[i] + diagonal(spread(observed, m, v)[1])
        error = error_of(observed, v) + blur_of(observed, v)
        np.testing.assert_allclose(diagonal(variance[i]), total, rtol=1e-7, atol=max(error, 1e-10))


def test_moments_and_information(observed):
    f = points(observed)
    mean, variance = over(
        lambda f: tuple(jnp.asarray(a) for a in observed.likelihood.moments(f)), f
    )
    wanted = [observed.moments(a) for a in f]
    np.testing.assert_allclose(mean, [a for a, _ in wanted], rtol=1e-12)
    np.testing.assert_allclose(variance, [diagonal(v) for _, v in wanted], rtol=1e-12)
    found = over(lambda f: jnp.asarray(observed.likelihood.information(f)), f)
    np.testing.assert_allclose(found, [observed.fisher(a) for a in f], rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("observed", [o for o in LIKELIHOODS if o.whole], ids=name)
def test_probabilities_sum_to_one_and_information_is_the_expected_curvature(observed):
    f, labels = jnp.asarray(points(observed)), jnp.asarray(observed.whole)

    def table(fn):
        """A row for each f, and in it an entry for each label."""
        return np.asarray(jax.jit(jax.vmap(jax.vmap(fn, (None, 0)), (0, None)))(f, labels))

    probability = np.exp(table(lambda f, y: observed.likelihood.log_prob(f, y)))
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-13)
    mean = probability @ labels if observed.outputs == 1 else probability
    wanted = jax.vmap(lambda f: observed.likelihood.moments(f)[0])(f)
    np.testing.assert_allclose(mean, wanted, rtol=1e-12)
    bends = -table(jax.hessian(lambda f, y: observed.likelihood.log_prob(f, y)))
    found = jax.vmap(lambda f: observed.likelihood.information(f))(f)
    expected = per_point(probability, bends).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


FEW = [o for o in LIKELIHOODS if o.whole and o.name != "poisson"]


@pytest.mark.parametrize("observed", FEW, ids=name)
def test_predictive_probabilities_sum_to_one(observed):
    m, v = (np.array(column) for column in zip(*observed.laws, strict=True))

    def total(m, v):
        each = [observed.likelihood.log_predictive(jnp.asarray(y), m, v) for y in observed.whole]
        return jnp.sum(jnp.exp(jnp.stack(each)))

    np.testing.assert_allclose(over(total, m, v), 1, atol=1e-8)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(
            o,
            id=o.name,
            marks=[pytest.mark.slow(reason="compiles the general search")]
            if o.searched and o.name not in ("laplace", "softmax")
            else [],
        )
        for o in LIKELIHOODS
    ],
)
def test_the_implicit_site_solves_its_equations(observed):
    """ξ = w E[∇ log p] and Γ = −w E[∇² log p] at N(m + V ξ, (V⁻¹ + Γ)⁻¹), by quadrature."""
    columns = cases(observed)

    def solve(*row):
        return observed.likelihood.implicit(*row, jnp.asarray(WEIGHT))

    sites = over(solve, *columns)
    assert np.all(sites.solved)
    for i, (y, m, v) in enumerate(zip(*columns, strict=True)):
        step, curvature = np.asarray(sites.step[i]), np.asarray(sites.curvature[i])
        if observed.outputs == 1:
            law = m + v * step, v / (1 + v * curvature)
        else:
            law = m + v @ step, np.linalg.inv(np.linalg.inv(v) + curvature)
        _, gradient, bend = observed.expected(y, *law)
        # the search's own promise: √eps of the whitened gradient
        atol = WEIGHT * max(error_of(observed, v), 1e-7)
        np.testing.assert_allclose(step, WEIGHT * gradient, rtol=1e-6, atol=atol)
        np.testing.assert_allclose(curvature, WEIGHT * bend, rtol=1e-6, atol=atol)


@pytest.mark.parametrize(
    "name_", ["normal", "bernoulli", "poisson", "laplace", "multinormal", "softmax"]
)
def test_no_weight_is_no_step(name_):
    observed = BY_NAME[name_]
    y, (m, v) = observed.labels[-1], observed.laws[1]
    site = jax.jit(lambda *row: observed.likelihood.implicit(*row))(
        *(jnp.asarray(a) for a in (y, m, v, 0.0))
    )
    assert not np.any(site.step) and not np.any(site.curvature)


EXPECT = {o.name: jax.jit(lambda y, m, v, o=o: o.likelihood.expect(y, m, v)) for o in CONCAVE}


@given(st.sampled_from(CONCAVE), st.floats(-50, 50), st.floats(-6, 4), st.integers(0, 2))
def test_curvature_of_a_log_concave_likelihood_is_never_negative(observed, m, log_v, label):
    y, v = observed.labels[label % len(observed.labels)], 10**log_v
    v = 1.0 if observed.name == "poisson" else v  # whose rates overflow
    if observed.outputs > 1:
        m, v = m * np.linspace(-1, 1, observed.outputs), v * observed.laws[1][1]
    curvature = EXPECT[observed.name](*(jnp.asarray(a) for a in (y, m, v))).curvature
    if observed.outputs == 1:
        assert curvature >= 0
    else:  # eigenvalues are known to rounding
        assert np.linalg.eigvalsh(curvature)[0] >= -1e-15 * np.trace(curvature)


def test_float32_agrees_with_float64(observed):
    single = jax.tree.map(
        lambda a: jnp.asarray(a, jnp.float32) if eqx.is_inexact_array_like(a) else a,
        observed.likelihood,
    )
    found = over(lambda y, m, v: single.expect(y, m, v), *cases(observed), dtype=np.float32)
    for part, wanted in zip(found, expectations(observed), strict=True):
        assert part.dtype == np.float32
        # panels around a kink lose 1e-7 · log p · a few; curvature is divided by the deviation 0.1
        np.testing.assert_allclose(part, wanted, rtol=2e-4, atol=2e-5)
    m, v = (np.array(column) for column in zip(*observed.laws[:3], strict=True))
    noise = over(lambda m, v: single.noise(m, v), m, v, dtype=np.float32)
    assert noise.dtype == np.float32
    np.testing.assert_allclose(noise, predictions(observed)[1], rtol=2e-4, atol=2e-5)
