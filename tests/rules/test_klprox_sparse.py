import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg as sl
from scipy import special, stats

from kalvi import kernels
from kalvi.kernels import RBF, Linear, Matern32, White
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.rules.klprox import sparse
from kalvi.rules.klprox.function_space import LatentPrior, klprox
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.klprox.sparse import (
    InducingFeatures,
    choose_inducing,
    inducing_features,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
)
from kalvi.rules.rule import Batch
from kalvi.streams import run
from tests import oracles
from tests.laws import assert_close, largest_array

KERNEL = 1.7 * Matern32([0.9, 1.4])


def problem(n=40, seed=0):
    """Rows, a mean that differs from row to row, labels and real targets, and uneven weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = np.sin(2 * x[:, 0]) + x[:, 1]
    mean, real = 0.3 * x[:, 1] - 0.2, f + 0.3 * rng.normal(size=n)
    binary = (f + rng.logistic(size=n) > 0).astype(float)
    return tuple(jnp.asarray(a) for a in (x, mean, real, binary, rng.uniform(0.5, 2, n)))


def collapsed(theta, rebuild, x, mean, y, z):
    """Titsias' bound for normal noise: the optimum over q in closed form, dense; log variance and a
    constant of the mean come last in theta."""
    kernel, variance, mean = rebuild(theta[:-2]), np.exp(theta[-2]), mean + theta[-1]
    kzz, kzx = np.asarray(kernel(z, z)), np.asarray(kernel(z, x))
    explained = kzx.T @ np.linalg.solve(kzz, kzx)
    left = np.asarray(kernel.diagonal(x)) - np.diag(explained)  # with the noise of each row
    cov = explained + variance * np.eye(len(x))
    return stats.multivariate_normal(mean, cov).logpdf(y) - left.sum() / (2 * variance)


def test_few_rows_give_the_bound_of_titsias_its_gradient_and_predictions(monkeypatch):
    """In blocks that do not divide the rows."""
    monkeypatch.setattr(sparse, "ROWS_AT_ONCE", 3)
    x, mean, y, _, _ = problem(8)
    z, new, rows = x[:3], problem(5, 1)[0], Batch(x, y, jnp.ones(8))
    logs, rebuild = kernels.flatten(KERNEL)
    theta = jnp.concatenate([logs, jnp.asarray([np.log(0.2), 0.4])])

    def model(theta):
        return Normal(jnp.exp(theta[-2])), rebuild(theta[:-2]), mean + theta[-1], z, rows

    @jax.jit
    def at_the_optimum(theta):
        found = sparse_klprox(*model(theta))
        slopes = jax.grad(lambda theta: sparse_elbo(*model(theta), found.posterior))(theta)
        return found, slopes, sparse_predict(KERNEL, jnp.full(5, 0.5), z, found.posterior, new)

    found, slopes, got = at_the_optimum(theta)
    given = (rebuild, x, mean, y, z)
    assert_close(found.elbo, collapsed(theta, *given), 1e-8)
    steps = 1e-5 * np.eye(len(theta))
    wanted = [(collapsed(theta + s, *given) - collapsed(theta - s, *given)) / 2e-5 for s in steps]
    assert_close(slopes, wanted, 1e-7)
    kzz, kzx, kzn = (np.asarray(KERNEL(z, a)) for a in (z, x, new))
    system = kzz + kzx @ kzx.T / 0.2
    centre = 0.5 + kzn.T @ np.linalg.solve(system, kzx @ np.asarray(y - mean - 0.4)) / 0.2
    assert_close(got[0], centre, 1e-8)
    prior = 1.7 - np.sum(kzn * np.linalg.solve(kzz, kzn), axis=0)
    assert_close(got[1], prior + np.sum(kzn * np.linalg.solve(system, kzn), axis=0), 1e-8)


def test_a_few_rows_that_are_all_inducing_points_are_no_approximation():
    """The optimum solves the equations of the whole Gaussian process, its integrals by quadrature."""
    x, mean, _, y, weight = problem(4)
    found = run.call(sparse_klprox, Bernoulli(), KERNEL, mean, x, Batch(x, y, weight))
    assert found.converged
    prior = np.asarray(KERNEL.gram(x))
    root = np.linalg.cholesky(prior)
    m, cov = root @ found.posterior.mean, root @ np.asarray(found.posterior.cov) @ root.T
    laws_of_f = list(zip(np.asarray(mean) + m, np.diag(cov), strict=True))
    p = [oracles.expect(special.expit, *law, oracles.around(0.0)) for law in laws_of_f]
    bend = [
        oracles.expect(lambda f: special.expit(f) * special.expit(-f), *law, oracles.around(0.0))
        for law in laws_of_f
    ]
    # the mixture's integrals are exact to 1e-8 a row
    assert_close(np.linalg.solve(prior, m), weight * (y - np.array(p)), 1e-6)
    assert_close(np.linalg.inv(cov), np.linalg.inv(prior) + np.diag(weight * np.array(bend)), 1e-6)


def test_minibatches_of_a_linear_model_come_to_the_bound_of_titsias():
    """Normal noise: each row says the same wherever it is asked, and a pass of any batches is exact."""
    x, _, y, _, _ = problem(8)
    z, rows = x[:3], Batch(x, y, jnp.ones(8))
    rule = KLProximal.stochastic(Normal(0.2), 8.0, predictor=InducingFeatures(KERNEL, z, _slope))
    parts = [Batch(*(a[k : k + 4] for a in rows[:3])) for k in (0, 4)]
    found = run.fit(rule, sparse.standard_prior(z), parts * 2).posterior
    bound = run.call(sparse_elbo, Normal(0.2), KERNEL, _slope(x), z, rows, found)
    theta = np.array([np.log(0.2), 0.0])
    wanted = collapsed(theta, lambda _: KERNEL, x, np.asarray(_slope(x)), y, z)
    assert_close(bound, wanted, 1e-8)


@pytest.mark.slow(reason="compiles the optimum, the bound's gradient and predictions")
def test_normal_noise_gives_the_collapsed_bound_of_titsias_its_gradient_and_predictions(
    monkeypatch,
):
    """Gradients with q held fixed are those of the optimal bound; blocks do not divide the rows."""
    monkeypatch.setattr(sparse, "ROWS_AT_ONCE", 16)
    x, mean, y, _, _ = problem()
    z, new, rows = x[:9], problem(7, 1)[0], Batch(x, y, jnp.ones(40))
    logs, rebuild = kernels.flatten(KERNEL + White(0.1))
    theta = jnp.concatenate([logs, jnp.asarray([np.log(0.2), 0.4])])

    def model(theta):
        return Normal(jnp.exp(theta[-2])), rebuild(theta[:-2]), mean + theta[-1], z, rows

    found = jax.jit(lambda theta: sparse_klprox(*model(theta)))(theta)
    given = (rebuild, x, mean, y, z)
    assert_close(found.elbo, collapsed(theta, *given), 1e-8)
    bound = jax.jit(jax.value_and_grad(lambda theta, q: sparse_elbo(*model(theta), q)))
    value, slopes = bound(theta, found.posterior)
    assert_close(value, found.elbo, 1e-12)
    steps = 1e-5 * np.eye(len(theta))
    wanted = [(collapsed(theta + s, *given) - collapsed(theta - s, *given)) / 2e-5 for s in steps]
    assert_close(slopes, wanted, 1e-7)

    kzz, kzx, kzn = (np.asarray(KERNEL(z, a)) for a in (z, x, new))
    system = kzz + kzx @ kzx.T / 0.2
    centre = 0.5 + kzn.T @ np.linalg.solve(system, kzx @ np.asarray(y - mean - 0.4)) / 0.2
    prior = 1.8 - np.sum(kzn * np.linalg.solve(kzz, kzn), axis=0)
    spread = prior + np.sum(kzn * np.linalg.solve(system, kzn), axis=0)
    got = run.call(sparse_predict, rebuild(logs), jnp.full(7, 0.5), z, found.posterior, new)
    assert_close(got[0], centre, 1e-8)
    assert_close(got[1], spread, 1e-8)


@pytest.mark.slow(reason="compiles three optima and the predictions")
def test_every_row_an_inducing_point_is_no_approximation():
    x, mean, _, y, weight = problem()
    new, offset = problem(7, 1)[:2]
    exact_prior = LatentPrior(mean, KERNEL.gram(x))
    exact = run.call(
        lambda *args: klprox(*args, tolerance=1e-18), Bernoulli(), exact_prior, y, weight
    )
    rows = Batch(x, y, weight)
    found = run.call(sparse_klprox, Bernoulli(), KERNEL, mean, x, rows)
    assert found.converged
    assert_close(found.elbo, exact.elbo, 1e-8)
    got = run.call(sparse_predict, KERNEL, offset, x, found.posterior, new)
    cross, curvature = np.asarray(KERNEL(new, x)), np.asarray(exact.sites.curvature)
    inverse = np.linalg.inv(np.asarray(exact_prior.cov) + np.diag(1 / curvature))
    centre = offset + cross @ np.asarray(exact.coefficients)
    spread = 1.7 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    assert_close(got[0], centre, 1e-8)
    assert_close(got[1], spread, 1e-8)
    fewer = run.call(sparse_klprox, Bernoulli(), KERNEL, mean, x[:9], rows)
    assert fewer.elbo < exact.elbo - 0.1


@pytest.mark.slow(reason="compiles the optimum, the minibatches and the bound")
def test_minibatches_come_to_the_same_optimum():
    """Within .01 nats in ten passes."""
    x, mean, _, y, weight = problem()
    rows, z = Batch(x, y, weight), x[:9]
    best = run.call(sparse_klprox, Bernoulli(), KERNEL, mean, z, rows)
    predictor = InducingFeatures(KERNEL, z, _slope)
    rule = KLProximal.stochastic(Bernoulli(), float(weight.sum()), predictor=predictor)
    parts = [Batch(*(a[k : k + 10] for a in rows)) for k in range(0, 40, 10)]
    found = run.fit(rule, sparse.standard_prior(z), parts * 10).posterior
    bound = run.call(sparse_elbo, Bernoulli(), KERNEL, mean, z, rows, found)
    assert best.elbo - 0.01 < bound <= best.elbo + 1e-9


def _slope(x):
    return 0.3 * x[:, 1] - 0.2


def test_choices_are_those_of_lapacks_pivoted_cholesky():
    x = problem(60)[0]
    chosen = run.call(lambda k, x: choose_inducing(k, x, 12), 2.0 * RBF([0.7, 1.1]) + White(3.0), x)
    cov = 2.0 * np.asarray(RBF([0.7, 1.1]).gram(x))
    factor, order, _, _ = sl.lapack.dpstrf(cov, lower=1)
    assert np.array_equal(chosen.rows, order[:12] - 1)
    factor = np.tril(factor)[:, :12]
    assert_close(chosen.left, 1 - np.sum(factor**2) / np.trace(cov), 1e-10)
    assert int(chosen.count) == 12


def test_choices_end_when_nothing_is_left():
    """Linear functions of two inputs have three dimensions, however many rows there are."""
    x = jnp.concatenate([problem(20)[0]] * 2)
    chosen = run.call(lambda k, x: choose_inducing(k, x, 12), Linear(1.0, 0.5), x)
    assert int(chosen.count) == 3 and abs(chosen.left) < 1e-12
    chosen = run.call(lambda k, x: choose_inducing(k, x, 12), White(1.0), x)
    assert int(chosen.count) == 0 and chosen.left == 0


@pytest.mark.parametrize("length_scale", [1e-3, 1.0, 1e4])
def test_inducing_points_may_all_but_repeat_one_another(length_scale):
    """What is explained of each variance, against an eigendecomposition that drops what rounding made."""
    x = problem(40)[0]
    z = jnp.concatenate([x[:20], x[:20] + 1e-9, x[:5]])
    phi, extra = run.call(inducing_features, RBF(length_scale), z, x)
    values, vectors = np.linalg.eigh(np.asarray(RBF(length_scale)(z, z)))
    kept = values > 1e-8
    parts = (
        vectors[:, kept].T @ np.asarray(RBF(length_scale)(z, x)) / np.sqrt(values[kept])[:, None]
    )
    assert_close(np.sum(np.asarray(phi) ** 2, axis=1), np.sum(parts**2, axis=0), 1e-6)
    assert_close(extra, 1 - np.sum(np.asarray(phi) ** 2, axis=1), 1e-9)
    assert np.all(np.asarray(extra) >= 0)


def test_memory_is_that_of_a_block(monkeypatch):
    monkeypatch.setattr(sparse, "ROWS_AT_ONCE", 10)
    n, m = 400, 12
    rows = Batch(jnp.ones((n, 2)), jnp.ones(n), jnp.ones(n))
    z = problem(m)[0]
    q = sparse.standard_prior(z)
    theta, rebuild = kernels.flatten(RBF([1.0, 2.0]))

    def bound(theta, z):
        return sparse_elbo(Bernoulli(), rebuild(theta), jnp.zeros(n), z, rows, q)

    # the inputs themselves, n · 2 numbers, are larger than a block of features
    assert largest_array(jax.value_and_grad(bound, (0, 1)), theta, z) <= 2 * n
