"""method="klprox" of the linear estimators: the optimum of the variational bound, in either space."""

import numpy as np
import pytest
from scipy import special

import kalvi
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from papers.datasets import load
from tests import oracles

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
THETA = np.array([1.0, -2.0, 0.5])
BINARY = (RNG.random(30) < special.expit(X @ THETA)).astype(float)
CLASSES = np.digitize(X @ THETA + RNG.normal(size=30), [-1, 1])
LINEAR = X @ THETA + 0.7 + 0.4 * RNG.normal(size=30)
COUNTS = RNG.poisson(np.exp(0.5 + X @ [0.3, -0.2, 0.1]))
# rows are padded to 64, so that more coefficients are needed for the space of the rows
D = 70
WIDE = RNG.normal(size=(6, D)) / 4
WIDE[:, 0] = [3.0, -3.0, -3.5, 3.0, -4.0, 2.0]
WIDE_BINARY = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])


def optimum(x, y, prior_mean=None, prior_cov=None):
    """Mean, covariance and bound of logistic regression, by L-BFGS over Cholesky factors.

    With fewer rows than coefficients, only what the rows see is sought: rows Q' x of orthonormal Q in
    coordinates where the prior is N(0, I).
    """
    d = x.shape[1]
    prior_mean = np.zeros(d) if prior_mean is None else prior_mean
    root = np.eye(d) if prior_cov is None else np.linalg.cholesky(prior_cov)
    basis = np.linalg.qr((x @ root).T)[0]
    seen = x @ root @ basis
    first = np.linalg.lstsq(seen, x @ prior_mean, rcond=None)[0]
    mean, cov, elbo = oracles.batch_vga(
        lambda f, y: y * f - np.logaddexp(0, f),
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
        first,
        np.eye(basis.shape[1]),
        seen,
        y,
    )
    whole = np.eye(d) + basis @ (cov - np.eye(len(cov))) @ basis.T
    return prior_mean + root @ basis @ (mean - first), root @ whole @ root.T, elbo


def agrees(model, known, tolerance=1e-5):
    mean, cov, elbo = known
    np.testing.assert_allclose(model.elbo_, elbo, atol=1e-6)
    np.testing.assert_allclose(model.posterior_.mean, mean, atol=tolerance)
    np.testing.assert_allclose(model.posterior_.to_dense().cov, cov, atol=tolerance)


def logistic(**settings):
    return kalvi.LogisticRegression(method="klprox", fit_intercept=False, **settings)


BY_ROWS = pytest.mark.slow(reason="compiles the optimum in the space of rows")
SHAPES = pytest.mark.parametrize(
    ("x", "y"),
    [(X, BINARY), pytest.param(WIDE, WIDE_BINARY, marks=BY_ROWS)],
    ids=["tall", "wide"],
)


@SHAPES
def test_it_is_the_optimum_in_both_spaces(x, y):
    model = logistic().fit(x, y)
    agrees(model, optimum(x, y))
    assert isinstance(model.posterior_, Dense if len(x) == 30 else LowRankPrecision)
    assert model.elbo_gap_ < 1e-9 and model.log_evidence_ == model.elbo_
    proba = model.predict_proba(x[:3])[:, 1]
    z, w = np.polynomial.hermite_e.hermegauss(60)
    cov = np.asarray(model.posterior_.to_dense().cov)
    mean, std = x[:3] @ model.posterior_.mean, np.sqrt(np.diag(x[:3] @ cov @ x[:3].T))
    average = special.expit(mean[:, None] + std[:, None] * z) @ w / w.sum()
    np.testing.assert_allclose(proba, average, rtol=1e-6)


@pytest.mark.slow(reason="compiles the optimum, a stream and its passes")
def test_it_is_where_further_passes_of_the_stream_end():
    streamed = kalvi.LogisticRegression().fit(X, BINARY)
    model = kalvi.LogisticRegression(method="klprox").fit(X, BINARY)
    np.testing.assert_allclose(model.elbo_, streamed.elbo_, atol=1e-6)
    np.testing.assert_allclose(model.posterior_.mean, streamed.posterior_.mean, atol=1e-4)


def _dense(rng):
    root = rng.normal(size=(D, D)) / 9
    return Dense(rng.normal(size=D) / 9, root @ root.T + np.eye(D))


def _diagonal(rng):
    return Diagonal(rng.normal(size=D) / 9, rng.uniform(0.5, 2, D))


def _low_rank(rng):
    return LowRankPrecision(
        rng.normal(size=D) / 9, rng.normal(size=(D, 2)) / 3, rng.uniform(0.5, 2, D)
    )


@pytest.mark.parametrize(
    "make",
    [
        _diagonal,
        *(
            pytest.param(make, marks=pytest.mark.slow(reason="compiles an optimum of its own"))
            for make in (_dense, _low_rank)
        ),
    ],
)
def test_the_prior_may_be_any_gaussian(make):
    prior = make(np.random.default_rng(1))
    model = logistic(prior=prior).fit(WIDE, WIDE_BINARY)
    mean, cov = np.asarray(prior.mean), np.asarray(prior.to_dense().cov)
    agrees(model, optimum(WIDE, WIDE_BINARY, mean, cov))


def test_a_chosen_scale_has_the_highest_bound_of_few_rows():
    """Of L-BFGS's optima, at the scale chosen and on either side of it."""
    x, y = X[:12], BINARY[:12]
    model = logistic(prior_scale="auto").fit(x, y)
    scale = model.prior_scale_
    agrees(model, optimum(x, y, prior_cov=scale**2 * np.eye(3)))
    for factor in (0.3, 3.0):
        assert optimum(x, y, prior_cov=(factor * scale) ** 2 * np.eye(3))[2] < model.elbo_


@pytest.mark.slow(reason="compiles a grid of optima")
def test_a_chosen_scale_has_the_highest_bound():
    model = logistic(prior_scale="auto").fit(WIDE, WIDE_BINARY)
    single = logistic(prior_scale=model.prior_scale_).fit(WIDE, WIDE_BINARY)
    np.testing.assert_allclose(model.elbo_, single.elbo_, atol=1e-7)
    for factor in (0.3, 3.0):
        other = logistic(prior_scale=factor * model.prior_scale_).fit(WIDE, WIDE_BINARY)
        assert other.elbo_ < model.elbo_


@SHAPES
def test_the_stream_goes_on_from_it(x, y):
    model = logistic().fit(x, y)
    after = kalvi.LogisticRegression(
        fit_intercept=False, prior=model.posterior_.to_dense(), passes=1
    ).fit(x[:2], 1 - y[:2])
    model.partial_fit(x[:2], 1 - y[:2])
    np.testing.assert_allclose(model.posterior_.mean, after.posterior_.mean, rtol=1e-9)
    np.testing.assert_allclose(
        model.posterior_.to_dense().cov, after.posterior_.to_dense().cov, rtol=1e-8, atol=1e-11
    )
    assert not hasattr(model, "elbo_")


def test_learned_noise_has_the_evidence_of_the_conjugate_model():
    """∫ N(y; 0, σ² A) dσ²/σ² = Γ(n/2) (π yᵀA⁻¹y)^(−n/2) |A|^(−1/2), A = X V₀ Xᵀ + I."""
    model = kalvi.LinearRegression(method="klprox", prior_scale=1.0).fit(X, LINEAR)
    design, prior = np.column_stack([X, np.ones(30)]), np.diag([1.0, 1.0, 1.0, 100.0])
    spread = design @ prior @ design.T + np.eye(30)
    total = LINEAR @ np.linalg.solve(spread, LINEAR)
    evidence = special.gammaln(15) - 15 * np.log(np.pi * total) - np.linalg.slogdet(spread)[1] / 2
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-9)
    np.testing.assert_allclose(model.noise_scale_, np.sqrt(total / 30), rtol=1e-9)
    mean, cov = oracles.linear_posterior(np.zeros(4), prior, design, LINEAR, 1.0)
    np.testing.assert_allclose(model.posterior_.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(model.posterior_.cov, total / 30 * cov, rtol=1e-8, atol=1e-10)


@pytest.mark.slow(reason="compiles a stream and the optimum")
def test_learned_noise_is_the_conjugate_model():
    one_pass = kalvi.LinearRegression().fit(X, LINEAR)
    model = kalvi.LinearRegression(method="klprox").fit(X, LINEAR)
    np.testing.assert_allclose(model.noise_scale_, one_pass.noise_scale_, rtol=1e-9)
    np.testing.assert_allclose(model.posterior_.mean, one_pass.posterior_.mean, rtol=1e-8)
    np.testing.assert_allclose(model.posterior_.cov, one_pass.posterior_.cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.log_evidence_, one_pass.log_evidence_, rtol=1e-9)
    assert model.elbo_ == model.log_evidence_


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(
            (40, 10), marks=pytest.mark.slow(reason="compiles the optimum, a stream and its passes")
        ),
        (10, 40),
    ],
)
def test_counts_under_wide_priors(shape):
    """Where the prior itself expects e^70 counts, the optimum is still found from the rows' information."""
    x, y = np.random.default_rng(0).normal(size=shape), np.arange(shape[0]) % 10
    for scale in (3.0, 30.0):
        streamed = kalvi.PoissonRegression(prior_scale=scale).fit(x, y)
        model = kalvi.PoissonRegression(method="klprox", prior_scale=scale).fit(x, y)
        np.testing.assert_allclose(model.elbo_, streamed.elbo_, atol=1e-6)
    few = shape[0] < shape[1]
    assert isinstance(model.posterior_, LowRankPrecision) == few
    assert not few or model.posterior_.precision.factor.shape == (41, 10)


@pytest.mark.slow(reason="compiles optima, streams and passes of two models")
def test_counts_and_several_classes_reach_the_optimum_of_the_stream():
    for make, y in ((kalvi.PoissonRegression, COUNTS), (kalvi.LogisticRegression, CLASSES)):
        streamed, model = make().fit(X, y), make(method="klprox").fit(X, y)
        np.testing.assert_allclose(model.elbo_, streamed.elbo_, atol=1e-6)
        np.testing.assert_allclose(model.predict(X[:5]), streamed.predict(X[:5]), rtol=1e-4)


@SHAPES
def test_weights_count_rows(x, y):
    weight = np.where(np.arange(len(y)) < len(y) // 2, 2.0, 0.0)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    model = logistic().fit(x, y, weight)
    agrees(model, optimum(x[rows], y[rows]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "laplace"}, "method must be 'rvga' or 'klprox'; got 'laplace'"),
        ({"method": "klprox", "rank": 2}, "method='klprox' needs rank=None"),
        ({"method": "klprox", "forgetting": 0.9}, "forgetting=1"),
        ({"method": "klprox", "process_noise": 0.1}, "process_noise=0"),
        ({"method": "klprox", "scheme": "ekf"}, "one of the schemes"),
    ],
)
def test_what_contradicts_it_is_refused(settings, message):
    model = kalvi.LogisticRegression(**settings)
    with pytest.raises(ValueError, match=None) as refused:
        model.fit(X, BINARY)
    assert message in str(refused.value)
    assert not hasattr(model, "state_")


@pytest.mark.slow(reason="the optimum of 1605 rows in 123 dimensions")
@pytest.mark.usefixtures("data")
def test_a1a_is_solved():
    """592.1186 nats at a prior variance of .574, as an optimiser over Cholesky factors finds."""
    stored = load("a1a")
    ours = stored["split"] == 0
    x, y = stored["X"][ours], stored["y"][ours]
    model = logistic(prior_scale=np.sqrt(0.574)).fit(x, y)
    np.testing.assert_allclose(-model.elbo_, 592.1186, atol=1e-3)


@pytest.mark.slow(reason="compiles a grid of streams and one of optima")
def test_a_stream_before_any_fit_seeks_its_scale_side_by_side():
    model = kalvi.LogisticRegression(method="klprox", prior_scale="auto").partial_fit(X, BINARY)
    plain = kalvi.LogisticRegression(prior_scale="auto").partial_fit(X, BINARY)
    assert model.prior_scale_ == plain.prior_scale_
    np.testing.assert_allclose(model.coef_, plain.coef_)
    scale = model.fit(X, BINARY).prior_scale_
    assert model.partial_fit(X, BINARY).prior_scale_ == scale
