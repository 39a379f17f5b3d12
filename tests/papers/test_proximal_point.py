from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from kalvi.rules.klprox.rule import step_length
from kalvi.rules.rule import Batch
from kalvi.streams import run
from papers.proximal_point import (
    GammaFamily,
    NormalFamily,
    NormalMeanPrecision,
    ProximalPoint,
    proximal_step,
)

PRIOR = {"mean": 0.5, "strength": 0.7, "shape": 2.0, "rate": 1.5}
MODEL = NormalMeanPrecision(*PRIOR.values())
Y = 2 + 1.3 * np.random.default_rng(0).normal(size=12)


def rows(y, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    return Batch(jnp.zeros((len(y), 0)), jnp.asarray(y), jnp.asarray(weight))


def posterior(y):
    """The exact normal-gamma posterior: mean, strength, shape, rate."""
    n, k = len(y), PRIOR["strength"]
    mean = (k * PRIOR["mean"] + np.sum(y)) / (k + n)
    scatter = np.sum((y - y.mean()) ** 2) + k * n / (k + n) * (y.mean() - PRIOR["mean"]) ** 2
    return mean, k + n, PRIOR["shape"] + n / 2, PRIOR["rate"] + scatter / 2


def log_evidence(y):
    _, k, shape, rate = posterior(y)
    k0, a0, b0 = PRIOR["strength"], PRIOR["shape"], PRIOR["rate"]
    powers = a0 * np.log(b0) - shape * np.log(rate) + (np.log(k0) - np.log(k)) / 2
    return powers + special.gammaln(shape) - special.gammaln(a0) - len(y) / 2 * np.log(2 * np.pi)


def bound(m, v, a, b, y=Y):
    """The ELBO of N(μ; m, v) Gamma(τ; a, b), term by term."""
    tau, log_tau = a / b, special.digamma(a) - np.log(b)
    m0, k0, a0, b0 = PRIOR["mean"], PRIOR["strength"], PRIOR["shape"], PRIOR["rate"]
    fit = 0.5 * np.sum(log_tau - np.log(2 * np.pi) - tau * ((y - m) ** 2 + v))
    mean = 0.5 * (np.log(k0) + log_tau - np.log(2 * np.pi) - k0 * tau * ((m - m0) ** 2 + v))
    precision = a0 * np.log(b0) - special.gammaln(a0) + (a0 - 1) * log_tau - b0 * tau
    return fit + mean + precision + stats.norm(m, np.sqrt(v)).entropy() + gamma_entropy(a, b)


def gamma_entropy(a, b):
    return a - np.log(b) + special.gammaln(a) + (1 - a) * special.digamma(a)


def normal_kl(m, v, m1, v1):
    return (np.log(v1 / v) + (v + (m - m1) ** 2) / v1 - 1) / 2


def gamma_kl(a, b, a1, b1):
    shapes = (a - a1) * special.digamma(a) - special.gammaln(a) + special.gammaln(a1)
    return shapes + a1 * np.log(b / b1) + a * (b1 - b) / b


def naturals(m, v, a, b):
    z = m - PRIOR["mean"]
    return jnp.array([z / v, -0.5 / v]), jnp.array([a, -b])


def moments(factors):
    """m, v, a, b of natural parameters."""
    (pull, bend), (a, b) = np.asarray(factors[0]), np.asarray(factors[1])
    return np.array([PRIOR["mean"] - pull / (2 * bend), -0.5 / bend, a, -b])


def summit(objective, start):
    """The maximum over real numbers, to the accuracy of a Newton step by differences."""
    rough = optimize.minimize(lambda u: -objective(u), start, method="Nelder-Mead", tol=1e-10)

    def slope(u):
        eye = 1e-4 * np.eye(len(u))
        # fourth order, so that the difference errs by 1e-12 or so
        return np.array(
            [
                (
                    8 * (objective(u + e) - objective(u - e))
                    - objective(u + 2 * e)
                    + objective(u - 2 * e)
                )
                / 12e-4
                for e in eye
            ]
        )

    return optimize.root(slope, rough.x, tol=1e-12).x


HERE = (1.2, 0.4, 3.0, 2.5)


def free(u):
    """m, v, a, b from real numbers."""
    return u[0], np.exp(u[1]), np.exp(u[2]), np.exp(u[3])


UNKNOWN = np.array([HERE[0], *np.log(HERE[1:])])


@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
def test_theorem_1_for_one_factor_with_the_other_held(beta):
    length = step_length(jnp.asarray(beta), jnp.asarray(0.0), jnp.asarray(0))
    for i, (held, divergence) in enumerate(((slice(2, 4), normal_kl), (slice(0, 2), gamma_kl))):
        own = slice(0, 2) if i == 0 else slice(2, 4)

        def objective(u, own=own, divergence=divergence):
            full = UNKNOWN.copy()
            full[own] = u
            there = free(full)
            return bound(*there) - divergence(*there[own], *HERE[own]) / beta

        full = UNKNOWN.copy()
        full[own] = summit(objective, UNKNOWN[own])
        found = moments(proximal_step(MODEL, naturals(*HERE), i, rows(Y), length))
        np.testing.assert_allclose(found[own], np.array(free(full))[own], rtol=1e-7)
        np.testing.assert_allclose(found[held], np.array(HERE)[held], rtol=1e-12)


def test_factors_moved_together_have_another_proximal_point():
    beta, length = 1.0, jnp.asarray(0.5)

    def objective(u):
        m, v, a, b = there = free(u)
        apart = normal_kl(m, v, *HERE[:2]) + gamma_kl(a, b, *HERE[2:])
        return bound(*there) - apart / beta

    joint = np.array(free(summit(objective, UNKNOWN)))
    start = naturals(*HERE)
    parallel = [proximal_step(MODEL, start, i, rows(Y), length)[i] for i in (0, 1)]
    assert np.max(np.abs(joint / moments(parallel) - 1)) > 0.1
    reached = moments(parallel)
    assert objective(np.array([reached[0], *np.log(reached[1:])])) < objective(
        np.array([joint[0], *np.log(joint[1:])])
    )


def test_families_against_scipy():
    normal, gamma = naturals(*HERE)
    other = naturals(0.3, 1.1, 4.0, 0.7)
    z = HERE[0] - PRIOR["mean"]
    np.testing.assert_allclose(NormalFamily().expectations(normal), [z, HERE[1] + z**2], rtol=1e-12)
    wanted = [special.digamma(3.0) - np.log(2.5), 3.0 / 2.5]
    np.testing.assert_allclose(GammaFamily().expectations(gamma), wanted, rtol=1e-12)
    apart = normal_kl(*HERE[:2], 0.3, 1.1)
    np.testing.assert_allclose(NormalFamily().kl(normal, other[0]), apart, rtol=1e-12)
    first: Any = stats.gamma(3.0, scale=1 / 2.5)
    second: Any = stats.gamma(4.0, scale=1 / 0.7)
    apart = integrate.quad(
        lambda t: first.pdf(t) * (first.logpdf(t) - second.logpdf(t)), 0, 30, epsabs=1e-12
    )[0]
    np.testing.assert_allclose(GammaFamily().kl(gamma, other[1]), apart, rtol=1e-9)


def test_bound_and_mean_field_update_against_the_textbook():
    np.testing.assert_allclose(MODEL.elbo(naturals(*HERE), rows(Y)), bound(*HERE), rtol=1e-12)
    expected = MODEL.expectations(naturals(*HERE))
    m, v, a, b = HERE
    mean, k, shape, _ = posterior(Y)
    wanted = naturals(mean, b / (k * a), 1, 1)[0]  # Bishop (2006), eqs. 10.26-10.30
    np.testing.assert_allclose(MODEL.target(0, expected, rows(Y)), wanted, rtol=1e-12)
    rest = np.sum((Y - m) ** 2) + PRIOR["strength"] * (m - PRIOR["mean"]) ** 2 + k * v
    wanted = [shape + 0.5, -(PRIOR["rate"] + rest / 2)]
    np.testing.assert_allclose(MODEL.target(1, expected, rows(Y)), wanted, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.1, 1.0, 50.0, np.inf])
def test_every_beta_climbs_to_coordinate_ascents_optimum(beta):
    bounds, rule = [], ProximalPoint(MODEL, beta)
    start = MODEL.start(0.0, 9.0)
    steps = 400 if beta == 0.1 else 60
    found = run.fit(rule, start, [rows(Y)] * steps, after_block=lambda s: bounds.append(s.elbo))
    assert np.all(np.diff([MODEL.elbo(start, rows(Y)), *bounds]) > -1e-12)
    mean, k, shape, rate = posterior(Y)
    # the optimum is known: E τ is exact, and with it everything else
    wanted = mean, rate / (shape * k), shape + 0.5, (shape + 0.5) * rate / shape
    np.testing.assert_allclose(moments(found.naturals), wanted, rtol=1e-9)
    np.testing.assert_allclose(found.elbo, bound(*wanted), rtol=1e-12)


def test_what_a_product_of_factors_loses_of_the_exact_posterior():
    found = run.fit(ProximalPoint(MODEL, np.inf), MODEL.start(0.0, 9.0), [rows(Y)] * 30)
    means, variances = (np.asarray(a) for a in MODEL.moments(found.naturals))
    mean, k, shape, rate = posterior(Y)
    marginal = stats.t(2 * shape, mean, np.sqrt(rate / (shape * k)))
    precision = stats.gamma(shape, scale=1 / rate)
    np.testing.assert_allclose(means, [marginal.mean(), precision.mean()], rtol=1e-9)
    lost = 1 - variances / [marginal.var(), precision.var()]
    np.testing.assert_allclose(lost, [1 / shape, 0.5 / (shape + 0.5)], rtol=1e-8)
    # the bound is KL(q ‖ posterior) below the evidence: only the dependence of the two is lost
    assert 0 < log_evidence(Y) - found.elbo < 0.05


def test_minibatches_land_at_the_optimum():
    """Stochastic variational inference: averaged targets err as the mean of all rows drawn does."""
    rng = np.random.default_rng(3)
    y = 4 + 2 * rng.normal(size=1000)
    size, draws = 20, 400
    rule = ProximalPoint(MODEL, np.inf, rows=1000, decay=1.0)
    drawn = (rows(y[rng.integers(0, 1000, size)]) for _ in range(draws))
    found = run.fit(rule, MODEL.start(0.0, 9.0), drawn)
    means, variances = (np.asarray(a) for a in MODEL.moments(found.naturals))
    mean, _, shape, rate = posterior(y)
    error = y.std() / np.sqrt(size * draws)
    scatter = np.std((y - y.mean()) ** 2) / np.sqrt(size * draws)
    assert abs(means[0] - mean) < 3 * error
    # 1/E τ is the variance of y; the first targets, made far from the optimum, add 1/draws of their own
    assert abs(1 / means[1] - rate / shape) < 3 * scatter + 2 * abs(9 - rate / shape) / draws
    np.testing.assert_allclose(variances[0], rate / (shape * 1000), rtol=0.1)


def test_weights_are_rows_and_padding_changes_nothing():
    rule, start = ProximalPoint(MODEL, 2.0), MODEL.start(0.0, 9.0)
    twice = run.fit(rule, start, [rows([1.0, 2.0, 2.0, 7.0], [1.0, 1.0, 1.0, 0.0])])
    once = run.fit(rule, start, [rows([1.0, 2.0, 5.0, 5.0], [1.0, 2.0, 0.0, 0.0])])
    for a, b in zip(jax.tree.leaves(twice), jax.tree.leaves(once), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"beta": 0.0}, "beta must be positive"),
        ({"decay": -1.0}, "decay must be 0"),
        ({"rows": 0}, "rows must be the number of rows"),
    ],
)
def test_steps_that_lead_nowhere_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        ProximalPoint(MODEL, **wrong)
