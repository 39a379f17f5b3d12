"""The document's iteration, in weight space (`KLProximal`) and in function space (`fixed`)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli, Laplace, Poisson
from kalvi.rules.klprox.function_space import LatentPrior, klprox
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.vga import vga
from kalvi.streams import run
from papers import klprox_steps
from papers.klprox_fixed import Start, fixed
from tests import problems
from tests.problems import batch

P, COUNTS = problems.binary(20, 4), problems.counts(20, 4)
WEIGHT = np.linspace(0.2, 2.0, 20)
ROWS = batch(P.x, P.y, WEIGHT)
PRIOR = Dense(P.mean, P.cov)
LATENT = LatentPrior(jnp.asarray(P.x @ P.mean), jnp.asarray(P.x @ P.cov @ P.x.T))


def optimum(likelihood, prior, rows):
    return run.call(vga, likelihood, prior, rows, prior)


def steps_of(rule, n, start=None, rows=ROWS):
    """The posteriors after each of n batches."""
    seen = []
    state = rule.init(PRIOR) if start is None else start
    run.resume(rule, state, [rows] * n, after_block=lambda s: seen.append(s.posterior))
    return seen


def argmax_slopes(q, before, beta):
    """The gradient of the corrected subproblem (15) at q, by differentiation in m and a root of V."""
    x, y = jnp.asarray(COUNTS.x), jnp.asarray(COUNTS.y)
    mean, var = x @ before.mean, jnp.sum((x @ before.root) ** 2, axis=1)

    def fit(m, v):  # Poisson
        return jnp.asarray(WEIGHT) @ (y * m - jnp.exp(m + v / 2))

    slope_m, slope_v = jax.grad(fit, argnums=(0, 1))(mean, var)  # −α and −γ/2

    def normal_kl(m, root, m1, cov1):
        away = m - m1
        square = jnp.trace(jnp.linalg.solve(cov1, root @ root.T))
        square += away @ jnp.linalg.solve(cov1, away)
        volume = jnp.linalg.slogdet(cov1)[1] - 2 * jnp.linalg.slogdet(root)[1]
        return (square + volume - len(m)) / 2

    def objective(m, root):
        linear = slope_m @ (x @ m) + slope_v @ jnp.sum((x @ root) ** 2, axis=1)
        own = normal_kl(m, root, jnp.asarray(COUNTS.mean), jnp.asarray(COUNTS.cov))
        return linear - own - normal_kl(m, root, before.mean, before.cov) / beta

    return jax.jit(jax.grad(objective, argnums=(0, 1)))(q.mean, q.root)


@pytest.mark.parametrize(
    "beta",
    [
        pytest.param(
            0.25, marks=pytest.mark.slow(reason="compiles a step and its slopes, as the other does")
        ),
        3.0,
    ],
)
def test_a_step_is_the_argmax_of_the_corrected_subproblem(beta):
    before = Dense(COUNTS.mean + 0.3, 0.1 * COUNTS.cov + 0.2 * np.eye(4))
    rule = KLProximal(Poisson(), beta, natural=False)
    state = rule.start(Dense(COUNTS.mean, COUNTS.cov), before)
    after = steps_of(rule, 1, state, batch(COUNTS.x, COUNTS.y, WEIGHT))[0]
    for slope in argmax_slopes(after, before, beta):
        assert np.max(np.abs(slope)) < 1e-8
    # and no other point is: the gradient is not small at the start
    assert np.max(np.abs(argmax_slopes(before, before, beta)[0])) > 1


@pytest.mark.slow(reason="compiles the steps of both spaces")
def test_weight_space_and_function_space_take_the_same_steps():
    beta = jnp.asarray(0.25)
    weights = steps_of(KLProximal(Bernoulli(), 0.25, natural=False), 6)
    found, start = [], Start(jnp.zeros(20), jnp.zeros(20))
    for _ in range(6):
        here = run.call(
            partial(fixed, steps=1), Bernoulli(), LATENT, ROWS.y, ROWS.weight, beta, start
        )
        found, start = [*found, here], here.start
    for q, f in zip(weights, found, strict=True):
        np.testing.assert_allclose(f.mean, P.x @ np.asarray(q.mean), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(f.var, q.marginal_variance(ROWS.x), rtol=1e-9)
        elbo = metrics.elbo(q, PRIOR, Bernoulli(), ROWS)
        np.testing.assert_allclose(f.elbo[-1], elbo, rtol=1e-10)
    # the sites say the same Gaussian
    pull, curvature = (np.asarray(a) for a in found[-1].sites)
    mean, k = (np.asarray(a) for a in LATENT)
    cov = k @ np.linalg.inv(np.eye(20) + curvature[:, None] * k)
    wanted = mean + cov @ (pull - curvature * mean)
    np.testing.assert_allclose(found[-1].mean, wanted, rtol=1e-8, atol=1e-9)


def dense_step(coefficients, tilde, mean, var, beta, *, lagged=False):
    """One step in plain NumPy, v as corrected or, as Algorithm 1 has it, of the λ before."""
    k, r = np.asarray(LATENT.cov), 1 / (1 + beta)
    terms = jax.vmap(Bernoulli().expect)(ROWS.y, jnp.asarray(mean), jnp.asarray(var))
    gradient, gamma = WEIGHT * np.asarray(terms.gradient), WEIGHT * np.asarray(terms.curvature)
    solved = np.linalg.solve(np.eye(20) + r * tilde[:, None] * k, gradient - coefficients)
    coefficients = coefficients + (1 - r) * solved
    new = r * tilde + (1 - r) * gamma
    used = tilde if lagged else new
    var = np.diag(k - k @ np.linalg.solve(np.eye(20) + used[:, None] * k, used[:, None] * k))
    return coefficients, new, np.asarray(LATENT.mean) + k @ coefficients, var, gamma


def test_what_is_printed_makes_other_steps():
    beta = 0.25
    weights = steps_of(KLProximal(Bernoulli(), beta, natural=False), 6)
    corrected = [np.asarray(q.marginal_variance(ROWS.x)) for q in weights]
    k = np.asarray(LATENT.cov)
    nothing, prior_var = np.zeros(20), np.diag(k)
    start = nothing, nothing, np.asarray(LATENT.mean), prior_var
    gamma0 = dense_step(*start, beta)[-1]
    variants = {"right": (start, False), "lagged": (start, True)}
    variants["gamma0"] = ((nothing, gamma0, *start[2:]), False)
    error = {}
    for name, (here, lagged) in variants.items():
        error[name] = 0.0
        for wanted in corrected:
            here = dense_step(*here[:4], beta, lagged=lagged)
            error[name] = max(error[name], np.max(np.abs(here[3] / wanted - 1)))
    assert error["right"] < 1e-8
    assert error["lagged"] > 0.3 and error["gamma0"] > 0.3


def test_the_printed_criterion_is_far_from_zero_at_the_optimum():
    found = run.call(klprox, Bernoulli(), LATENT, ROWS.y, ROWS.weight)
    terms = jax.vmap(Bernoulli().expect)(ROWS.y, found.mean, found.var)
    alpha, gamma = -WEIGHT * terms.gradient, WEIGHT * terms.curvature
    residual = LATENT.mean - found.mean - LATENT.cov @ alpha
    off = found.sites.curvature - gamma
    printed = residual @ residual + jnp.sum((off - 1)[:, None] * LATENT.cov**2)
    assert printed < -100
    start = Start(found.coefficients, found.sites.curvature)
    here = run.call(
        partial(fixed, steps=1), Bernoulli(), LATENT, ROWS.y, ROWS.weight, jnp.asarray(0.25), start
    )
    assert here.gap[0] < 1e-6


@pytest.mark.slow(reason="compiles four forms of the steps, and the optimum")
def test_all_forms_reach_the_optimum():
    best = optimum(Bernoulli(), PRIOR, ROWS)
    args = Bernoulli(), LATENT, ROWS.y, ROWS.weight, jnp.asarray(0.25)
    for shared in (False, True):
        found = run.call(partial(fixed, steps=120, shared=shared), *args)
        np.testing.assert_allclose(found.elbo[-1], best.elbo, atol=1e-6)
        assert found.gap[-1] < 1e-10 < found.gap[0]
        np.testing.assert_allclose(found.mean, P.x @ np.asarray(best.posterior.mean), atol=1e-5)
    for rule, n in (
        (KLProximal(Bernoulli(), 0.25, natural=False), 120),
        (KLProximal(Bernoulli(), 4.0), 20),
    ):
        q = steps_of(rule, n)[-1]
        elbo = metrics.elbo(q, PRIOR, Bernoulli(), ROWS)
        np.testing.assert_allclose(elbo, best.elbo, atol=1e-6)


@pytest.mark.slow(reason="compiles the steps and the optimum of 60 latents")
def test_a_fixed_step_need_not_converge():
    """Laplace noise narrower than the steps: the bound falls time and again."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 10, 60)
    y = jnp.asarray(np.sin(t) + 0.05 * rng.laplace(size=60))
    prior = LatentPrior(jnp.zeros(60), jnp.asarray(np.exp(-((t[:, None] - t[None, :]) ** 2) / 2)))
    args = Laplace(0.05), prior, y, jnp.ones(60)
    found = run.call(partial(fixed, steps=120), *args, jnp.asarray(1.0))
    best = run.call(klprox, *args)
    assert best.converged
    assert np.sum(np.diff(found.elbo) < 0) > 20
    assert best.elbo - np.max(found.elbo[-20:]) > 1


def test_ways_to_the_optimum_are_counted():
    """On a made-up case: every way arrives, smaller steps later, and nothing ends above the optimum."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(12, 12))
    case = klprox_steps.Case("made up", Bernoulli(), root @ root.T / 6, np.arange(12) % 2 * 1.0)
    found = klprox_steps.ways(case, 200)
    assert all(np.isfinite(way.iterations) for way in found.values())
    assert found["β = 0.25, B"].iterations > found["β = 1, B"].iterations
    assert all(abs(way.end) < 1e-3 for way in found.values())
