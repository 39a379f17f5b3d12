from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from kalvi.gaussians import Dense, Diagonal, LowRankCovariance, LowRankPrecision
from tests import oracles, problems
from tests.laws import assert_close, largest_array, positive_definite, same_gaussian
from tests.tables import DIM, STRUCTURES, name

UPDATABLE = [s for s in STRUCTURES if s.updatable]


@pytest.fixture(params=STRUCTURES, ids=name, scope="module")
def known(request):
    return request.param.make(np.random.default_rng(0))


@pytest.fixture(params=UPDATABLE, ids=name, scope="module")
def updatable(request):
    return request.param.make(np.random.default_rng(0))


def block(rows=3, d=DIM, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, d)), rng.normal(size=rows), np.exp(rng.normal(size=rows))


def test_algebra(known):
    q, _, cov = known
    v = np.random.default_rng(1).normal(size=(DIM, 3))
    assert_close(q.matvec(jnp.asarray(v)), cov @ v, 1e-11)
    assert_close(q.matvec(jnp.asarray(v[:, 0])), cov @ v[:, 0], 1e-11)
    assert_close(q.solve(jnp.asarray(v)), np.linalg.solve(cov, v), 1e-11)
    assert_close(q.logdet(), np.linalg.slogdet(cov)[1], 1e-11)
    assert_close(q.variance(), np.diag(cov), 1e-12)
    assert q.dim == DIM


def test_density(known):
    q, mean, cov = known
    theta = np.random.default_rng(2).normal(size=DIM)
    wanted = stats.multivariate_normal(mean, cov).logpdf(theta)
    assert_close(q.log_prob(jnp.asarray(theta)), wanted, 1e-11)


def test_marginal(known):
    q, mean, cov = known
    x = np.random.default_rng(3).normal(size=(4, DIM))
    found_mean, found_cov = q.marginal(jnp.asarray(x))
    assert_close(found_mean, x @ mean, 1e-12)
    assert_close(found_cov, x @ cov @ x.T, 1e-11)
    assert_close(q.marginal_variance(jnp.asarray(x)), np.diag(x @ cov @ x.T), 1e-11)


def test_to_dense(known):
    q, mean, cov = known
    dense = q.to_dense()
    assert_close(dense.mean, mean, 0)
    assert_close(dense.cov, cov, 1e-12)


def test_samples_have_the_stated_moments(known):
    q, mean, cov = known
    n = 20_000
    draws = np.asarray(q.sample(jr.key(0), n))
    std = np.sqrt(np.diag(cov))
    # five standard errors: of a mean σ/√n, of a covariance √((σᵢᵢ σⱼⱼ + σᵢⱼ²)/n)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * std / np.sqrt(n))
    error = np.sqrt((np.outer(std, std) ** 2 + cov**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - cov) < 5 * error)
    assert not np.array_equal(draws[:5], q.sample(jr.key(1), 5))


def test_float32_agrees_with_float64(known):
    q = known.q
    single = jax.tree.map(lambda a: a.astype(jnp.float32), q)
    x = jnp.asarray(block()[0])
    half = x.astype(jnp.float32)
    for found, wanted in [
        (single.matvec(half[0]), q.matvec(x[0])),
        (single.solve(half[0]), q.solve(x[0])),
        (single.logdet(), q.logdet()),
        (single.log_prob(half[0]), q.log_prob(x[0])),
        (single.marginal(half)[1], q.marginal(x)[1]),
    ]:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)  # condition e⁴ · 6e-8 · d


# the three verbs of a stream ----------------------------------------------------------------------


def test_absorb_of_dense_is_exact():
    for rows in (1, 3, 9):
        q, mean, cov = UPDATABLE[0].make(np.random.default_rng(0))
        x, c, gamma = block(rows)
        absorbed = q.absorb(*(jnp.asarray(a) for a in (x, c, gamma)))
        same_gaussian(absorbed, *oracles.add_rows(mean, cov, x, c, gamma), rtol=1e-10)


def test_absorb_moves_the_mean_exactly_and_keeps_the_precisions_diagonal(updatable):
    q, mean, cov = updatable
    x, c, gamma = block()
    absorbed = q.absorb(*(jnp.asarray(a) for a in (x, c, gamma)))
    new_mean, new_cov = oracles.add_rows(mean, cov, x, c, gamma)
    assert_close(absorbed.mean, new_mean, 1e-11)
    target = np.diag(np.linalg.inv(new_cov))
    assert_close(absorbed.precision.diagonal(), target, 1e-10)


def groups(seed=6):
    """Rows of three observations with two predictors each: a singular root, a regular one, none."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, 2, 2))
    roots[0], roots[2] = np.array([[0.5, 0], [-0.5, 0]]), 0  # softmax curvature, and no curvature
    whole = np.zeros((6, 6))
    for i, root in enumerate(roots):
        whole[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = root @ root.T
    return rng.normal(size=(6, DIM)), rng.normal(size=6), roots, whole


def test_curvature_matrices_of_groups_of_rows(updatable):
    q, mean, cov = updatable
    x, c, roots, whole = groups()
    absorbed = q.absorb(*(jnp.asarray(a) for a in (x, c, roots)))
    precision = np.linalg.inv(cov) + x.T @ whole @ x
    assert_close(absorbed.mean, mean + cov @ x.T @ c, 1e-11)
    assert_close(absorbed.precision.diagonal(), np.diag(precision), 1e-10)
    if isinstance(q, Dense):
        assert_close(absorbed.cov, np.linalg.inv(precision), 1e-11)
    none = q.absorb(jnp.asarray(x), jnp.zeros(6), jnp.zeros((3, 2, 2)))
    same_gaussian(none, mean, cov, rtol=1e-11)


@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
def test_a_faded_gaussian_is_a_product_of_powers(structure):
    q, mean, cov = structure.make(np.random.default_rng(0))
    anchor, prior = anchor_of(structure)
    found = q.fade(jnp.asarray(0.7), anchor, jnp.asarray(0.4))
    same_gaussian(found, *oracles.product_of_powers((mean, cov), 0.7, prior, 0.4), rtol=1e-11)
    # of nothing kept but a share that is lost in rounding, the prior is what is left
    last = q.fade(jnp.asarray(1e-16), anchor, jnp.asarray(1.0))
    same_gaussian(last, *prior, rtol=1e-11)


@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
def test_a_relaxed_gaussian_mixes_covariances(structure):
    q, mean, cov = structure.make(np.random.default_rng(0))
    anchor, (mean0, cov0) = anchor_of(structure)
    for keep in (0.8, 0.0, 1.0):
        found = q.relax(jnp.asarray(keep), anchor)
        wanted = keep**2 * cov + (1 - keep**2) * cov0
        assert_close(found.mean, mean0 + keep * (mean - mean0), 1e-12)
        assert_close(found.variance(), np.diag(wanted), 1e-10)
        if structure.closed:
            assert_close(found.covariance.to_dense(), wanted, 1e-10)


@pytest.mark.parametrize("structure", UPDATABLE, ids=name)
def test_parameters_relax_each_at_its_own_rate(structure):
    q, mean, cov = structure.make(np.random.default_rng(0))
    keep, var = np.linspace(0, 1, DIM), np.exp(np.arange(DIM) / 2)
    found = q.relax(jnp.asarray(keep), Diagonal(np.ones(DIM), var))
    wanted = np.outer(keep, keep) * cov + np.diag((1 - keep**2) * var)
    assert_close(found.mean, 1 + keep * (mean - 1), 1e-12)
    assert_close(found.variance(), np.diag(wanted), 1e-10)
    if structure.closed:
        assert_close(found.covariance.to_dense(), wanted, 1e-10)


def anchor_of(structure):
    """What a drift keeps of another Gaussian of the structure, and its mean and covariance."""
    anchor = structure.make(np.random.default_rng(1)).q.anchor()
    return anchor, (np.asarray(anchor.mean), np.asarray(anchor.covariance.to_dense()))


def test_low_rank_absorb_never_lowers_diag():
    q = LowRankPrecision(np.zeros(DIM), np.zeros((DIM, 2)), np.exp(np.arange(DIM)))
    for seed in range(4):
        x, c, gamma = (jnp.asarray(a) for a in block(seed=seed))
        new = q.absorb(x, c, gamma)
        assert np.all(np.asarray(new.precision.diag) >= np.asarray(q.precision.diag))
        assert np.any(np.asarray(new.precision.diag) > np.asarray(q.precision.diag))
        q = new


def test_low_rank_absorb_is_exact_while_the_rank_suffices():
    diag = np.exp(np.random.default_rng(4).normal(size=DIM))
    q = LowRankPrecision(np.zeros(DIM), np.zeros((DIM, 3)), diag)
    x, c, gamma = block(3)
    absorbed = q.absorb(*(jnp.asarray(a) for a in (x, c, gamma)))
    wanted = oracles.add_rows(np.zeros(DIM), np.diag(1 / diag), x, c, gamma)
    same_gaussian(absorbed, *wanted, rtol=1e-10)


def test_low_rank_absorb_ignores_rotations_of_the_factor():
    rng = np.random.default_rng(5)
    factor, diag = rng.normal(size=(DIM, 2)), np.exp(rng.normal(size=DIM))
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    x, c, gamma = (jnp.asarray(a) for a in block())
    one = LowRankPrecision(np.ones(DIM), factor, diag).absorb(x, c, gamma)
    other = LowRankPrecision(np.ones(DIM), factor @ turn, diag).absorb(x, c, gamma)
    same_gaussian(one, other.mean, other.covariance.to_dense(), rtol=1e-10)


def test_rows_of_no_curvature_change_nothing(updatable):
    q, mean, cov = updatable
    x = block()[0]
    same_gaussian(q.absorb(jnp.asarray(x), jnp.zeros(3), jnp.zeros(3)), mean, cov, rtol=1e-11)


def test_single_rows_in_float32_stay_positive_with_a_loose_prior_and_little_noise():
    # covariance subtraction gives negative variances here
    rng = np.random.default_rng(6)
    q = Dense(np.zeros(5, np.float32), 1e6 * np.eye(5, dtype=np.float32))
    absorb = jax.jit(lambda q, x, c, g: q.absorb(x, c, g))
    exact = np.eye(5) * 1e-6
    for _ in range(100):
        x = rng.normal(size=(1, 5)).astype(np.float32)
        q = absorb(q, jnp.asarray(x), jnp.zeros(1, jnp.float32), jnp.full(1, 1e4, jnp.float32))
        exact += 1e4 * x.astype(float).T @ x.astype(float)
    positive_definite(q)
    # the first rows shrink the root from 1e3 to 1e-2 by a difference: 6e-8 · 1e3/1e-2 of a deviation
    np.testing.assert_allclose(q.variance(), np.diag(np.linalg.inv(exact)), rtol=2e-2)


def test_low_rank_paths_never_form_a_square_matrix():
    d, p, b = 200, 3, 4
    rng = np.random.default_rng(7)
    x, v = jnp.asarray(rng.normal(size=(b, d))), jnp.ones(d)
    limit = d * d // 4
    for make in (LowRankCovariance, LowRankPrecision):
        q = make(np.zeros(d), rng.normal(size=(d, p)), np.ones(d))
        for path in (
            lambda q: q.matvec(v),
            lambda q: q.solve(v),
            lambda q: q.logdet(),
            lambda q: q.variance(),
            lambda q: q.log_prob(v),
            lambda q: q.marginal(x),
            lambda q: q.marginal_variance(x),
            lambda q: q.sample(jr.key(0), b),
        ):
            assert largest_array(path, q) < limit
    for path in (
        lambda q: q.absorb(x, jnp.ones(b), jnp.ones(b)),
        lambda q: q.fade(jnp.asarray(0.9), q.anchor(), jnp.asarray(0.1)),
        lambda q: q.relax(jnp.asarray(0.9), q.anchor()),
    ):
        assert largest_array(path, q) < limit
    assert largest_array(lambda q: q.to_dense().root, q) >= d * d  # the law can fail


# construction --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Dense(np.zeros(3), np.eye(2)),
            r"Dense needs a mean of shape \(d,\) and a cov of shape \(d, d\); got \(3,\), \(2, 2\)\.",
        ),
        (lambda: Dense(np.zeros((2, 1)), np.eye(2)), r"Dense needs .* got \(2, 1\), \(2, 2\)\."),
        (
            lambda: Dense(np.zeros(2), [[1.0, 0.5], [0.2, 1.0]]),
            r"cov must be symmetric; it differs from its transpose by 0\.3\.",
        ),
        (
            lambda: Dense(np.zeros(2), [[1.0, 2.0], [2.0, 1.0]]),
            "cov must be positive definite and finite; its Cholesky factor does not exist",
        ),
        (lambda: Dense(np.zeros(2), np.diag([1.0, np.nan])), "cov must be positive definite"),
        (
            lambda: Diagonal(np.zeros(3), np.ones(2)),
            r"Diagonal needs a mean and a var of the same shape \(d,\); got \(3,\), \(2,\)\.",
        ),
        (
            lambda: Diagonal(np.zeros(2), [1.0, -2.0]),
            r"var must be positive and finite; entry 1 is -2\.0\.",
        ),
        (lambda: Diagonal(np.zeros(2), [np.inf, 1.0]), "entry 0 is inf"),
        (
            lambda: LowRankCovariance(np.zeros(3), np.zeros(3), np.ones(3)),
            r"LowRankCovariance needs a mean of shape \(d,\), a factor of shape \(d, p\) and a diag "
            r"of shape \(d,\); got \(3,\), \(3,\), \(3,\)\.",
        ),
        (
            lambda: LowRankPrecision(np.zeros(3), np.zeros((2, 1)), np.ones(3)),
            r"LowRankPrecision needs .* got \(3,\), \(2, 1\), \(3,\)\.",
        ),
        (
            lambda: LowRankPrecision(np.zeros(2), np.zeros((2, 1)), [1.0, 0.0]),
            r"diag must be positive and finite; entry 1 is 0\.0\.",
        ),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_dtypes_are_unified():
    assert Diagonal([0, 1], [1, 2]).mean.dtype == np.float64
    assert Diagonal(np.zeros(2, np.float32), np.ones(2, np.float32)).var.dtype == np.float32
    mixed = LowRankPrecision(np.zeros(2, np.float32), np.zeros((2, 1)), np.ones(2))
    assert mixed.mean.dtype == mixed.precision.factor.dtype == np.float64


def test_construction_under_tracing_makes_no_checks():
    found = jax.jit(lambda var: Diagonal(jnp.zeros(2), var).logdet())(jnp.asarray([2.0, 3.0]))
    assert_close(found, np.log(6.0), 1e-14)
    cov = problems.spd(np.random.default_rng(8), 3)
    found = jax.jit(lambda cov: Dense(jnp.zeros(3), cov).logdet())(jnp.asarray(cov))
    assert_close(found, np.linalg.slogdet(cov)[1], 1e-12)


def test_from_root_takes_any_square_root():
    root = np.random.default_rng(9).normal(size=(3, 3))
    assert_close(Dense.from_root(jnp.zeros(3), jnp.asarray(root)).cov, root @ root.T, 1e-14)


def test_strong_factors_do_not_cancel_in_float32():
    # W²/ψ = 1e9: 1/ψ − U Uᵀ in float32 would leave nothing of the variance
    factor, diag = 30 * np.eye(4, 2), np.full(4, 1e-6)
    q = LowRankPrecision(*(a.astype(np.float32) for a in (np.zeros(4), factor, diag)))
    exact = np.diag(np.linalg.inv(factor @ factor.T + np.diag(diag)))
    np.testing.assert_allclose(q.variance(), exact, rtol=1e-5)
    draws = np.asarray(q.sample(jr.key(0), 4000))
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(exact), rtol=0.06)  # 5 standard errors
    # half of the variance is the anchor's, 1e-6
    wider = q.relax(jnp.float32(0.5**0.5), Diagonal(*np.float32([[0] * 4, [2e-6] * 4])))
    cov = np.linalg.inv(factor @ factor.T + np.diag(diag)) / 2 + 1e-6 * np.eye(4)
    expected = np.linalg.inv(cov)
    np.testing.assert_allclose(wider.precision.to_dense(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strength", [0.3, 3.0, 1e3, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_covariances_of_predictors_keep_their_digits_whatever_the_factors(dtype, strength):
    # the first row is along the factor: its variance as a difference cancels
    factor = np.array([[strength], [2 * strength], [0]], dtype)
    diag, x = np.array([1.0, 0.5, 2.0]), np.array([[1.0, 4, 0], [1, 4, 0.5], [2, -1, 0], [0, 0, 3]])
    q = LowRankPrecision(np.zeros(3, dtype), factor, diag.astype(dtype))
    w, wide, rows = (np.vectorize(Fraction, otypes=[object])(a) for a in (factor, np.diag(diag), x))
    a, b, c = w @ w.T + wide
    cofactors = np.array([np.cross(b, c), np.cross(c, a), np.cross(a, b)])
    exact = (rows @ cofactors.T @ rows.T / (a @ cofactors[0])).astype(float)
    _, found = q.marginal(jnp.asarray(x, dtype))
    std = np.sqrt(np.diag(exact))
    off = np.abs(np.asarray(found, np.float64) - exact) / (std[:, None] * std[None, :])
    assert off.max() < 40 * np.finfo(dtype).eps


def test_marginal_variances_of_many_rows_need_no_square_of_them():
    n = 3000
    q = LowRankPrecision(np.zeros(3), np.ones((3, 1)), np.ones(3))
    assert largest_array(lambda x: q.marginal_variance(x), jnp.ones((n, 3))) < n * n // 100


def test_no_factors_stay_no_factors():
    q = LowRankPrecision(np.zeros(3), np.zeros((3, 0)), np.ones(3))
    after = q.absorb(jnp.ones((2, 3)), jnp.ones(2), jnp.ones(2))
    assert after.precision.factor.shape == (3, 0)
    np.testing.assert_allclose(after.precision.diag, 3.0)
