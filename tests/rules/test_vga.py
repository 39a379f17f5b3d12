from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli, Poisson, StudentT
from kalvi.numerics.precision import matching_precision
from kalvi.predictors import linear_predictor
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF
from kalvi.rules.vga import vga
from kalvi.streams import run
from tests import oracles, problems, tables
from tests.laws import same_gaussian
from tests.problems import batch

module = import_module("kalvi.rules.vga")  # the package has the function under this name


def _logistic(f, y):
    return special.log_expit((2 * y - 1) * f)


def _count(f, y):
    return y * f - np.exp(f) - special.gammaln(y + 1)


CASES = {
    "bernoulli": (
        Bernoulli(),
        problems.binary(30, 3),
        _logistic,
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
    ),
    "poisson": (
        Poisson(),
        problems.counts(30, 3),
        _count,
        lambda f, y: y - np.exp(f),
        lambda f, y: -np.exp(f),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_optimum_is_that_of_lbfgs_over_means_and_cholesky_factors(name):
    likelihood, p, *terms = CASES[name]
    prior = Dense(p.mean, p.cov)
    found = run.call(vga, likelihood, prior, batch(p.x, p.y), prior)
    mean, cov, elbo = oracles.batch_vga(*terms, p.mean, p.cov, p.x, p.y)
    assert found.converged
    np.testing.assert_allclose(found.elbo, elbo, atol=1e-6)  # nats
    std = np.sqrt(np.diag(cov))
    assert np.max(np.abs(found.posterior.mean - mean) / std) < 1e-4
    np.testing.assert_allclose(np.sqrt(found.posterior.variance()), std, rtol=1e-4)


def _of(likelihood, prior, rows):
    """From the prior, with the linear predictor of as many outputs."""
    return vga(likelihood, prior, rows, prior, predictor=linear_predictor(likelihood.outputs))


@pytest.mark.parametrize("observed", tables.NOISY, ids=tables.name)
def test_exact_for_a_linear_model(observed):
    task = tables.task(observed)
    found = run.call(_of, observed.likelihood, task.prior, batch(task.x, task.y))
    same_gaussian(found.posterior, *oracles.linear_posterior(*task.linear), 1e-9)
    wanted = oracles.linear_log_evidence(*task.linear)
    np.testing.assert_allclose(found.elbo, wanted, rtol=1e-11)  # the bound is tight
    assert int(found.passes) <= 3


@pytest.mark.parametrize("name", ["bernoulli", "softmax"])
def test_every_site_is_consistent_at_the_optimum(name):
    """With expected gradients and curvatures by quadrature, one output or several."""
    observed, n = tables.BY_NAME[name], 4
    task, weight = tables.task(observed, n), np.linspace(0, 2, n)
    q = run.call(_of, observed.likelihood, task.prior, batch(task.x, task.y, weight)).posterior
    mean, cov = np.asarray(q.mean), np.asarray(q.cov)
    target = np.linalg.inv(task.cov)
    gradient, error = -target @ (mean - task.mean), 1e-9
    for row, label, w in zip(task.design, task.y, weight, strict=True):
        law = row @ mean, row @ cov @ row.T
        _, slope, bend = observed.expected(label, *law)
        rows = np.atleast_2d(row)
        gradient = gradient + w * rows.T @ np.atleast_1d(slope)
        target = target + w * rows.T @ np.atleast_2d(bend) @ rows
        error += w * observed.error(np.max(law[1])) * np.sum(np.abs(rows)) ** 2
    assert np.max(np.abs(gradient)) < error
    np.testing.assert_allclose(np.linalg.inv(cov), target, atol=error)


@pytest.mark.slow(reason="compiles a stream and the optimum")
def test_the_bound_is_metrics_elbo_whatever_the_start():
    p = problems.binary()
    prior, rows = Dense(p.mean, p.cov), batch(p.x, p.y)
    rule = RVGA(Bernoulli(), EKF())
    one_pass = run.fit(rule, prior, [rows]).posterior
    found = [run.call(vga, Bernoulli(), prior, rows, start) for start in (prior, one_pass)]
    np.testing.assert_allclose(found[0].elbo, found[1].elbo, atol=1e-9)
    for result in found:
        wanted = metrics.elbo(result.posterior, prior, Bernoulli(), rows)
        np.testing.assert_allclose(result.elbo, wanted, rtol=1e-10)
    assert int(found[1].passes) <= int(found[0].passes)


@pytest.mark.slow(reason="traces the optimum twice, as a patched constant asks for")
def test_rows_in_many_blocks(monkeypatch):
    p = problems.binary()
    prior, rows = Dense(p.mean, p.cov), batch(p.x, p.y)
    whole = vga(Poisson(), prior, rows, prior)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    parts = vga(Poisson(), prior, rows, prior)
    same_gaussian(parts.posterior, whole.posterior.mean, whole.posterior.cov, rtol=1e-9)


@pytest.mark.slow(reason="compiles the optima and bounds of two likelihoods")
@given(st.integers(0, 10**6))
@settings(max_examples=8)
def test_the_bound_never_falls_below_its_start(seed):
    """Wild starts and priors; log-concave or not."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 3)) * np.exp(2 * rng.normal())
    for likelihood, y in (
        (Bernoulli(), rng.integers(0, 2, 12).astype(float)),
        (StudentT(3.0, 0.5), rng.normal(size=12)),
    ):
        rows = batch(x, y)
        prior = Dense(np.zeros(3), problems.spd(rng, 3))
        start = Dense(5 * rng.normal(size=3), problems.spd(rng, 3))
        found = run.call(vga, likelihood, prior, rows, start)
        before = run.call(metrics.elbo, start, prior, likelihood, rows)
        assert found.elbo >= before - 1e-9 * abs(before)


def test_stopping_early_says_so():
    p = problems.binary()
    prior, rows = Dense(p.mean, p.cov), batch(p.x, p.y)
    limited = jax.jit(lambda n: vga(Bernoulli(), prior, rows, prior, max_passes=n))
    early, late = limited(jnp.asarray(2)), limited(jnp.asarray(100))
    assert not early.converged and int(early.passes) == 2
    assert late.converged and late.gap < 1e-10 < early.gap


def test_separable_data_with_a_flat_prior():
    p = problems.binary(30, 3)
    y = (p.x[:, 0] > 0).astype(float)
    prior = Dense(np.zeros(3), 1e4 * np.eye(3))
    found = run.call(vga, Bernoulli(), prior, batch(p.x, y), prior)
    assert found.converged
    assert np.all((p.x @ np.asarray(found.posterior.mean) > 0) == (y == 1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1.0, 1e2, 1e4, 1e5, 1e7])
@pytest.mark.parametrize("weight", [1e-4, 1.0, 1e3])
def test_it_stops_where_the_stationarity_equations_hold_to_rounding(count, weight, dtype):
    """With E e^f = e^(m + v/2) in NumPy; sizes as in `natural_gradient`, in standard deviations."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(100, 3)), np.ones(100)]).astype(dtype)
    y = rng.poisson(count * np.exp(0.3 * x[:, 0] - 0.2 * x[:, 1])).astype(dtype)
    scale = np.array([1.0, 1.0, 1.0, 10.0])
    with matching_precision(dtype):
        rows = _rows(x, y, np.full(100, weight, dtype))
        prior = Dense(np.zeros(4, dtype), np.diag(scale**2).astype(dtype))
        start = run.fit(RVGA(Poisson()), prior, [rows]).posterior
        found = run.call(_to_rounding, Poisson(), prior, rows, start)
    assert found.converged and int(found.passes) < 100
    x, y, mean, cov = (
        np.asarray(a, float) for a in (x, y, found.posterior.mean, found.posterior.cov)
    )
    rate = weight * np.exp(x @ mean + np.einsum("ni,ij,nj->n", x, cov, x) / 2)
    target = np.diag(scale**-2.0) + x.T @ (rate[:, None] * x)
    gradient = x.T @ (weight * y - rate) - mean / scale**2
    root = np.linalg.cholesky(cov)
    size = np.sqrt(np.diag(target)) @ np.abs(mean)
    eps = float(np.finfo(dtype).eps)
    assert np.linalg.norm(root.T @ gradient) < 30 * eps * (1 + size)
    np.testing.assert_allclose(root.T @ target @ root, np.eye(4), atol=30 * eps * (1 + size))


def _rows(*arrays):
    return Batch(*(jnp.asarray(a) for a in arrays))


def _to_rounding(likelihood, prior, rows, start):
    return vga(likelihood, prior, rows, start, tolerance=0.0, max_passes=jnp.asarray(200))


def test_a_bound_that_rounding_hides_still_has_to_be_climbed():
    """In float32 these counts leave 10 nats of the bound to rounding, and the start is 60 sd away."""
    x = np.ones((50, 1), np.float32)
    unit = np.eye(1, dtype=np.float32)
    with matching_precision(np.float32):
        rows = _rows(x, np.full(50, 1e6, np.float32), np.ones(50, np.float32))
        prior = Dense(np.zeros(1, np.float32), 100 * unit)
        start = Dense(np.array([np.log(1e6) + 0.01], np.float32), 2e-8 * unit)
        found = run.call(_to_rounding, Poisson(), prior, rows, start)
    assert found.converged and float(found.gap) < 1e-2
    assert abs(float(found.posterior.mean[0]) - np.log(1e6)) < 0.3 * np.sqrt(2e-8)
