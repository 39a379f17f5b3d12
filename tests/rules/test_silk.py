"""Statistics, bound and updates of smooth binary factorisation against dense sums and samples."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from kalvi.rules import silk
from kalvi.rules.silk.moments import unpack_triangles
from kalvi.rules.silk.observed import strength
from kalvi.rules.silk.rotations import rotate_to_priors
from kalvi.streams import run
from papers.silk_priors import gaussian, smoothing
from tests.laws import assert_close
from tests.rules import silk_dense as dense
from tests.rules.silk_dense import FAMILIES, K, N, some_silk

SOLVERS = [silk.Exact(), silk.Jacobi(), silk.Jacobi(None)]
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def test_strength_near_zero_and_far():
    """tanh(Γ/2)/(2Γ), by its series where Γ is small."""
    gamma = np.concatenate([[0.0, 1e-9], np.geomspace(1e-5, 700, 200)])
    x = gamma / 2
    rest = np.where(gamma < 1e-2, 1 - x**2 / 3 + 2 * x**4 / 15, np.tanh(x) / np.where(x == 0, 1, x))
    square = jnp.asarray(gamma**2)
    assert_close(strength(square, jnp.asarray(gamma), jnp.exp(-gamma)), rest / 4, 2e-13)
    single = strength(*(jnp.asarray(a, "float32") for a in (gamma**2, gamma, np.exp(-gamma))))
    assert_close(single, rest / 4, 1e-6)


def all_statistics(model, observed):
    back = model.transpose()
    there = [silk.statistics(model, one) for one in observed]
    return there, [silk.statistics(back, one.transpose()) for one in observed]


@pytest.mark.parametrize("family", [silk.MeanField, silk.Coupled], ids=["factorised", "coupled"])
def test_statistics_entry_by_entry(family, monkeypatch):
    """Of tables and lists, weighted or not, of rows and of columns, in several blocks."""
    for module in ("table", "entries"):  # modules: the package has a function named like one
        monkeypatch.setattr(import_module(f"kalvi.rules.silk.{module}"), "BLOCK", 16)
    model, weighted = some_silk(family), dense.data()
    plain = weighted.unweighted()
    cases = [weighted, plain, weighted, plain]
    observed = [weighted.table(), plain.table(False), weighted.list(), plain.list(False)]
    rows, cols = run.call(all_statistics, model, observed)
    for found, case in zip(rows, cases, strict=True):
        same_statistics(found, dense.statistics(model, case))
    for found, case in zip(cols, cases, strict=True):
        same_statistics(found, dense.statistics(model.transpose(), case.transpose()))


def same_statistics(found, expected):
    pull, blocks, loss = expected
    assert_close(found.pull, pull, 1e-12)
    assert_close(unpack_triangles(found.curvature), blocks, 1e-12)
    assert_close(found.loss, loss, 1e-12)


def test_rows_without_entries_say_nothing():
    model, some = some_silk(silk.Chains), dense.data()
    some.seen[3], some.seen[:, 5] = False, False
    for one in run.call(all_statistics, model, [some.table(), some.list()])[0]:
        assert not np.any(one.pull[3]) and not np.any(one.curvature[3]) and one.loss[3] == 0
        same_statistics(one, dense.statistics(model, some))


def samples(side, rng, n):
    """Draws of the factors of a side, and of log p − log q."""
    mean, cov = np.ravel(side.posterior.mean), dense.posterior_cov(side.posterior)
    centre = np.tile(side.prior.mean, len(side.posterior.mean))
    draws = rng.multivariate_normal(mean, cov, size=n)
    p = stats.multivariate_normal(centre, dense.prior_cov(side.prior)).logpdf(draws)
    q = stats.multivariate_normal(mean, cov).logpdf(draws)
    return draws.reshape(n, -1, K), p - q


@families
def test_the_bound_is_what_samples_say(family):
    """E [log p(x, y, U, A) − log q], y Pólya–Gamma, and no more than E log p(x | U, A) − KL."""
    model, some, rng = some_silk(family, seed=3), dense.data(1), np.random.default_rng(0)
    (u, of_u), (a, of_a) = (samples(side, rng, 20_000) for side in (model.rows, model.cols))
    psi = np.einsum("srk,sck->src", u, a)
    gamma = np.sqrt(dense.logits(model)[1])
    divergence = np.log(np.cosh(gamma / 2)) - gamma / 4 * np.tanh(gamma / 2)
    terms = (some.x - 0.5) * psi - dense.strength(gamma) * psi**2 / 2 - np.log(2) - divergence
    draws = np.sum(some.share * terms, axis=(1, 2)) + of_u + of_a
    found = float(run.call(silk.elbo, model, some.table()))
    assert abs(found - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))
    assert_close(found, dense.elbo(model, some), 1e-11)
    exact = np.sum(some.share * special.log_expit((2 * some.x - 1) * psi), axis=(1, 2))
    assert found < np.mean(exact + of_u + of_a)


def updated(model, observed):
    found = silk.statistics(model, observed)
    return [silk.update_rows(model, found, solver).rows.posterior for solver in SOLVERS]


@families
def test_updates_are_dense_optima(family):
    """The mean Λ⁻¹b or a Jacobi step towards it, and the covariance that the family allows."""
    model, some = some_silk(family, seed=5), dense.data(2)
    exact, damped, searched = run.call(updated, model, some.table())
    whole, b = dense.system(model, some)
    assert_close(exact.mean.ravel(), np.linalg.solve(whole, b), 1e-11)
    inverse = dense_inverse(family, whole)
    for found in (exact, damped, searched):
        assert_close(dense.posterior_cov(found), inverse, 1e-11)
        assert_close(found.log_precision, -np.linalg.slogdet(inverse)[1], 1e-11)
        same = dense.posterior(family, np.asarray(found.mean), inverse)
        assert_close(found.step_var, same.step_var, 1e-11)
    before, parts = np.ravel(model.rows.posterior.mean), whole.reshape(N, K, N, K)
    own = dense.block_diagonal(np.array([parts[r, :, r] for r in range(N)]))
    way = np.linalg.solve(own, b - (whole - own) @ before) - before
    assert_close(damped.mean.ravel(), before + 2 / 3 * way, 1e-11)
    length = way @ (b - whole @ before) / (way @ whole @ way)
    assert_close(searched.mean.ravel(), before + length * way, 1e-11)


def dense_inverse(family, whole):
    """The covariance of the family closest in KL(q ‖ p) to the inverse of Λ."""
    if family is silk.Coupled:
        return np.linalg.inv(whole)
    if family is silk.MeanField:
        return np.diag(1 / np.diag(whole))
    factor = np.tile(np.arange(K), N)
    return np.linalg.inv(whole * (factor[:, None] == factor[None]))


def bounds(model, observed):
    """The bound, and what it is after every kind of update."""
    found, rows, cols = silk.statistics(model, observed), model.rows, model.cols
    after = [silk.update_rows(model, found, solver) for solver in SOLVERS]
    rules = gaussian, smoothing, silk.with_best_prior
    after += [silk.Silk(rule(rows), cols) for rule in rules]
    if rows.posterior.rotates:
        free = rotate_to_priors(model, learns=True)
        after += [rotate_to_priors(model, learns=False)]
        after += [silk.Silk(gaussian(free.rows), gaussian(free.cols))]
    after += [silk.SILK().sweep(model, observed)[0]]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), model, *after)
    return jax.lax.map(lambda one: silk.elbo(one, observed), stacked)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            silk.MeanField, marks=pytest.mark.slow(reason="compiles every update, as the others do")
        ),
        silk.Chains,
        silk.Coupled,
    ],
)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    rates=st.sampled_from([(-9.0, -6.0), (-3.0, 1.0), (3.0, 6.0)]),
    seen=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_no_update_lowers_the_bound(family, seed, rates, seen):
    model = some_silk(family, seed, rates=rates)
    before, *after = np.asarray(run.call(bounds, model, dense.data(seed, seen).table()))
    assert min(after) >= before - 1e-11 * (1 + abs(before)), np.array(after) - before
