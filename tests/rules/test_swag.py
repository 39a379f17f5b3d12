"""The Gaussians of a path against plain NumPy on the whole path."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import kalvi
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch
from kalvi.rules.swag import FASWAG, SWA, SWAG, WindowAverage
from kalvi.streams import run
from tests.laws import assert_close, largest_array, same_gaussian

D, K, N = 7, 4, 500
RNG = np.random.default_rng(0)
MIX = RNG.normal(size=(D, D))
PATH = 3 + 0.05 * np.cumsum(RNG.normal(size=(N, D)), axis=0) @ MIX


def rows(x, weight=None):
    x = jnp.asarray(x)
    weight = jnp.ones(len(x)) if weight is None else jnp.asarray(weight)
    return Batch(x, jnp.zeros(len(x)), weight)


def after(rule, *batches, key=None):
    return run.fit(rule, jnp.zeros(D), batches, key=key)


def one_by_one(rule, path, *, weight=None, key=None):
    """The Gaussian after batches of one row: few programs to compile."""
    weight = np.ones(len(path)) if weight is None else weight
    batches = (rows(path[i : i + 1], weight[i : i + 1]) for i in range(len(path)))
    state = after(rule, *batches, key=key)
    return run.call(posterior, rule, state)


def posterior(rule, state):
    return rule.posterior(state)


def swag(path, rank):
    """Mean, diagonal and low-rank parts, the running means written out."""
    means = np.cumsum(path, axis=0) / np.arange(1, len(path) + 1)[:, None]
    deviations = (path - means)[-rank:]
    spread = deviations.T @ deviations / (2 * (len(deviations) - 1))
    return means[-1], path.var(axis=0) / 2, spread


@pytest.mark.parametrize("n", [N, K - 1], ids=["long", "shorter than the rank"])
def test_swag_is_that_of_the_whole_path(n):
    rule = SWAG(K)
    state = after(rule, rows(PATH[:n]))
    mean, diag, spread = swag(PATH[:n], K)
    q = rule.posterior(state)
    assert_close(rule.mean(state), mean, 1e-12)
    assert_close(q.covariance.diag, diag, 1e-12)
    assert_close(q.covariance.factor @ q.covariance.factor.T, spread, 1e-12)


def test_swag_of_rank_0_and_swa_have_the_full_variance():
    for rule in (SWAG(0), SWA(variance=True)):
        q = rule.posterior(after(rule, rows(PATH)))
        assert isinstance(q, kalvi.Diagonal)
        assert_close(q.mean, PATH.mean(axis=0), 1e-12)
        assert_close(q.var, PATH.var(axis=0), 1e-12)
    assert_close(SWA().mean(after(SWA(), rows(PATH))), PATH.mean(axis=0), 1e-12)


def test_variances_do_not_cancel():
    far = 1e8 + PATH
    q = SWAG(K).posterior(after(SWAG(K), rows(far)))
    assert_close(
        2 * q.covariance.diag, np.var(far - 1e8, axis=0), 1e-6
    )  # 1e8 · eps = 2e-8 of each row


def test_a_parameter_that_never_moved_has_the_floor():
    still = PATH.copy()
    still[:, 2] = 1.0
    q = SWAG(K).posterior(after(SWAG(K), rows(still)))
    typical = np.mean(np.delete(np.asarray(q.variance()), 2))
    assert 0 < q.variance()[2] < 1e-20 * typical


@pytest.mark.parametrize("rule", [SWAG(K), WindowAverage(SWAG(K), 10)], ids=["swag", "window"])
def test_rows_of_no_weight_change_nothing_and_blocks_are_rows(rule):
    padded, weight = np.ones((60, D)), np.zeros(60)
    padded[::2], weight[::2] = PATH[:30], 1
    whole = rule.posterior(after(rule, rows(PATH[:30])))
    split = rule.posterior(after(rule, rows(padded, weight)))
    for q in (split, one_by_one(rule, PATH[:30])):
        same_gaussian(q, whole.mean, whole.covariance.to_dense(), 1e-12)


def test_fa_swag_is_factor_analysis_of_the_iterates():
    rule, q = FASWAG(fa.RecursiveFA(), 3), None
    for n in (10, 40):  # no full block, and a rest that waits
        q = one_by_one(rule, PATH[:n])
        model = kalvi.FactorAnalysis(3).partial_fit(PATH[:n])
        same_gaussian(q, model.mean_, model.get_covariance(), 1e-9)
    weight = np.tile([1.0, 0.0], 40)
    padded = one_by_one(rule, np.repeat(PATH[:40], 2, axis=0), weight=weight)
    same_gaussian(padded, q.mean, q.covariance.to_dense(), 1e-15)


@pytest.mark.slow(reason="compiles online EM within the average and alone")
def test_fa_swag_with_a_random_start():
    rule, key = FASWAG(fa.OnlineEM(), 2, random_start=True), jr.key(1)
    q = one_by_one(rule, PATH[:40], key=key)
    start = fa.start(jnp.zeros(D), jnp.var(jnp.asarray(PATH[:16]), axis=0), 2, key=key)
    alone = run.fit(fa.OnlineEM(), start, [rows(PATH[:40])]).posterior
    same_gaussian(q, alone.mean, alone.covariance.to_dense(), 1e-9)
    with pytest.raises(ValueError, match="a random start needs a key"):
        rule.init(jnp.zeros(D))


def test_windows_are_disjoint_means():
    rule = WindowAverage(SWAG(K), 12)
    state = after(rule, rows(PATH))
    windows = PATH[: N - N % 12].reshape(-1, 12, D).mean(axis=1)
    mean, diag, spread = swag(windows, K)
    same_gaussian(rule.posterior(state), mean, np.diag(diag) + spread, 1e-11)
    assert_close(rule.mean(state), mean, 1e-12)
    assert rule.least == 24 and int(state.blocks) == 41


def test_memory_is_linear():
    d = 1000
    for rule in (SWAG(K), FASWAG(fa.RecursiveFA(block_size=8), 2, 8)):
        state = rule.init(jnp.zeros(d))
        batch = Batch(jnp.ones((1, d)), jnp.zeros(1), jnp.ones(1))
        assert largest_array(rule.update, state, batch) <= 20 * d
        assert largest_array(rule.posterior, state) <= 20 * d


def test_refused():
    with pytest.raises(ValueError, match=r"rank 0 or at least 2, .* got 1"):
        SWAG(1)
    with pytest.raises(ValueError, match="window of at least 1; got 0"):
        WindowAverage(SWA(), 0)
    for rule in (SWAG(8), FASWAG(fa.RecursiveFA(), 8)):
        with pytest.raises(ValueError, match="rank=8 exceeds the 7 parameters; choose rank ≤ 7"):
            rule.init(jnp.zeros(D))
    with pytest.raises(ValueError, match=r"SWA keeps only the mean.* SWA\(variance=True\)"):
        SWA().posterior(SWA().init(jnp.zeros(D)))
