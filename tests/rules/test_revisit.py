import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from kalvi import Dense, LowRankPrecision, kl
from kalvi.evaluation.metrics import elbo
from kalvi.likelihoods import Bernoulli, Normal, Poisson, Softmax, StudentT
from kalvi.predictors import linear_predictor
from kalvi.predictors.models import Model
from kalvi.rules.revisit import Revisit
from kalvi.rules.vga import vga
from kalvi.rules.visits import sums
from kalvi.streams import run
from tests import oracles, problems, tables
from tests.laws import assert_close, largest_array, same_gaussian

D = 6


def revisit(likelihood):
    return Revisit(Model(linear_predictor(likelihood.outputs), likelihood))


def climb(likelihood, prior, start, batches, passes=60, tolerance=1e-9):
    """The last state, and the bound of the best Gaussian after each pass."""
    rule, bounds = revisit(likelihood), []
    state = rule.init(prior, start=start)
    while state.ascent.should_continue(tolerance) and len(bounds) < passes:
        state = run.call(Revisit.turn, rule, run.resume(rule, state, batches))
        bounds.append(float(state.ascent.elbo))
    return state, bounds


def low_rank(p, var=2.0, dtype=np.float64, d=D):
    return LowRankPrecision(np.zeros(d, dtype), np.zeros((d, p), dtype), np.full(d, 1 / var, dtype))


def seeded(prior, scale=0.1):
    """A start whose factor is not zero: an EM step keeps empty columns empty."""
    rng = np.random.default_rng(3)
    factor = scale * rng.normal(size=prior.precision.factor.shape)
    return LowRankPrecision(prior.mean, factor.astype(prior.mean.dtype), prior.precision.diag)


@pytest.mark.parametrize("observed", tables.NOISY, ids=tables.name)
def test_one_pass_is_exact_for_a_linear_model_wherever_it_starts(observed):
    """And the next one finds the bound tight: the start is no data."""
    task, rng = tables.task(observed), np.random.default_rng(1)
    d = len(task.mean)
    start = Dense(3 * rng.normal(size=d), problems.spd(rng, d))
    rule, rows = revisit(observed.likelihood), [problems.batch(task.x, task.y)]
    state = rule.init(task.prior, start=start)
    for _ in range(2):
        state = run.call(Revisit.turn, rule, run.resume(rule, state, rows))
    same_gaussian(state.posterior, *oracles.linear_posterior(*task.linear))
    assert_close(state.ascent.elbo, oracles.linear_log_evidence(*task.linear), 1e-10)


@pytest.mark.parametrize("observed", tables.NOISY, ids=tables.name)
def test_with_all_the_rank_a_linear_model_is_exact_wherever_it_starts(observed):
    """The mean at once; what the bound lacks of the evidence is KL(q ‖ exact), and EM takes its time."""
    task, rng = tables.task(observed), np.random.default_rng(1)
    d = len(task.mean)
    given = np.zeros(d), 2 * np.eye(d), *task.linear[2:]
    start = LowRankPrecision(3 * rng.normal(size=d), rng.normal(size=(d, d)), np.full(d, 5.0))
    rows = [problems.batch(task.x, task.y)]
    found, bounds = climb(observed.likelihood, low_rank(d, d=d), start, rows, 60, 1e-12)
    assert_close(found.posterior.mean, oracles.linear_posterior(*given)[0], 1e-10)
    evidence = oracles.linear_log_evidence(*given)
    assert evidence - 1e-6 < bounds[-1] < evidence + 1e-11
    cov = np.asarray(found.posterior.covariance.to_dense())
    away = oracles.gaussian_kl(
        np.asarray(found.posterior.mean), cov, *oracles.linear_posterior(*given)
    )
    assert_close(evidence - bounds[-1], away, 1e-11)


def test_a_rank_too_low_still_has_the_exact_mean_and_the_best_factors():
    """Against SciPy's optimum, which has no diagonal entry at zero: there EM would be slow."""
    d, variance = 4, 0.5
    p = problems.linear(n=40, d=d, variance=variance, seed=2)
    prior, rows = low_rank(1, d=d), [problems.batch(p.x, p.y)]
    found, _ = climb(Normal(variance), prior, seeded(prior), rows, 200, 1e-12)
    precision = np.eye(d) / 2 + p.x.T @ p.x / variance
    mean = np.linalg.solve(precision, p.x.T @ p.y / variance)
    assert_close(found.posterior.mean, mean, 1e-10)

    def divergence(u):
        model = np.outer(u[:d], u[:d]) + np.diag(np.exp(u[d:]))
        ratio = np.linalg.solve(model, precision)
        return (np.trace(ratio) - d - np.linalg.slogdet(ratio)[1]) / 2

    q = found.posterior.precision
    here = np.concatenate([np.asarray(q.factor)[:, 0], np.log(q.diag)])
    starts = np.random.default_rng(0).normal(size=(5, 2 * d))
    best = min(optimize.minimize(divergence, start).fun for start in starts)
    assert divergence(here) < best + 1e-6  # .0019, and .060 without a factor


@pytest.mark.slow(reason="three hundred passes, and the optimum over Cholesky factors")
def test_with_all_the_rank_it_is_the_batch_optimum():
    p = problems.binary(n=60, d=D)
    prior, batch = low_rank(D), problems.batch(p.x, p.y)
    best = vga(Bernoulli(), prior.to_dense(), batch, prior.to_dense())
    found, bounds = climb(Bernoulli(), prior, seeded(prior), [batch], 300)
    np.testing.assert_allclose(bounds[-1], best.elbo, atol=1e-5)
    assert float(kl(found.posterior, best.posterior)) < 1e-4


@pytest.mark.slow(reason="five hundred passes, and SciPy's optimum")
def test_a_linear_model_reaches_the_exact_mean_and_the_best_factors():
    # the floor: the exact mean, and the factor analysis of the exact precision, by SciPy's optimiser
    from scipy.optimize import minimize

    p, rank, variance = problems.linear(n=50, d=D, variance=0.5), 2, 0.5
    prior = low_rank(rank)
    rows = [problems.batch(p.x, p.y)]
    found, _ = climb(Normal(variance), prior, seeded(prior), rows, 500, 1e-11)
    precision = np.eye(D) / 2 + p.x.T @ p.x / variance
    mean = np.linalg.solve(precision, p.x.T @ p.y / variance)
    np.testing.assert_allclose(found.posterior.mean, mean, atol=1e-5)

    def divergence(parameters):
        factor = parameters[: D * rank].reshape(D, rank)
        model = factor @ factor.T + np.diag(np.exp(parameters[D * rank :]))
        ratio = np.linalg.solve(model, precision)
        return (np.trace(ratio) - D - np.linalg.slogdet(ratio)[1]) / 2

    q = found.posterior.precision
    here = np.concatenate([np.asarray(q.factor).ravel(), np.log(q.diag)])
    starts = [here, *(np.random.default_rng(s).normal(size=here.size) for s in range(3))]
    best = min(minimize(divergence, start).fun for start in starts)
    assert divergence(here) < best + 1e-4


@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(
            Bernoulli(), marks=pytest.mark.slow(reason="compiles passes, as the others do")
        ),
        Poisson(),
        StudentT(4.0, 0.6),
    ],
)
def test_the_bound_never_falls_and_is_the_bound(likelihood):
    p = problems.counts(n=50, d=D)
    y = np.minimum(p.y, 1) if isinstance(likelihood, Bernoulli) else p.y
    prior, batch = low_rank(1), problems.batch(p.x, y)
    found, bounds = climb(likelihood, prior, seeded(prior), [batch], 25)
    assert np.all(np.diff(bounds) >= -1e-10) and bounds[-1] > bounds[0]
    np.testing.assert_allclose(
        bounds[-1], elbo(found.posterior, prior, likelihood, batch), rtol=1e-10
    )


def test_how_the_rows_are_cut_does_not_matter_and_padding_is_inert():
    p = problems.binary(n=40, d=D)
    prior = low_rank(2)
    weight = np.concatenate([np.ones(40), np.zeros(8)])
    x, y = np.concatenate([p.x, np.full((8, D), 7.0)]), np.concatenate([p.y, np.ones(8)])
    cut = [problems.batch(x[i : i + 16], y[i : i + 16], weight[i : i + 16]) for i in (0, 16, 32)]
    first = climb(Bernoulli(), prior, seeded(prior), [problems.batch(p.x, p.y)], 5)[0].posterior
    second = climb(Bernoulli(), prior, seeded(prior), cut, 5)[0].posterior
    same_gaussian(first, second.mean, second.covariance.to_dense(), rtol=1e-9)


def test_float32_climbs_too():
    p = problems.binary(n=60, d=D)
    prior = low_rank(2, dtype=np.float32)
    rows = problems.batch(100 * p.x, p.y, dtype=np.float32)  # separable, huge
    found, bounds = climb(Bernoulli(), prior, seeded(prior), [rows], 30)
    assert np.all(np.isfinite(bounds)) and bounds[-1] > bounds[0]
    assert np.all(np.asarray(found.posterior.precision.diag) > 0)


def test_no_square_matrix():
    d, n = 300, 5
    prior = low_rank(2, d=d)
    rule, rows = revisit(Bernoulli()), problems.batch(np.ones((n, d)), np.ones(n))
    step = eqx.filter_jit(lambda s, b: rule.turn(rule.update(s, b)))
    assert largest_array(lambda s, b: step(s, b), rule.init(prior, start=prior), rows) < d * d // 8


@pytest.mark.slow(reason="five hundred passes")
def test_the_prior_is_kept_apart_from_the_start():
    # climbing from elsewhere must not count the start as data
    p = problems.linear(n=30, d=D, variance=1.0)
    prior, rows = low_rank(D), [problems.batch(p.x, p.y)]
    away = seeded(LowRankPrecision(np.full(D, 3.0), np.zeros((D, D)), np.full(D, 5.0)))
    found = climb(Normal(1.0), prior, away, rows, 500, 1e-12)[0].posterior
    exact = Dense(np.zeros(D), 2 * np.eye(D))
    exact = exact.absorb(jnp.asarray(p.x), jnp.zeros(30), jnp.ones(30))
    mean = np.linalg.solve(np.eye(D) / 2 + p.x.T @ p.x, p.x.T @ p.y)
    assert float(kl(found, Dense(mean, exact.cov))) < 1e-4


# a full covariance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "multinormal"])
def test_sums_of_several_outputs_are_integrals(name):
    """By quadrature, row by row."""
    observed = tables.BY_NAME[name]
    task, weight = tables.task(observed, 3), np.array([1.0, 0.0, 2.5])
    q = task.prior
    model = Model(linear_predictor(observed.outputs), observed.likelihood)
    found = run.call(sums, model, q, problems.batch(task.x, task.y, weight))
    value, gradient, curvature = 0.0, np.zeros(len(task.mean)), np.zeros(task.cov.shape)
    error = 1e-10
    for row, label, w in zip(task.design, task.y, weight, strict=True):
        law = row @ task.mean, row @ task.cov @ row.T
        said = observed.expected(label, *law)
        value += w * said[0]
        gradient += w * row.T @ said[1]
        curvature += w * row.T @ said[2] @ row
        error += w * observed.error(np.max(law[1])) * np.sum(np.abs(row)) ** 2
    assert_close(found.value, value, error)
    assert_close(found.gradient, gradient, error)
    assert_close(found.curvature, curvature, error)


@pytest.mark.slow(reason="integrals of a softmax, row by row, without a compiled loop")
def test_sums_of_several_classes_written_out():
    rng = np.random.default_rng(0)
    n, i, c = 5, 2, 3
    x, y, weight = rng.normal(size=(n, i)), rng.integers(0, c, n), np.array([1.0, 2, 0, 1, 0.5])
    q = Dense(rng.normal(size=c * i), problems.spd(rng, c * i))
    found = sums(Model(linear_predictor(c), Softmax(c)), q, problems.batch(x, y, weight))
    value, gradient, curvature = 0.0, np.zeros(c * i), np.zeros((c * i, c * i))
    for row, label, w in zip(x, y, weight, strict=True):
        rows = np.kron(np.eye(c), row)
        law = jnp.asarray(rows @ q.mean), jnp.asarray(rows @ q.cov @ rows.T)
        said = Softmax(c).expect(jnp.asarray(float(label)), *law)
        value += w * float(said.value)
        gradient += w * rows.T @ np.asarray(said.gradient)
        curvature += w * rows.T @ np.asarray(said.curvature) @ rows
    assert_close(found.value, value, 1e-10)
    assert_close(found.gradient, gradient, 1e-10)
    assert_close(found.curvature, curvature, 1e-10)


def test_a_step_that_lowers_the_bound_is_halved_until_it_does_not():
    # all rows say one thing, far from a start that is sure of the other: Newton's step is much too long
    batch = problems.batch(np.ones((50, 1)), np.ones(50))
    prior = Dense(np.zeros(1), np.full((1, 1), 100.0))
    start = Dense(np.full(1, -12.0), np.full((1, 1), 1e-3))
    rule, bounds, lengths = revisit(Bernoulli()), [], []
    state = rule.init(prior, start=start)
    for _ in range(60):
        state = run.call(Revisit.turn, rule, run.resume(rule, state, [batch]))
        bounds.append(float(state.ascent.elbo))
        lengths.append(float(state.ascent.climb.length))
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    assert min(lengths) < 1  # one at least was taken back
    assert bounds[0] < -600
    assert bounds[-1] > -1.3853  # the optimum


def test_it_begins_at_the_prior_unless_told_otherwise():
    prior = Dense(np.ones(2), np.eye(2))
    same_gaussian(revisit(Normal()).init(prior).visited, prior.mean, prior.cov, rtol=1e-12)


def test_only_integrals_of_several_predictors_are_rough():
    rows = problems.batch(np.ones((3, 2)), np.zeros(3))
    one, many = Dense(np.zeros(2), np.eye(2)), Dense(np.zeros(6), np.eye(6))
    assert float(sums(revisit(Bernoulli()).model, one, rows).roughness) == 0
    assert_close(sums(revisit(Softmax(3)).model, many, rows).roughness, 3e-5, 1e-12)
