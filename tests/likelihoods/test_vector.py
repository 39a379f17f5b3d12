"""What is special to the softmax: its integration rules, wide laws, certain classes, far sites."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from kalvi.likelihoods.vector import Softmax
from tests import oracles, problems
from tests.laws import assert_close


@eqx.filter_jit
def expect(likelihood, y, mean, cov):
    return likelihood.expect(y, mean, cov)


@eqx.filter_jit
def implicit(likelihood, y, mean, cov, weight):
    return likelihood.implicit(y, mean, cov, weight)


def arrays(*values, dtype=np.float64):
    return tuple(jnp.asarray(a, dtype) for a in values)


def law(c, variance, seed=0):
    """A mean and a covariance of predictors with about this variance."""
    rng = np.random.default_rng(seed)
    cov = problems.spd(rng, c, 1.0)
    return rng.normal(size=c), cov * variance / np.mean(np.diag(cov))


def both(mean, cov, y, *, nodes=401):
    """E[log p], E[∇ log p], −E[∇² log p] and E[p] of a softmax of two or three classes, on a fine grid.

    The common part of f does not matter, so the grid is over the differences to the first class.
    """
    c = len(mean)
    apart = np.eye(c)[1:] - np.eye(c)[0]
    z = np.stack(np.meshgrid(*[np.linspace(-8, 8, nodes)] * (c - 1)), -1).reshape(-1, c - 1)
    weight = np.exp(-np.sum(z**2, axis=1) / 2)
    weight /= weight.sum()
    f = apart @ mean + z @ np.linalg.cholesky(apart @ cov @ apart.T).T
    return averages(np.column_stack([np.zeros(len(f)), f]), weight, y)


def averages(f, weight, y):
    log_p = f - special.logsumexp(f, axis=1, keepdims=True)
    p = np.exp(log_p)
    mean, second = weight @ p, p.T @ (weight[:, None] * p)
    return weight @ log_p[:, y], np.eye(f.shape[1])[y] - mean, np.diag(mean) - second, mean


@pytest.mark.parametrize(
    ("classes", "variance", "error"),
    [
        (2, 0.01, 1e-12),
        (2, 1.0, 1e-12),
        (2, 100.0, 1e-12),
        (3, 0.01, 1e-9),
        (3, 1.0, 1e-7),
        (3, 10.0, 5e-4),
        (3, 100.0, 3e-2),
    ],
)
def test_softmax_integrals_on_a_fine_grid(classes, variance, error):
    mean, cov = law(classes, variance)
    value, gradient, curvature, p = both(mean, cov, 1)
    found = expect(Softmax(classes), *arrays(1.0, mean, cov))
    assert abs(found.value - value) < error
    assert np.max(np.abs(found.gradient - gradient)) < error
    assert np.max(np.abs(found.curvature - curvature)) < error
    predicted, spread = eqx.filter_jit(Softmax(classes).predict)(*arrays(mean, cov))
    assert np.max(np.abs(predicted - p)) < error
    assert_close(spread, np.diag(predicted) - np.outer(predicted, predicted), 1e-14)


def test_two_classes_by_adaptive_quadrature():
    mean, cov = law(2, 30.0)
    m, v = mean[1] - mean[0], cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]
    found = expect(Softmax(2), *arrays(1.0, mean, cov))
    assert_close(found.value, oracles.expect(special.log_expit, m, v), 1e-11)
    wanted = oracles.expect(lambda f: special.expit(f) * special.expit(-f), m, v)
    assert_close(found.curvature, wanted * np.array([[1, -1], [-1, 1]]), 1e-11)


@pytest.mark.parametrize(("variance", "errors"), [(1.0, (2e-3, 1e-3)), (10.0, (2e-2, 1e-2))])
def test_softmax_integrals_of_ten_classes_by_monte_carlo(variance, errors):
    mean, cov = law(10, variance)
    z = np.random.default_rng(1).normal(size=(100_000, 10))
    f = mean + np.concatenate([z, -z]) @ np.linalg.cholesky(cov).T
    value, gradient, curvature, _ = averages(f, np.full(len(f), 1 / len(f)), 3)
    found = expect(Softmax(10), *arrays(3.0, mean, cov))
    # the stated error of the rule, and five standard errors of the Monte Carlo average
    noise = 5 / np.sqrt(len(z))
    assert abs(found.value - value) < errors[0] + noise * np.sqrt(variance)
    assert np.max(np.abs(found.gradient - gradient)) < errors[1] + noise / 2
    assert np.max(np.abs(found.curvature - curvature)) < errors[1] + noise / 2


def test_gradient_and_curvature_of_a_sequence_of_points_are_derivatives_of_the_value():
    """As `test_base` has it for the product rules of up to three classes."""
    softmax, y = Softmax(4), jnp.asarray(2.0)
    mean, cov = (jnp.asarray(a) for a in law(4, 3.0))

    def value(m):
        return softmax.expect(y, m, cov).value

    found = expect(softmax, y, mean, cov)
    assert_close(found.gradient, jax.jit(jax.grad(value))(mean), 1e-12)
    assert_close(found.curvature, -jax.jit(jax.hessian(value))(mean), 1e-12)
    none = expect(softmax, y, mean, jnp.zeros_like(cov))
    assert_close(none.value, softmax.log_prob(mean, y), 1e-13)
    assert_close(none.curvature, softmax.information(mean), 1e-13)
    assert_close(none.curvature, -jax.hessian(lambda f: softmax.log_prob(f, y))(mean), 1e-12)


def test_predictions_are_proper():
    mean, cov = (jnp.asarray(a) for a in law(6, 20.0))
    softmax = Softmax(6)
    surprise = eqx.filter_jit(softmax.log_predictive)
    p, _ = eqx.filter_jit(softmax.predict)(mean, cov)
    assert_close(jnp.sum(p), 1.0, 1e-14)
    for y in range(6):
        label = jnp.asarray(float(y))
        assert_close(surprise(label, mean, cov), np.log(p[y]), 1e-13)
        assert_close(surprise(label, mean, cov, jnp.asarray(2.5)), 2.5 * np.log(p[y]), 1e-13)


def test_few_points_and_wide_laws():
    """Sixty-four points for ten classes are coarse, but probabilities of a known symmetry stay right."""
    p, _ = Softmax(10, 64).predict(jnp.zeros(10), 50 * jnp.eye(10))
    np.testing.assert_allclose(p, 0.1, atol=0.03)
    np.testing.assert_allclose(jnp.sum(p), 1, rtol=1e-12)


def test_a_nearly_certain_class_keeps_its_digits():
    mean = jnp.asarray([50.0, 0.0, -5.0])
    found = expect(Softmax(3), *arrays(0.0, mean, np.zeros((3, 3))))
    p = np.exp([-50.0, -55.0])
    np.testing.assert_allclose(found.gradient, [p.sum(), *-p], rtol=1e-12)
    np.testing.assert_allclose(np.diag(found.curvature), [p.sum(), *p], rtol=1e-12)


# the optimal site -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [0.1, 5.0, 100.0, 1e4])
def test_implicit_equations_of_two_classes_hold_by_quadrature(variance):
    mean, cov = law(2, variance)
    weight = 1.7
    site = implicit(Softmax(2), *arrays(1.0, mean, cov, weight))
    assert bool(site.solved)
    new_mean = mean + cov @ site.step
    new_cov = np.linalg.inv(np.linalg.inv(cov) + site.curvature)
    apart = np.array([-1.0, 1.0])
    m, v = apart @ new_mean, apart @ new_cov @ apart
    tail = oracles.expect(lambda f: special.expit(-f), m, v)
    bend = oracles.expect(lambda f: special.expit(f) * special.expit(-f), m, v)
    # at 1e4 the points are three units of f apart, and the curvature there is of the order of 1e-3
    error = 1e-9 if variance < 1e3 else 1e-5
    assert_close(site.step, weight * tail * apart, error)
    assert_close(site.curvature, weight * bend * np.outer(apart, apart), error)


def test_the_optimal_site_of_three_classes_minimises_the_divergence():
    mean, cov = law(3, 4.0)
    site = implicit(Softmax(3), *arrays(2.0, mean, cov, 1.0))
    new = np.linalg.inv(np.linalg.inv(cov) + site.curvature)
    lower = np.linalg.cholesky(new)
    index = np.tril_indices(3)

    def divergence(u):
        m, root = u[:3], np.zeros((3, 3))
        root[index] = u[3:]
        prior = oracles.gaussian_kl(m, root @ root.T, mean, cov)
        return prior - both(m, root @ root.T, 2, nodes=81)[0]

    here = np.concatenate([mean + cov @ site.step, lower[index]])
    slope = optimize.approx_fprime(here, divergence, 1e-6)
    assert np.max(np.abs(slope)) < 1e-4  # the rule's error and that of differences


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4])
def test_far_and_flat_laws_have_sites(dtype, scale):
    mean, cov = law(4, scale)
    mean = mean - 3 * np.sqrt(scale) * np.eye(4)[1]  # the observed class was thought unlikely
    site = implicit(Softmax(4), *arrays(1.0, mean, cov, 1.0, dtype=dtype))
    assert bool(site.solved)
    assert site.step[1] > 0 and abs(jnp.sum(site.step)) < 1e-3 * site.step[1]
    assert np.linalg.eigvalsh(site.curvature)[0] > -1e-6 * np.trace(site.curvature)
    moved = mean + cov @ np.asarray(site.step, float)
    assert special.log_softmax(moved)[1] > special.log_softmax(mean)[1]


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="two classes or more; got classes=1"):
        Softmax(1)
    with pytest.raises(ValueError, match="four points a class or more; got points=32 for 10"):
        Softmax(10, points=32)
