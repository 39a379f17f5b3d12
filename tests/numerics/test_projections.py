import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics import linalg, projections
from kalvi.numerics.projections import EM, Eigen, ProjectionTarget
from tests import oracles
from tests.laws import assert_close


def target(factor, diag, x, weight=None, keep=None, dtype=np.float64):
    weight = np.ones(len(x)) if weight is None else weight
    w, psi, x, scale = (jnp.asarray(a, dtype) for a in (factor, diag, x, np.sqrt(weight)))
    keep = None if keep is None else jnp.asarray(keep, dtype)
    return ProjectionTarget(w, psi, x, scale, projections.gram(w, psi, x), keep)


def drawn(seed=0, d=9, p=3, b=4, spread=1.0):
    rng = np.random.default_rng(seed)
    factor, x = rng.normal(size=(d, p)), rng.normal(size=(b, d))
    return factor, np.exp(spread * rng.normal(size=d)), x, np.exp(rng.normal(size=b))


def whole(factor, diag, x, weight, keep=1.0):
    return keep * (factor @ factor.T + np.diag(diag)) + x.T @ np.diag(weight) @ x


def projected(projection):
    """The projection, compiled."""
    return jax.jit(lambda problem: projection(problem))


def divergence(s, factor, diag):
    """KL(N(0, S) ‖ N(0, F Fᵀ + diag))."""
    model = np.asarray(factor) @ np.asarray(factor).T + np.diag(np.asarray(diag))
    ratio = np.linalg.solve(model, s)
    return (np.trace(ratio) - len(s) - np.linalg.slogdet(ratio)[1]) / 2


@pytest.fixture(params=[False, True], ids=["one chunk", "chunks"])
def chunks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(linalg, "CHUNK_NUMBERS", 0)
        monkeypatch.setattr(linalg, "CHUNK_ROWS", 4)  # 9 rows: the last chunk reaches back


@pytest.mark.parametrize("keep", [None, 0.7])
@pytest.mark.parametrize("loops", [1, 3])
def test_em_is_the_papers_algorithm_1(chunks, loops, keep):
    drawing = drawn()
    factor, diag = EM(loops)(target(*drawing, keep))
    alpha = 1.0 if keep is None else keep
    expected = oracles.factor_analysis_em(whole(*drawing, alpha), *drawing[:2], loops)
    assert_close(factor, expected[0], 1e-12)
    assert_close(diag, expected[1], 1e-12)


@pytest.mark.parametrize("keep", [None, 0.7])
def test_eigen_is_optimal_for_its_diagonal_and_polish_is_em(chunks, keep):
    drawing, p = drawn(1), 3
    alpha = 1.0 if keep is None else keep
    s, half = whole(*drawing, alpha), np.sqrt(alpha * drawing[1])
    # for a fixed diag the leading eigenvectors of Ψ^{-1/2} S Ψ^{-1/2}, less their unit noise, are best
    values, vectors = np.linalg.eigh(s / np.outer(half, half))
    best = half[:, None] * vectors[:, -p:] * np.sqrt(values[-p:] - 1)
    start = best, np.diag(s) - np.sum(best**2, axis=1)
    for polish in (0, 2):
        factor, diag = Eigen(polish, shrink=False)(target(*drawing, keep))
        expected = oracles.factor_analysis_em(s, *start, polish)
        assert_close(factor @ factor.T, expected[0] @ expected[0].T, 1e-11)
        assert_close(diag, expected[1], 1e-11)


def test_shrinking_is_optimal_for_a_multiple_of_the_diagonal(chunks):
    # S ≈ W Wᵀ + σ² Ψ₀ over W and σ²: probabilistic PCA of Ψ₀^{-1/2} S Ψ₀^{-1/2}, whose σ² is the mean of
    # the discarded eigenvalues (Tipping & Bishop 1999)
    drawing, p = drawn(2, b=9), 3
    s, half = whole(*drawing), np.sqrt(drawing[1])
    values, vectors = np.linalg.eigh(s / np.outer(half, half))
    noise = np.mean(values[:-p])
    best = half[:, None] * vectors[:, -p:] * np.sqrt(values[-p:] - noise)
    factor, diag = Eigen()(target(*drawing))
    assert_close(factor @ factor.T, best @ best.T, 1e-11)
    assert_close(diag, np.diag(s) - np.sum(best**2, axis=1), 1e-11)
    assert divergence(s, factor, diag) < divergence(s, best, noise * drawing[1])


@pytest.mark.parametrize("projection", [EM(2), Eigen(), Eigen(2, shrink=False)], ids=str)
def test_blocks_of_curvature_are_rows_mixed_beforehand(chunks, projection):
    factor, diag, x, _ = drawn(3, b=6)
    roots = np.random.default_rng(4).normal(size=(2, 3, 3))
    roots[0, :, 2] = 0
    whole = np.block([[roots[0], np.zeros((3, 3))], [np.zeros((3, 3)), roots[1]]])
    plain = target(factor, diag, whole.T @ x)
    blocks = target(factor, diag, x)._replace(scale=jnp.asarray(roots))
    wanted, found = projection(plain), projection(blocks)
    assert_close(found[0] @ found[0].T, wanted[0] @ wanted[0].T, 1e-11)
    assert_close(found[1], wanted[1], 1e-11)


def test_golden_values():
    # worked by hand
    one = np.ones(2)
    problem = target(one[:, None], one, np.array([[1.0, 0.0]]))
    factor, diag = Eigen(shrink=False)(problem)
    np.testing.assert_allclose(np.abs(factor[:, 0]), [1.37638192, 0.85065081], atol=1e-8)
    np.testing.assert_allclose(diag, [1.10557281, 1.27639320], atol=1e-8)
    factor, diag = Eigen()(problem)
    np.testing.assert_allclose(np.abs(factor[:, 0]), [1.27201965, 0.78615138], atol=1e-8)
    np.testing.assert_allclose(diag, [1.38196601, 1.38196601], atol=1e-8)
    factor, diag = EM(1)(problem)
    np.testing.assert_allclose(factor[:, 0], [1.2, 0.9], atol=1e-14)
    np.testing.assert_allclose(diag, [1.4, 1.1], atol=1e-14)


@pytest.mark.parametrize("family", [EM, Eigen])
def test_one_more_iteration_lowers_the_divergence(family):
    once, twice = (projected(family(n + (family is EM))) for n in (0, 1))
    for seed in range(5):
        drawing = drawn(seed, d=4, p=1, b=2)
        problem, s = target(*drawing), whole(*drawing)
        bounds = [divergence(s, *project(problem)) for project in (once, twice)]
        assert bounds[1] < bounds[0] < divergence(s, *drawing[:2])


@pytest.mark.slow(reason="compiles seven projections")
def test_every_further_iteration_lowers_the_divergence():
    for family in (EM, Eigen):
        # EM(1) and Eigen(0) are the starts
        chain = [projected(family(n)) for n in range(family is EM, 4)]
        for seed in range(5):
            drawing = drawn(seed, d=12, p=2, b=6)
            problem, s = target(*drawing), whole(*drawing)
            bounds = [divergence(s, *project(problem)) for project in chain]
            assert np.all(np.diff(bounds) <= 1e-12)
            assert bounds[0] < divergence(s, *drawing[:2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_eigen_keeps_the_diagonal_and_never_lowers_diag(dtype):
    for seed in range(5):
        factor, diag, x, weight = (a.astype(dtype) for a in drawn(seed, spread=3.0))
        kept, rest = Eigen(0)(target(factor, diag, x, weight, dtype=dtype))
        assert np.all(np.asarray(rest) >= diag)
        expected = np.diag(whole(factor, diag, x, weight))
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(np.sum(kept**2, axis=1) + rest, expected, rtol=1000 * eps)


@pytest.mark.parametrize("projection", [Eigen(), Eigen(2), EM(3)])
def test_exact_when_the_rank_suffices(projection):
    diag, x = drawn(7, d=6, p=3, b=2)[1:3]
    # from W = 0, where EM alone would stay
    kept, rest = projection(target(np.zeros((6, 3)), diag, x))
    assert_close(kept @ kept.T, x.T @ x, 1e-11)
    assert_close(rest, diag, 1e-11)


@pytest.mark.parametrize("projection", [Eigen(), EM(2)])
def test_nothing_in_nothing_out(projection):
    diag = np.array([1.0, 2.0, 3.0, 4.0])
    kept, rest = jax.jit(lambda t: projection(t))(target(np.zeros((4, 2)), diag, np.zeros((3, 4))))
    np.testing.assert_array_equal(kept, 0)
    assert_close(rest, diag, 1e-15)


@pytest.mark.parametrize(
    "projection",
    [
        Eigen(2),
        pytest.param(EM(3), marks=pytest.mark.slow(reason="loops of EM operation by operation")),
    ],
)
def test_float32_keeps_diag_positive_and_right_where_factors_are_huge(projection):
    # the factor holds 1e10 times diag: a difference of squares in float32 would leave nothing of it
    rng = np.random.default_rng(8)
    factor = 1e3 * rng.normal(size=(30, 2))
    x, diag = rng.normal(size=(2, 30)) * 1e-2, np.full(30, 1e-4) * np.exp(rng.normal(size=30))
    single = projection(target(factor, diag, x, dtype=np.float32))[1]
    double = projection(target(*(a.astype(np.float32) for a in (factor, diag, x))))[1]
    # rounding leaves 3 to 33 % of the diagonal of other draws, 5 % of this one
    np.testing.assert_allclose(single, double, rtol=6e-2)
    assert np.all(np.asarray(single) > 0)


def test_diag_stays_positive_on_extreme_targets():
    both = [projected(p) for p in (Eigen(2), EM(3))]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        factor, diag, x, weight = drawn(seed, d=8, p=2, b=3, spread=8.0)
        factor *= np.exp(5 * rng.normal(size=(1, 2)))
        for project in both:
            found = project(target(factor, diag, x, weight, dtype=np.float32))[1]
            assert np.all(np.asarray(found) > 0) and np.all(np.isfinite(np.asarray(found)))


@pytest.mark.parametrize("strength", [0.03, 1.0], ids=["by difference", "by products"])
def test_what_is_dropped_is_right_in_float32(strength):
    rng = np.random.default_rng(9)
    factor, x = strength * rng.normal(size=(40, 2)), 0.01 * rng.normal(size=(3, 40))
    parts = [a.astype(np.float32) for a in (factor, np.ones(40), x)]
    problem = target(*parts, dtype=np.float32)
    assert bool(Eigen().start(problem).by_difference) == (strength < 0.1)
    single, double = Eigen()(problem)[1], Eigen()(target(*parts))[1]
    np.testing.assert_allclose(single, double, rtol=3e-7)
