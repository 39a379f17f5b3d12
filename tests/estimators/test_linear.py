import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import kalvi
from kalvi.evaluation import metrics
from tests import oracles, problems

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
LINEAR = X @ [1.0, -2.0, 0.5] + 0.7 + 0.4 * RNG.normal(size=120)
BINARY = (RNG.random(120) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(int)
COUNTS = RNG.poisson(np.exp(0.5 + X @ [0.3, -0.2, 0.1]))
DESIGN = np.column_stack([X, np.ones(120)])
PRIOR = np.diag([1.0, 1.0, 1.0, 100.0])
CASES = [
    (kalvi.LinearRegression(), LINEAR),
    (kalvi.LogisticRegression(), BINARY),
    (kalvi.PoissonRegression(), COUNTS),
]


@pytest.fixture(params=CASES, ids=lambda case: type(case[0]).__name__)
def case(request):
    model, y = request.param
    return clone(model), y


def same(first: kalvi.Gaussian, second: kalvi.Gaussian, rtol=1e-9):
    np.testing.assert_allclose(first.mean, second.mean, rtol=rtol, atol=rtol)
    cov = np.asarray(second.to_dense().cov)
    np.testing.assert_allclose(first.to_dense().cov, cov, rtol=rtol, atol=rtol * cov.max())


def test_known_noise_is_the_closed_form():
    model = kalvi.LinearRegression(noise_scale=0.4, prior_scale=1).fit(X, LINEAR)
    mean, cov = oracles.linear_posterior(np.zeros(4), PRIOR, DESIGN, LINEAR, 0.16)
    np.testing.assert_allclose(model.posterior_.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(model.posterior_.cov, cov, rtol=1e-10, atol=1e-14)
    exact = stats.multivariate_normal(np.zeros(120), DESIGN @ PRIOR @ DESIGN.T + 0.16 * np.eye(120))
    np.testing.assert_allclose(model.log_evidence_, exact.logpdf(LINEAR), rtol=1e-10)


def test_learned_noise_has_the_evidence_of_the_conjugate_model():
    """∫ N(y; 0, σ² A) dσ²/σ² = Γ(n/2) (π yᵀA⁻¹y)^(−n/2) |A|^(−1/2), A = X V₀ Xᵀ + I."""
    model = kalvi.LinearRegression(prior_scale=1).fit(X, LINEAR)
    spread = DESIGN @ PRIOR @ DESIGN.T + np.eye(120)
    total = LINEAR @ np.linalg.solve(spread, LINEAR)
    evidence = special.gammaln(60) - 60 * np.log(np.pi * total) - np.linalg.slogdet(spread)[1] / 2
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-10)
    np.testing.assert_allclose(model.noise_scale_, np.sqrt(total / 120), rtol=1e-10)
    mean, cov = oracles.linear_posterior(np.zeros(4), PRIOR, DESIGN, LINEAR, 1.0)
    np.testing.assert_allclose(model.posterior_.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(model.posterior_.cov, total / 120 * cov, rtol=1e-9, atol=1e-14)


@pytest.mark.slow(reason="four hundred densities in 120 dimensions")
def test_learned_noise_is_the_conjugate_model():
    """Normal–inverse-gamma with p(σ²) ∝ 1/σ²: θ | σ² ~ N(m, σ² V), and S = y'y − m' V⁻¹ m."""
    model = kalvi.LinearRegression(prior_scale=1).fit(X, LINEAR)
    mean, cov = oracles.linear_posterior(np.zeros(4), PRIOR, DESIGN, LINEAR, 1.0)
    total = LINEAR @ LINEAR - mean @ np.linalg.solve(cov, mean)
    np.testing.assert_allclose(model.noise_scale_, np.sqrt(total / 120), rtol=1e-10)
    np.testing.assert_allclose(model.posterior_.cov, total / 120 * cov, rtol=1e-9)

    def integrand(log_variance):
        variance = np.exp(log_variance)
        law = stats.multivariate_normal(
            np.zeros(120), variance * (DESIGN @ PRIOR @ DESIGN.T + np.eye(120))
        )
        return np.exp(law.logpdf(LINEAR) - model.log_evidence_)

    grid = np.linspace(np.log(total / 120) - 3, np.log(total / 120) + 3, 400)
    values = [integrand(u) for u in grid]
    # dσ²/σ² = d log σ²: the evidence is the integral over log σ², here divided by our value
    np.testing.assert_allclose(np.trapezoid(values, grid), 1, rtol=1e-8)


def test_weights_are_repeated_rows_for_noise_and_evidence_too():
    weight = np.arange(120) % 3.0
    repeated = np.repeat(np.arange(120), weight.astype(int))
    for model in (kalvi.LinearRegression(), kalvi.LinearRegression(noise_scale=0.4)):
        weighted = clone(model).fit(X, LINEAR, sample_weight=weight)
        plain = clone(model).fit(X[repeated], LINEAR[repeated])
        same(weighted.posterior_, plain.posterior_)
        np.testing.assert_allclose(weighted.noise_scale_, plain.noise_scale_, rtol=1e-10)
        np.testing.assert_allclose(weighted.log_evidence_, plain.log_evidence_, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_noise_is_learned_at_any_scale_of_y(scale):
    model = kalvi.LinearRegression().fit(X, scale * (300 * X[:, 0] + LINEAR))
    np.testing.assert_allclose(model.noise_scale_, 0.4 * scale, rtol=0.2)  # 120 rows: √(1/240) · 3


def test_a_constant_zero_has_no_noise_to_learn():
    with pytest.warns(ConvergenceWarning, match="noise cannot be learned"):
        model = kalvi.LinearRegression().fit(X, np.zeros(120))
    np.testing.assert_array_equal(model.predict(X), 0)


def test_predictive_std_contains_noise_and_uncertainty():
    model = kalvi.LinearRegression(noise_scale=0.4).fit(X, LINEAR)
    mean, std = model.predict(X, return_std=True)
    rows = DESIGN @ np.asarray(model.posterior_.cov)
    np.testing.assert_allclose(mean, DESIGN @ np.asarray(model.posterior_.mean), rtol=1e-12)
    np.testing.assert_allclose(std**2, 0.16 + np.sum(rows * DESIGN, axis=1), rtol=1e-10)


def test_fit_reaches_the_batch_optimum():
    """The bound of an independent L-BFGS optimiser, to 1e-6 nats."""
    model = kalvi.LogisticRegression().fit(X, BINARY)
    found = oracles.batch_vga(
        lambda f, y: -np.logaddexp(0, (1 - 2 * y) * f),
        lambda f, y: y - special.expit(f),
        lambda f, y: -special.expit(f) * special.expit(-f),
        np.zeros(4),
        PRIOR,
        DESIGN,
        BINARY.astype(float),
    )
    assert abs(model.elbo_ - found[2]) < 1e-6
    assert model.n_passes_ > 1


def slow_for(reason, *names):
    """The case of every class, some of them slow."""
    slow = pytest.mark.slow(reason=reason)
    cases = [(type(case[0]).__name__, case) for case in CASES]
    return pytest.mark.parametrize(
        "case",
        [pytest.param(c, id=name, marks=[slow] if name in names else []) for name, c in cases],
        indirect=True,
    )


@slow_for("compiles the streams of four sizes", "PoissonRegression")
def test_stream_is_one_pass_whatever_the_batches(case):
    model, y = case
    model = model.set_params(prior_scale=model.default_scale)
    whole = clone(model).set_params(passes=1).fit(X, y)
    assert whole.n_passes_ == 1
    for size in (1, 7, 120):
        pieces = clone(model)
        for start in range(0, 120, size):
            rows = slice(start, start + size)
            extra = {"classes": [0, 1]} if isinstance(model, kalvi.LogisticRegression) else {}
            pieces.partial_fit(X[rows], y[rows], **extra)
        same(pieces.posterior_, whole.posterior_)
        np.testing.assert_allclose(pieces.log_evidence_, whole.log_evidence_, rtol=1e-9)


@slow_for("compiles two streams", "LogisticRegression", "PoissonRegression")
def test_block_size_does_not_change_the_result(case):
    model, y = case
    small = clone(model).set_params(passes=1, block_size=3).fit(X, y)
    large = clone(model).set_params(passes=1, block_size=50).fit(X, y)
    same(small.posterior_, large.posterior_)


@slow_for("compiles stream and passes, twice", "PoissonRegression")
def test_sparse_equals_dense(case):
    model, y = case
    thin = np.where(np.abs(X) > 0.7, X, 0)
    dense, sparse = clone(model).fit(thin, y), clone(model).fit(sp.csr_matrix(thin), y)
    same(dense.posterior_, sparse.posterior_, 1e-12)
    np.testing.assert_array_equal(dense.predict(thin), sparse.predict(sp.csr_matrix(thin)))


def test_posterior_as_prior_continues(case):
    model, y = case
    model.set_params(passes=1)
    if isinstance(model, kalvi.LinearRegression):
        model.set_params(noise_scale=0.4)
    whole = clone(model).fit(X, y)
    first = clone(model).fit(X[:60], y[:60])
    second = clone(model).set_params(prior=first.posterior_).fit(X[60:], y[60:])
    same(second.posterior_, whole.posterior_)
    np.testing.assert_allclose(
        first.log_evidence_ + second.log_evidence_, whole.log_evidence_, rtol=1e-10
    )


@slow_for("compiles a grid of streams", "LogisticRegression", "PoissonRegression")
def test_automatic_prior_scale_has_the_most_evidence(case):
    model, y = case
    model.set_params(passes=1)
    auto = clone(model).set_params(prior_scale="auto").fit(X, y)
    fixed = {s: clone(model).set_params(prior_scale=s).fit(X, y) for s in (0.1, 1.0, 10.0)}
    assert auto.log_evidence_ >= max(m.log_evidence_ for m in fixed.values()) - 1e-9
    chosen = clone(model).set_params(prior_scale=auto.prior_scale_).fit(X, y)
    same(auto.posterior_, chosen.posterior_)
    np.testing.assert_allclose(auto.log_evidence_, chosen.log_evidence_, rtol=1e-9)


def test_automatic_scale_with_further_passes():
    auto = kalvi.LogisticRegression(prior_scale="auto").fit(X, BINARY)
    chosen = kalvi.LogisticRegression(prior_scale=auto.prior_scale_).fit(X, BINARY)
    same(auto.posterior_, chosen.posterior_)
    np.testing.assert_allclose(auto.elbo_, chosen.elbo_, rtol=1e-12)


@pytest.mark.slow(reason="compiles a stream of 4000 counts")
def test_poisson_recovers_rates():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 2))
    y = rng.poisson(np.exp(1 + x @ [0.5, -0.3]))
    model = kalvi.PoissonRegression(passes=1).fit(x, y)
    z = (np.asarray(model.posterior_.mean) - [0.5, -0.3, 1]) / np.sqrt(model.posterior_.variance())
    assert np.all(np.abs(z) < 4)  # four posterior deviations
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(np.mean((y - mean) ** 2 / std**2), 1, atol=0.1)  # √(2/4000) · 4


def test_forgetting_follows_a_drift():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2000, 1))
    slope = np.where(np.arange(2000) < 1000, 1.0, -1.0)
    y = slope * x[:, 0] + 0.1 * rng.normal(size=2000)
    keep = kalvi.LinearRegression(noise_scale=0.1, drift=1).partial_fit(x, y)
    fade = kalvi.LinearRegression(noise_scale=0.1, forgetting=0.99).partial_fit(x, y)
    drift = kalvi.LinearRegression(noise_scale=0.1, process_noise=1e-3).partial_fit(x, y)
    assert abs(keep.coef_[0]) < 0.1
    assert abs(fade.coef_[0] + 1) < 0.05
    assert abs(drift.coef_[0] + 1) < 0.1


def test_samples_have_the_posterior_moments(case):
    model, y = case
    model.fit(X, y)
    draws = model.sample_posterior(20000, random_state=1)
    std = np.sqrt(np.asarray(model.posterior_.variance()))
    assert np.all(np.abs(draws.mean(0) - model.posterior_.mean) < 5 * std / np.sqrt(20000))
    np.testing.assert_allclose(draws.std(0), std, rtol=0.04)  # 5 / √(2·20000) = 0.025, and a margin
    np.testing.assert_array_equal(draws, model.sample_posterior(20000, random_state=1))


def test_probabilities_average_over_the_posterior():
    model = kalvi.LogisticRegression(prior_scale=3).fit(X[:15], BINARY[:15])
    draws = model.sample_posterior(200_000, random_state=0)
    sampled = (1 / (1 + np.exp(-DESIGN[:5] @ draws.T))).mean(axis=1)
    # the standard error of 200,000 draws of a probability is at most 0.0011
    np.testing.assert_allclose(model.predict_proba(X[:5])[:, 1], sampled, atol=0.005)


def test_labels_of_any_kind():
    model = kalvi.LogisticRegression().fit(X, np.where(BINARY, "yes", "no"))
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    np.testing.assert_array_equal(model.predict(X) == "yes", model.predict_proba(X)[:, 1] > 0.5)


@pytest.mark.slow(reason="compiles stream and passes in single precision")
def test_float32_agrees():
    double = kalvi.LogisticRegression().fit(X, BINARY)
    single = kalvi.LogisticRegression(dtype="float32").fit(X, BINARY)
    assert single.posterior_.mean.dtype == np.float32
    std = np.sqrt(np.asarray(double.posterior_.variance()))
    np.testing.assert_allclose(
        single.posterior_.mean, double.posterior_.mean, atol=1e-3 * std.min()
    )


def test_float64_without_the_global_setting():
    code = """
import jax, numpy as np, pickle, kalvi
rng = np.random.default_rng(0)
x = rng.normal(size=(50, 2)); y = (x[:, 0] > 0).astype(int)
model = pickle.loads(pickle.dumps(kalvi.LogisticRegression().fit(x, y)))
assert not jax.config.jax_enable_x64
assert model.posterior_.mean.dtype == model.posterior_.cov.dtype == np.float64
posterior = pickle.loads(pickle.dumps(model.posterior_))
assert posterior.mean.dtype == posterior.covariance.factor.dtype == np.float64
print(repr(float(model.posterior_.mean[0])), repr(float(model.posterior_.logdet())))
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stderr == ""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    here = kalvi.LogisticRegression().fit(x, (x[:, 0] > 0).astype(int))
    there = [float(word) for word in printed.stdout.split()]
    assert jax.config.jax_enable_x64
    expected = [float(here.posterior_.mean[0]), float(here.posterior_.logdet())]
    np.testing.assert_allclose(there, expected, rtol=1e-9)


@slow_for("compiles stream and passes", "PoissonRegression")
def test_pickle_keeps_every_bit(case):
    model, y = case
    model.fit(X, y)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.posterior_.mean, model.posterior_.mean)
    same(back.partial_fit(X, y).posterior_, model.partial_fit(X, y).posterior_, 1e-15)


def test_numbers_of_the_last_call_only():
    model = kalvi.LogisticRegression().fit(X, BINARY)
    assert model.n_passes_ > 2 and hasattr(model, "elbo_")
    model.partial_fit(X, BINARY)
    assert model.n_passes_ == 1 and not hasattr(model, "elbo_")


def test_an_integer_fixes_the_passes():
    bounds = []
    for passes in (1, 2, 3):
        model = kalvi.LogisticRegression(passes=passes).fit(X, BINARY)
        assert model.n_passes_ == passes
        batch = problems.batch(DESIGN, BINARY.astype(float))
        prior = kalvi.Dense(np.zeros(4), PRIOR)
        bounds.append(
            float(metrics.elbo(model.posterior_, prior, kalvi.likelihoods.Bernoulli(), batch))
        )
    assert bounds[0] < bounds[1] < bounds[2]
    for impossible in ({"rank": 0}, {"scheme": "ekf"}, {"forgetting": 0.9}, {"process_noise": 1.0}):
        with pytest.raises(ValueError, match="passes=3 needs forgetting=1"):
            kalvi.LogisticRegression(passes=3, **impossible).fit(X, BINARY)


@pytest.mark.parametrize(
    "change",
    [{"rank": 1}, {"fit_intercept": False}, {"dtype": "float32"}, {"prior_scale": 2.0}],
    ids=lambda change: next(iter(change)),
)
def test_parameters_of_the_structure_cannot_change_midway(change):
    model = kalvi.LogisticRegression().partial_fit(X, BINARY).set_params(**change)
    with pytest.raises(ValueError, match=f"{next(iter(change))} was .* call fit to start again"):
        model.partial_fit(X, BINARY)
    with pytest.raises(ValueError, match="call fit to start again"):
        model.predict(X)


@pytest.mark.slow(reason="compiles stream and passes in single precision")
def test_numpy_dtypes_are_dtypes():
    model = kalvi.LogisticRegression(dtype=np.float32).fit(X, BINARY)
    assert model.posterior_.mean.dtype == np.float32


def test_progress_bar_shows_rows(capsys):
    kalvi.LogisticRegression(verbose=True, passes=1).fit(X, BINARY)
    shown = capsys.readouterr().err
    assert "120/120" in shown and "log_loss=" in shown


NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[5, 2] = np.nan, np.inf
REFUSED = [
    ({}, NAN, BINARY, r"X contains NaN in row 3, column 1 .* Drop or impute"),
    ({}, sp.csr_matrix(NAN), BINARY, r"X contains NaN in row 3, column 1"),
    ({}, INF, BINARY, r"X contains infinity \(inf\) in row 5, column 2"),
    ({}, X, np.where(BINARY == 1, np.nan, 0.0), r"y contains NaN in row"),
    ({}, X, np.zeros(120), r"needs two classes or more; got 1 class: \[0.0\]"),
    ({}, X[:0], BINARY[:0], r"0 sample"),
    ({"rank": 9}, X, BINARY, r"rank=9 exceeds the 4 parameters; choose rank ≤ 4"),
    ({"rank": -1}, X, BINARY, r"rank must be None .* got -1"),
    ({"prior_scale": 0}, X, BINARY, r"prior_scale must be positive and finite, or 'auto'; got 0"),
    (
        {"prior_scale": -2.0},
        X,
        BINARY,
        r"prior_scale must be positive and finite, or 'auto'; got -2.0",
    ),
    ({"prior_scale": "wide"}, X, BINARY, r"prior_scale must be .* or 'auto'; got 'wide'"),
    ({"prior_scale": [1.0, 2.0]}, X, BINARY, r"prior_scale must be a number or .* 3 features"),
    ({"prior_mean": [1.0, 2.0]}, X, BINARY, r"prior_mean must be a number or .* got shape \(2,\)"),
    ({"prior_mean": np.nan}, X, BINARY, r"prior_mean must be finite; got"),
    ({"scheme": "newton"}, X, BINARY, r"scheme must be one of implicit, .*; got 'newton'"),
    ({"forgetting": 0}, X, BINARY, r"forgetting must be a number in \(0, 1\]; got 0"),
    ({"forgetting": "fast"}, X, BINARY, r"forgetting must be a number in \(0, 1\]; got 'fast'"),
    ({"process_noise": -1.0}, X, BINARY, r"process_noise must be a non-negative number"),
    ({"passes": 0}, X, BINARY, r"passes must be 'auto' or a positive integer; got 0"),
    ({"block_size": 1.5}, X, BINARY, r"block_size must be 'auto' or a positive integer; got 1.5"),
    ({"dtype": "int8"}, X, BINARY, r"dtype must be 'float32' or 'float64'; got 'int8'"),
    ({"prior": kalvi.Diagonal(np.zeros(2), np.ones(2))}, X, BINARY, r"prior has 2 parameters"),
    (
        {"rank": 1, "prior": kalvi.Dense(np.zeros(4), np.eye(4))},
        X,
        BINARY,
        r"prior is Dense of rank None, but rank=1",
    ),
]


@pytest.mark.parametrize(("params", "x", "y", "message"), REFUSED, ids=lambda v: None)
def test_bad_input_is_refused(params, x, y, message):
    with pytest.raises(ValueError, match=message):
        kalvi.LogisticRegression(**params).fit(x, y)


def test_other_refusals():
    with pytest.raises(TypeError, match=r"prior must be a Gaussian.*got str"):
        kalvi.LogisticRegression(prior="flat").fit(X, BINARY)
    with pytest.raises(ValueError, match="noise_scale must be one positive"):
        kalvi.LinearRegression(noise_scale=0).fit(X, LINEAR)
    with pytest.raises(ValueError, match="noise_scale must be one positive and finite number"):
        kalvi.LinearRegression(noise_scale=np.ones(2)).fit(X, LINEAR)
    with pytest.raises(ValueError, match="needs noise_scale to be a number"):
        kalvi.LinearRegression(prior=kalvi.Dense(np.zeros(4), np.eye(4))).fit(X, LINEAR)
    with pytest.raises(ValueError, match="Poisson has none; use scheme='implicit'"):
        kalvi.PoissonRegression(scheme="qkf").fit(X, COUNTS)
    with pytest.raises(ValueError, match="counts, 0 or more; row 0 has -1"):
        kalvi.PoissonRegression().fit(X, COUNTS - 1 - COUNTS[0])
    with pytest.raises(ValueError, match="differ from those of the first call"):
        kalvi.LogisticRegression().fit(X, BINARY).partial_fit(X, BINARY, classes=[0, 2])


@pytest.mark.parametrize(
    ("x", "y", "weight"),
    [
        (X[:, :2], BINARY, None),
        (NAN, BINARY, None),
        (X, BINARY + 1, None),
        (X, BINARY, -np.ones(120)),
        (X, BINARY[:5], None),
    ],
    ids=["features", "nan", "labels", "weights", "length"],
)
def test_a_refused_call_changes_nothing(x, y, weight):
    model = kalvi.LogisticRegression().fit(X, BINARY)
    before = pickle.dumps(model)
    for method in (model.partial_fit, model.fit):
        if method == model.fit and x.shape == (120, 2):
            continue  # a table of another width is fine for fit
        if method == model.fit and np.array_equal(y, BINARY + 1):
            continue  # and so are other labels
        with pytest.raises(ValueError):
            method(x, y, sample_weight=weight)
        assert pickle.dumps(model) == before


def test_an_unknown_parameter_names_the_class_that_was_called():
    names = ("LinearRegression", "LogisticRegression", "PoissonRegression")
    tries = "".join(
        f"try: kalvi.{name}(nonsense=1)\nexcept TypeError as error: print(error)\n"
        for name in names
    )  # in a process of its own, because checked shapes wrap the functions here
    code = [sys.executable, "-c", f"import kalvi\n{tries}"]
    said = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    expected = "{}.__init__() got an unexpected keyword argument 'nonsense'"
    assert said == [expected.format(name) for name in names]


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_large_counts_do_not_look_unconverged(rank, dtype):
    """Rounding hides the bound's rise long before the posterior is at its optimum; warnings are errors."""
    y = np.random.default_rng(0).poisson(1e5 * np.exp(X @ [0.3, -0.2, 0.1]))
    model = kalvi.PoissonRegression(rank=rank, dtype=dtype).fit(X, y)
    assert 1 < model.n_passes_ < 50
    assert np.all(np.abs(model.coef_ - [0.3, -0.2, 0.1]) < 5 / np.sqrt(120 * 1e5))
