"""Online EM with a warm-up, gradient ascent, orthogonal starts, random models: against plain NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from kalvi.rules import factor_analysis as fa
from kalvi.rules.factor_analysis import factor_model, gradient
from tests import oracles
from tests.laws import assert_close
from tests.rules.test_factor_analysis import D, N, P, advance, drawn, parts, rows, stream
from tests.rules.test_factor_analysis import random_start as any_start

gradients = eqx.filter_jit(gradient.gradients)


def centred(x):
    """Rows from the second on, about the mean so far and as wide as about the true one."""
    t = np.arange(1, len(x) + 1)[:, None]
    away = x - np.cumsum(x, axis=0) / t
    return (np.sqrt(t / np.maximum(t - 1, 1)) * away)[1:]


def hidden_of(factor, diag, d):
    """Lines 7-9 of both algorithms."""
    c = (factor / diag[:, None]).T
    sigma = np.linalg.inv(np.eye(P) + c @ factor)
    return sigma, sigma @ c @ d


def algorithm_2(d_rows, factor, diag, warm_up=0):
    """Online EM as printed, F and ψ held for the first rows."""
    a, b, d2 = np.zeros((D, P)), np.zeros((P, P)), np.zeros(D)
    for t, d in enumerate(d_rows, 1):
        sigma, m = hidden_of(factor, diag, d)
        b = b + (np.outer(m, m) - b) / t
        h = sigma + b
        a = a + (np.outer(d, m) - a) / t
        d2 = d2 + (d**2 - d2) / t
        if t >= warm_up:
            factor = a @ np.linalg.inv(h)
            diag = d2 + np.sum((factor @ h) * factor - 2 * factor * a, axis=1)
    return factor, diag


def algorithm_1(d_rows, factor, diag, rates, units=1.0):
    """Gradient ascent as printed (eqs 4.24-4.26), in given units."""
    factor, beta = factor / np.sqrt(units)[:, None], np.log(diag / units)
    for rate, d in zip(rates, d_rows / np.sqrt(units), strict=True):
        psi = np.exp(beta)
        sigma, m = hidden_of(factor, psi, d)
        both = factor @ (sigma + np.outer(m, m))
        by_factor = (np.outer(d, m) - both) / psi[:, None]
        by_psi = (d**2 - 2 * d * (factor @ m) + np.sum(both * factor, axis=1)) / (2 * psi**2)
        by_psi = by_psi - 1 / (2 * psi)
        factor, beta = factor + rate * by_factor, beta + rate * psi * by_psi
    return factor * np.sqrt(units)[:, None], np.exp(beta) * units


# online EM --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_up", [0, 9])
def test_incremental_em_is_algorithm_2(warm_up):
    x, prior = drawn(offset=3.0), any_start()
    factor, diag = algorithm_2(centred(x), *parts(prior), warm_up - 1)
    found = stream(fa.OnlineEM.incremental(warm_up), prior, x).posterior
    assert_close(found.covariance.factor, factor, 1e-9)
    assert_close(found.covariance.diag, diag, 1e-9)
    assert_close(found.mean, x.mean(axis=0), 1e-13)


def test_algorithm_2_as_printed_begins_with_zero_over_zero():
    x, prior = drawn(), any_start()
    printed = x - np.cumsum(x, axis=0) / np.arange(1, N + 1)[:, None]
    assert np.all(algorithm_2(printed[:1], *parts(prior))[1] == 0)
    with np.errstate(all="ignore"):
        assert np.all(np.isnan(algorithm_2(printed[:2], *parts(prior))[1]))
    first = stream(fa.OnlineEM.incremental(0), prior, x, np.arange(N) < 2).posterior
    factor, diag = algorithm_2(centred(x[:2]), *parts(prior))
    assert_close(first.covariance.factor, factor, 1e-10)
    assert_close(first.covariance.diag, diag, 1e-8)  # a difference of nearly equal numbers


@pytest.mark.parametrize("present_spread", [False, True])
def test_the_first_maximisation_is_one_of_batch_em(present_spread):
    """Also of the rows so far, if they are fewer than the warm-up."""
    x, prior = drawn(offset=3.0), any_start()
    rule = fa.OnlineEM(1.0, np.inf, 1.0, 0.0, float(N), present_spread)
    for n in (N, N - 5):
        factor, diag = oracles.factor_analysis_em(np.cov(x[:n].T), *parts(prior), 1)
        state = stream(rule, prior, x, np.arange(N) < n)
        assert_close(state.posterior.covariance.factor, factor, 1e-12)
        assert_close(state.posterior.covariance.diag, diag, 1e-12)
        moved = bool(jnp.any(state.present.factor != prior.covariance.factor))
        assert moved == (n == N)


def test_forgetting_weighs_rows_by_their_numbers():
    x, prior = drawn(offset=3.0), any_start()
    state = stream(fa.OnlineEM.forgetting(4), prior, x)
    number = np.arange(1, N)
    assert_close(state.statistics.squares, number @ centred(x) ** 2 / number.sum(), 1e-12)
    factor = np.asarray(state.statistics.cross) @ np.linalg.inv(state.statistics.hidden)
    assert_close(state.posterior.covariance.factor, factor, 1e-10)


def test_units_make_no_difference_to_online_em():
    x, unit = drawn(), 10.0 ** np.linspace(-5, 5, D)
    found = []
    for table in (x, x * unit):
        variance = fa.feature_variances(rows(table))
        prior = fa.orthogonal_start(jnp.zeros(D), variance, P, key=jr.key(0))
        q = stream(fa.OnlineEM.forgetting(8), prior, table).posterior
        found.append(np.asarray(q.covariance.to_dense()))
    assert_close(found[1] / np.outer(unit, unit), found[0], 1e-8)


# gradient ascent --------------------------------------------------------------------------------------


def test_gradients_are_those_of_the_log_density():
    x, (factor, diag) = jnp.asarray(drawn(n=3)), map(jnp.asarray, parts(any_start()))

    def density(factor, beta):
        cov = factor @ factor.T + jnp.diag(jnp.exp(beta))
        return -(jnp.sum(x * jnp.linalg.solve(cov, x.T).T) + 3 * jnp.linalg.slogdet(cov)[1]) / 2

    expected = jax.grad(density, (0, 1))(factor, jnp.log(diag))
    for found, wanted in zip(gradients(factor, diag, x), expected, strict=True):
        assert_close(found, wanted, 1e-10)


@pytest.mark.parametrize("scaled", [False, True])
def test_sga_is_algorithm_1(scaled):
    x, prior, warm_up = drawn(offset=3.0), any_start(), 5
    rule = fa.SGA(0.02, 0.3, warm_up, np.inf, scaled)
    rates = 0.02 / (1 + 0.3 * np.arange(1, N)) * (np.arange(2, N + 1) > warm_up)
    units = np.asarray(prior.variance()) if scaled else np.ones(D)
    factor, diag = algorithm_1(centred(x), *parts(prior), rates, units)
    found = stream(rule, prior, x).posterior
    assert_close(found.covariance.factor, factor, 1e-10)
    assert_close(found.covariance.diag, diag, 1e-10)


def test_any_optax_step():
    """Adam on the gradients of the dense log density; the rows of the warm-up leave its memory alone."""
    x, prior, adam = drawn(offset=3.0), any_start(), optax.adam(0.02)

    @jax.jit
    def step(place, memory, d):
        def loss(place):
            factor, log_diag = place
            cov = factor @ factor.T + jnp.diag(jnp.exp(log_diag))
            return (d @ jnp.linalg.solve(cov, d) + jnp.linalg.slogdet(cov)[1]) / 2

        moves, memory = adam.update(jax.grad(loss)(place), memory, place)
        return optax.apply_updates(place, moves), memory

    factor, diag = parts(prior)
    place = jnp.asarray(factor), jnp.log(diag)
    memory = adam.init(place)
    for number, d in enumerate(centred(x), 2):
        if number > 5:
            place, memory = step(place, memory, jnp.asarray(d))
    rule = fa.SGA(warm_up=5, longest=np.inf, scaled=False, optimiser=adam)
    found = stream(rule, prior, x).posterior.covariance
    assert_close(found.factor, place[0], 1e-9)
    assert_close(found.diag, np.exp(place[1]), 1e-9)


def test_one_row_moves_sga_no_further_than_its_bound():
    prior, x = any_start(), drawn(n=4)
    x[3] = 1e6 * x[3]
    rule = fa.SGA(0.01, 0.0, 0.0, 0.1)
    state = advance(rule, rule.init(prior), rows(x, [1, 1, 1, 0]))
    before, after = state.posterior, advance(rule, state, rows(x, [0, 0, 0, 1])).posterior
    moved = np.linalg.norm(after.covariance.factor - before.covariance.factor, axis=1)
    assert_close(moved, 0.1 * np.sqrt(before.variance()), 1e-10)
    assert_close(after.covariance.diag, before.covariance.diag * np.exp(0.1), 1e-10)


def test_sga_refuses_a_start_it_could_not_leave():
    with pytest.raises(ValueError, match=r"SGA needs a start whose factor has no empty column"):
        fa.SGA().init(fa.start(jnp.zeros(D), jnp.ones(D), P))


# starts and models ------------------------------------------------------------------------------------


def test_an_orthogonal_start():
    q = fa.orthogonal_start(jnp.zeros(D), jnp.ones(D), P, key=jr.key(0), share=1.0)
    factor, diag = parts(q)
    assert_close(factor.T @ factor, np.eye(P), 1e-12)
    assert_close(diag, np.ones(D), 0)
    variance = np.arange(1.0, D + 1)
    scaled = fa.orthogonal_start(jnp.zeros(D), jnp.asarray(variance), P, key=jr.key(0))
    assert_close(scaled.covariance.factor, np.sqrt(variance)[:, None] * factor / 2, 1e-12)
    assert_close(scaled.covariance.diag, variance, 0)
    assert (
        factor_model.random_orthonormal(4, 2, key=jr.key(0), dtype=jnp.float32).dtype == np.float32
    )


def test_random_models_have_the_stated_law():
    dim, rank = 400, 5
    q = fa.random_factor_model(dim, rank, spectrum=(7.0, 7.0), key=jr.key(1))
    factor, diag = parts(q)
    assert_close(factor.T @ factor, 7 * np.eye(rank), 1e-10)
    assert diag.min() > 0 and diag.max() <= 7
    # standard errors of a mean over 400: 0.05, 0.12 (half of 7 is 3.5) and 0.07
    assert abs(q.mean.mean()) < 0.2 and abs(diag.mean() - 3.5) < 0.4 and abs(q.mean.var() - 1) < 0.3
    wide = fa.random_factor_model(dim, rank, spectrum=(1.0, 1000.0), key=jr.key(1))
    values = np.linalg.svd(wide.covariance.factor, compute_uv=False) ** 2
    # the "spectrum" scales the rows: eigenvalues keep to its middle, far from a ratio of 1000
    assert np.all(np.abs(values - 500) < 100)
    assert 900 < np.max(wide.covariance.diag) <= 1000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 5}, "needs 1 ≤ rank ≤ dim; got rank=5, dim=4"),
        ({"spectrum": (2.0, 1.0)}, r"0 ≤ a ≤ b and b > 0; got \(2.0, 1.0\)"),
        ({"spectrum": (0.0, 0.0)}, r"0 ≤ a ≤ b and b > 0; got \(0.0, 0.0\)"),
    ],
)
def test_models_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        fa.random_factor_model(4, **({"rank": 2, "key": jr.key(0)} | settings))
