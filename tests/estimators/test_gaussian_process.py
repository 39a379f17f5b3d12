"""Gaussian process estimators against scikit-learn, dense NumPy and finite differences.

All tables have 48 rows of two inputs or are padded to that, so that few programs are compiled.
"""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn import gaussian_process as sklearn_gp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.utils import estimator_checks

import kalvi
from kalvi import kernels
from kalvi.estimators.gaussian_process import memory, sparse

Classifier, Regressor = kalvi.GaussianProcessClassifier, kalvi.GaussianProcessRegressor
RNG = np.random.default_rng(0)
N = 48
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(8, 2))
LATENT = np.sin(2 * X[:, 0]) + X[:, 1]
Y = LATENT + 0.2 * RNG.normal(size=N)
BINARY = (LATENT + 0.4 * RNG.normal(size=N) > 0).astype(int)
COUNTS = RNG.poisson(np.exp(LATENT / 2)).astype(float)
RBF = 1.5 * kernels.RBF([0.8, 1.7])
SKLEARN_RBF = sklearn_kernels.ConstantKernel(1.5) * sklearn_kernels.RBF([0.8, 1.7])
FIXED = {"optimizer": None, "mean": 0.0}


def normal(**settings) -> Regressor:
    given = {"kernel": RBF, "likelihood": kalvi.likelihoods.Normal(0.05), **FIXED, **settings}
    return Regressor(**given)


def same_latent(first, second, tolerance=1e-8):
    for a, b in zip(first.predict_latent(NEW), second.predict_latent(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Against scikit-learn ----------------------------------------------------------------------------


def test_normal_noise_is_the_closed_form():
    model = normal().fit(X, Y)
    peer = sklearn_gp.GaussianProcessRegressor(SKLEARN_RBF, alpha=0.05, optimizer=None).fit(X, Y)
    mean, std = peer.predict(NEW, return_std=True)
    np.testing.assert_allclose(model.predict_latent(NEW), (mean, std), rtol=1e-8, atol=1e-8)
    found = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(found, (mean, np.sqrt(std**2 + 0.05)), rtol=1e-8, atol=1e-8)
    evidence = peer.log_marginal_likelihood_value_
    np.testing.assert_allclose(model.log_marginal_likelihood_, evidence, rtol=1e-8)
    density = stats.norm(mean, np.sqrt(std**2 + 0.05)).logpdf(0.3)
    np.testing.assert_allclose(model.log_predictive_density(NEW, np.full(8, 0.3)), density, 1e-7)
    assert model.regime_ == "exact" and model.n_evaluations_ == 0
    assert model.hyperparameters_ == pytest.approx(
        {
            "Constant.variance": 1.5,
            "RBF.length_scale[0]": 0.8,
            "RBF.length_scale[1]": 1.7,
            "Normal.variance": 0.05,
        }
    )


def test_learned_hyperparameters_have_the_evidence_of_scikit_learns():
    noise = sklearn_kernels.WhiteKernel(0.05)
    peer = sklearn_gp.GaussianProcessRegressor(SKLEARN_RBF + noise).fit(X, Y)
    model = normal(optimizer="lbfgs").fit(X, Y)
    assert model.elbo_ > peer.log_marginal_likelihood_value_ - 1e-3
    np.testing.assert_allclose(model.predict(NEW), peer.predict(NEW), atol=0.01)


def test_a_kernel_of_scikit_learn_is_the_same_kernel():
    own, foreign = normal().fit(X, Y), normal(kernel=SKLEARN_RBF).fit(X, Y)
    same_latent(foreign, own)
    gradients = []
    for kernel in (RBF, SKLEARN_RBF):
        normal(kernel=kernel, optimizer=lambda fn, at, _: gradients.append(fn(at))).fit(X, Y)
    (value, slope), (foreign_value, foreign_slope) = gradients
    np.testing.assert_allclose(foreign_value, value, rtol=1e-10)
    np.testing.assert_allclose(foreign_slope, slope, rtol=1e-7)
    assert foreign.kernel_ == SKLEARN_RBF


# Hyperparameters ---------------------------------------------------------------------------------

BOUNDS = [
    (Regressor(RBF, likelihood=kalvi.likelihoods.Normal(0.05)), Y),
    (Classifier(RBF, mean="constant"), BINARY),
]
LONG_BOUNDS = [
    (Classifier(RBF, mean="constant", sparse=True, n_inducing=12), BINARY),
    (Regressor(RBF, likelihood=kalvi.likelihoods.StudentT(3.0, 0.1)), Y),
    (Regressor(RBF, likelihood=kalvi.likelihoods.Laplace(0.2)), Y),
    (Regressor(RBF, likelihood="poisson"), COUNTS),
    (Regressor(RBF + kernels.White(0.1), likelihood="student_t", sparse=True, n_inducing=12), Y),
]


def check_gradient(model, y):
    """The exact gradient of the optimal bound against central differences of it."""
    seen = []

    def compare(objective, start, bounds):
        slope = objective(start)[1]
        steps = 1e-4 * np.eye(len(start))
        rises = [objective(start + h)[0] - objective(start - h)[0] for h in steps]
        np.testing.assert_allclose(slope, np.array(rises) / 2e-4, rtol=1e-4, atol=1e-4)
        assert np.all((bounds[:, 0] < start) & (start < bounds[:, 1]))
        seen.append(len(start))

    model = clone(model).set_params(optimizer=compare).fit(X, y)
    assert seen == [len(model.hyperparameters_)]


@pytest.mark.parametrize(("model", "y"), BOUNDS, ids=["normal", "logit"])
def test_gradients_of_the_bound_are_its_differences(model, y):
    check_gradient(model, y)


@pytest.mark.parametrize(
    ("model", "y"), LONG_BOUNDS, ids=["sparse", "t", "laplace", "poisson", "sparse_t"]
)
def test_gradients_of_other_bounds_are_their_differences(model, y, monkeypatch):
    monkeypatch.setattr(sparse, "GAP", 1e-12)  # the gradient's error is the root of it
    check_gradient(model, y)


def test_a_grid_keeps_its_best_point():
    lengths, noises = [0.3, 1.0, 3.0], [0.01, 0.05]
    grid = {"RBF.length_scale[1]": lengths, "Normal.variance": noises}
    model = normal(optimizer="grid", grid=grid).fit(X, Y)
    each = {
        (length, noise): normal(
            kernel=1.5 * kernels.RBF([0.8, length]), likelihood=kalvi.likelihoods.Normal(noise)
        )
        .fit(X, Y)
        .elbo_
        for length in lengths
        for noise in noises
    }
    best = max(each, key=lambda point: each[point])
    assert model.n_evaluations_ == 6
    np.testing.assert_allclose(model.elbo_, each[best], rtol=1e-10)
    found = model.hyperparameters_
    assert (found["RBF.length_scale[1]"], found["Normal.variance"]) == pytest.approx(best)


def test_a_callable_searches_and_the_best_point_it_saw_is_kept():
    def nelder_mead(objective, start, bounds):
        options = {"maxfev": 60}
        optimize.minimize(
            lambda t: objective(t)[0], start, method="Nelder-Mead", bounds=bounds, options=options
        )

    first, model = normal().fit(X, Y), normal(optimizer=nelder_mead).fit(X, Y)
    assert model.n_evaluations_ >= 60
    assert first.elbo_ < model.elbo_ < normal(optimizer="lbfgs").fit(X, Y).elbo_ + 1e-6


def test_restarts_find_a_better_optimum_and_repeat_with_the_seed():
    poor = 1e-3 * kernels.RBF([1e-2, 1e-2])
    settings = {"kernel": poor, "optimizer": "lbfgs", "random_state": 0}
    once = normal(**settings).fit(X, Y)
    first, second = (normal(**settings, n_restarts_optimizer=3).fit(X, Y) for _ in range(2))
    assert first.elbo_ > once.elbo_ + 1
    assert first.elbo_ == second.elbo_ and first.n_evaluations_ == second.n_evaluations_


def test_fixed_kernels_are_left_alone():
    model = Classifier(kernels.Fixed(RBF)).fit(X, BINARY)
    assert model.n_evaluations_ == 0 and model.hyperparameters_ == {}
    np.testing.assert_allclose(model.elbo_, Classifier(RBF, **FIXED).fit(X, BINARY).elbo_, 1e-9)


def test_scales_of_the_data_do_not_matter():
    base = Regressor().fit(X, Y)
    for inputs, outputs in ((1.0, 1e-8), (1e8, 1e8)):
        model = Regressor().fit(inputs * X + 1e8 * inputs, outputs * (Y + 1e3))
        np.testing.assert_allclose(model.elbo_, base.elbo_ - N * np.log(outputs), atol=1e-3)
        found = model.predict(inputs * NEW + 1e8 * inputs)
        np.testing.assert_allclose(found / outputs - 1e3, base.predict(NEW), atol=1e-3)


# Rows --------------------------------------------------------------------------------------------


# 8 rows twice, 32 once, 8 not at all
WEIGHT = np.repeat([2.0, 1.0, 0.0], [8, 32, 8])
REPEATED = np.repeat(np.arange(N), WEIGHT.astype(int))


def test_weights_count_rows():
    weighted = Classifier(RBF, **FIXED).fit(X, BINARY, WEIGHT)
    repeated = Classifier(RBF, **FIXED).fit(X[REPEATED], BINARY[REPEATED])
    np.testing.assert_allclose(weighted.elbo_, repeated.elbo_, rtol=1e-7)
    same_latent(weighted, repeated, 1e-5)


def test_weights_set_the_first_hyperparameters():
    weighted = Regressor(optimizer=None).fit(X, Y, WEIGHT)
    repeated = Regressor(optimizer=None).fit(X[REPEATED], Y[REPEATED])
    assert weighted.hyperparameters_ == pytest.approx(repeated.hyperparameters_, rel=1e-9)


def test_few_inducing_points_give_the_bound_of_titsias_and_its_predictions():
    """Normal noise, dense; the weights of rows divide their noise."""
    x, y, weight, variance = X[:10], Y[:10], np.array([1.0, 2.0] * 5), 0.05
    model = normal(sparse=True, n_inducing=4).fit(x, y, weight)
    z = np.asarray(model.inducing_)
    assert model.regime_ == "sparse" and {tuple(row) for row in z} <= {tuple(row) for row in x}
    kzz, kzx, kzn = (SKLEARN_RBF(z, a) for a in (z, x, NEW))
    explained = kzx.T @ np.linalg.solve(kzz, kzx)
    law = stats.multivariate_normal(np.zeros(10), explained + np.diag(variance / weight))
    # a row of weight w is w rows: normal densities of the mean, and what they had more
    more = np.sum((weight - 1) * np.log(2 * np.pi * variance) + np.log(weight)) / 2
    left = weight @ (1.5 - np.diag(explained)) / (2 * variance)
    np.testing.assert_allclose(model.elbo_, law.logpdf(y) - more - left, rtol=1e-6)
    system = kzz + kzx @ (weight[:, None] * kzx.T) / variance
    mean = kzn.T @ np.linalg.solve(system, kzx @ (weight * y)) / variance
    spread = 1.5 - np.sum(kzn * np.linalg.solve(kzz, kzn), axis=0)
    spread += np.sum(kzn * np.linalg.solve(system, kzn), axis=0)
    found = model.predict_latent(NEW)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], np.sqrt(spread), rtol=1e-6, atol=1e-6)


def test_weights_count_rows_of_inducing_points():
    settings = {"kernel": RBF, "sparse": True, "n_inducing": 12, **FIXED}
    weighted = Classifier(**settings).fit(X, BINARY, WEIGHT)
    repeated = Classifier(**settings).fit(X[REPEATED], BINARY[REPEATED])
    np.testing.assert_allclose(weighted.elbo_, repeated.elbo_, rtol=1e-7)
    same_latent(weighted, repeated, 1e-5)


def test_all_rows_as_inducing_points_are_exact():
    sparse, exact = normal(sparse=True, n_inducing=64).fit(X, Y), normal().fit(X, Y)
    assert sparse.regime_ == "sparse" and sparse.inducing_.shape == (N, 2)
    np.testing.assert_allclose(sparse.elbo_, exact.elbo_, atol=1e-6)
    same_latent(sparse, exact, 1e-5)


def test_few_inducing_points_are_rows_and_bound_from_below():
    exact = Classifier(RBF, **FIXED).fit(X, BINARY)
    fewer = Classifier(RBF, **FIXED, sparse=True, n_inducing=12).fit(X, BINARY)
    assert fewer.elbo_ < exact.elbo_
    assert {tuple(row) for row in fewer.inducing_} <= {tuple(row) for row in X}


def test_minibatches_come_close_to_all_rows():
    settings = {"kernel": RBF, **FIXED, "sparse": True, "n_inducing": 12, "random_state": 0}
    whole = Classifier(**settings).fit(X, BINARY)
    streamed = Classifier(**settings, batch_size=16).fit(X, BINARY)
    assert whole.elbo_ - 0.05 < streamed.elbo_ < whole.elbo_ + 1e-6
    same_latent(streamed, whole, 0.05)


def test_repeated_rows_and_constant_columns_are_harmless():
    x = np.column_stack([np.repeat(X[:6, :1], 8, 0), np.full(N, 7.0)])
    noise = stats.norm.ppf((np.arange(8) + 0.5) / 8)
    y = np.repeat(LATENT[:6], 8) + 0.1 * np.tile(noise, 6)
    model = Regressor().fit(x, y)
    np.testing.assert_allclose(model.predict(x[::8]), LATENT[:6], atol=0.1)
    np.testing.assert_allclose(np.sqrt(model.likelihood_.variance), 0.1, rtol=0.3)


@pytest.mark.parametrize("n", [1, 2])
def test_one_row_or_two(n):
    model = Regressor().fit(X[:n], Y[:n])
    np.testing.assert_allclose(model.predict(X[:n]).mean(), Y[:n].mean(), atol=0.05)


def test_constant_y_is_predicted_with_little_doubt():
    mean, std = Regressor().fit(X, np.full(N, 3.0)).predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, 3, atol=1e-6)
    assert np.all(std < 0.01)


# Likelihoods -------------------------------------------------------------------------------------


def test_classes_one_against_the_rest():
    held_out = np.random.default_rng(1).normal(size=(N, 2))
    names, edges = np.array(["low", "mid", "high"]), [-0.8, 0.8]
    labels = names[np.digitize(LATENT, edges)]
    model = Classifier(RBF, **FIXED).fit(X, labels)
    proba = model.predict_proba(held_out)
    assert model.classes_.tolist() == ["high", "low", "mid"] and len(model.kernel_) == 3
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    shares = np.array([np.mean(labels == c) for c in model.classes_])
    right = names[np.digitize(np.sin(2 * held_out[:, 0]) + held_out[:, 1], edges)]
    truth = right[:, None] == model.classes_[None, :]
    assert np.log(proba[truth]).mean() > np.log(truth @ shares).mean() + 0.3
    assert model.predict_latent(NEW)[1].shape == model.decision_function(NEW).shape == (8, 3)
    assert np.array_equal(model.predict(NEW), model.classes_[model.predict_proba(NEW).argmax(1)])


def test_probabilities_average_over_the_latent_function():
    model = Classifier(RBF, **FIXED).fit(X, BINARY)
    z, w = np.polynomial.hermite_e.hermegauss(80)
    mean, std = model.predict_latent(NEW)
    average = 1 / (1 + np.exp(-(mean[:, None] + std[:, None] * z))) @ w / w.sum()
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], average, rtol=1e-7)


def test_heavy_tails_withstand_outliers():
    y = Y.copy()
    y[::8] += 8
    truth = np.sin(2 * NEW[:, 0]) + NEW[:, 1]
    errors = {
        name: np.abs(Regressor(likelihood=name).fit(X, y).predict(NEW) - truth).mean()
        for name in ("normal", "laplace", "student_t")
    }
    assert errors["student_t"] < 0.5 * errors["normal"]
    assert errors["laplace"] < 0.7 * errors["normal"]


@pytest.mark.slow(reason="seven searches with a Student likelihood")
def test_restarts_are_not_led_astray_by_rounding():
    """Far starts make latents a thousand times wider than the noise is narrow."""
    settings = {"likelihood": "student_t", "random_state": 0}
    x = np.linspace(-3, 3, N)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * RNG.normal(size=N)
    model = Regressor(**settings, n_restarts_optimizer=5).fit(x, y)
    assert abs(model.elbo_ - Regressor(**settings).fit(x, y).elbo_) < 1


def test_counts():
    model = Regressor(likelihood="poisson").fit(X, COUNTS)
    mean, std = model.predict_latent(NEW)
    var = std**2
    rate = np.exp(mean + var / 2)
    found, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(found, rate, rtol=1e-6)
    np.testing.assert_allclose(std**2, rate + rate**2 * np.expm1(var), rtol=1e-5)


def test_single_precision_is_close():
    single = Classifier(dtype="float32").fit(X, BINARY)
    double = Classifier().fit(X, BINARY)
    np.testing.assert_allclose(single.elbo_, double.elbo_, atol=0.01)
    np.testing.assert_allclose(single.predict_proba(NEW), double.predict_proba(NEW), atol=0.01)


# Manners -----------------------------------------------------------------------------------------


@pytest.mark.slow(reason="starts another Python")
def test_a_pickle_predicts_where_jax_is_in_single_precision(tmp_path):
    model = Classifier(RBF, **FIXED).fit(X, BINARY)
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    np.save(tmp_path / "new.npy", NEW)
    script = (
        "import pickle, sys, numpy as np\n"
        "model = pickle.load(open(sys.argv[1] + '/model', 'rb'))\n"
        "np.save(sys.argv[1] + '/out.npy', model.predict_proba(np.load(sys.argv[1] + '/new.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.predict_proba(NEW), rtol=1e-9)


def test_parameters_set_after_a_fit_are_for_the_next():
    model = Classifier(RBF, **FIXED).fit(X, BINARY)
    before = model.predict_proba(NEW)
    model.set_params(link="probit", dtype="float32", kernel=None)
    np.testing.assert_array_equal(model.predict_proba(NEW), before)


def test_densities_need_a_label_for_each_row():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        normal().fit(X, Y).log_predictive_density(NEW, Y)


def test_too_few_passes_say_so():
    with pytest.warns(ConvergenceWarning, match="max_passes=1 was not enough"):
        model = Classifier(RBF, **FIXED, max_passes=1).fit(X, BINARY)
    assert model.elbo_gap_ > 1e-6


INDEFINITE = kernels.Function(lambda _, x, z: -(x @ z.T))
SKEW = kernels.Function(lambda _, x, z: x @ z.T + x[:, :1] - z[:, :1].T)
NAN = kernels.Function(lambda _, x, z: np.nan * (x @ z.T))
REFUSED = [
    ({"kernel": INDEFINITE}, "positive semidefinite; the matrix of 48 rows has the eigenvalue -"),
    ({"kernel": SKEW}, "differs from its transpose by"),
    ({"kernel": NAN}, "NaN or infinity"),
    ({"kernel": kernels.RBF([1.0, 1.0, 1.0])}, "each of the 2 inputs of the rows; got 3"),
    ({"kernel": SKLEARN_RBF, "sparse": True}, "sparse=True needs a kernel of kalvi.kernels"),
    ({"kernel": kernels.White(1.0), "sparse": True}, "correlates different rows"),
    ({"optimizer": "adam"}, "optimizer must be 'lbfgs', 'grid', None or a callable; got 'adam'"),
    ({"optimizer": "grid"}, "a dict with values for some of Constant.variance, RBF.length_scale"),
    ({"optimizer": "grid", "grid": {"length": [1]}}, "got {'length'"),
    ({"optimizer": "grid", "grid": {"Normal.variance": [0]}}, "must hold positive numbers"),
    ({"grid": {"Normal.variance": [1]}}, "grid needs optimizer='grid'"),
    ({"mean": "zero"}, "mean must be 'constant', a number or a callable"),
    ({"mean": lambda x: np.zeros(3)}, "one number for each of the 48 rows"),
    ({"batch_size": 8}, "batch_size needs sparse=True"),
    ({"batch_size": 0, "sparse": True}, "batch_size must be None or a positive integer"),
    ({"n_inducing": 0}, "n_inducing must be a positive integer"),
    ({"n_restarts_optimizer": -1}, "n_restarts_optimizer must be an integer, 0 or more"),
    ({"max_passes": 2.5}, "max_passes must be a positive integer"),
    ({"dtype": "float16"}, "dtype must be 'float32' or 'float64'"),
    ({"likelihood": "cauchy"}, "likelihood must be one of normal, laplace, student_t, poisson"),
    ({"likelihood": "poisson"}, "y must hold counts"),
]


@pytest.fixture(scope="module")
def fitted():
    return normal().fit(X, Y)


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_is_refused_leaves_the_fit_as_it_was(fitted, settings, message):
    before = fitted.predict(NEW)
    model = pickle.loads(pickle.dumps(fitted)).set_params(kernel=None, likelihood="normal")
    model.set_params(optimizer="lbfgs").set_params(**settings)
    state = dict(vars(model))
    with pytest.raises((ValueError, TypeError), match=None) as refused:
        model.fit(X, Y)
    assert message in str(refused.value)
    assert vars(model) == state
    np.testing.assert_allclose(model.predict(NEW), before, rtol=1e-12)


QUICK_CHECKS = [  # the others are among the long ones of test_checks
    estimator_checks.check_estimators_unfitted,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_set_params,
]


@pytest.mark.parametrize("check", QUICK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("model", [Classifier(optimizer=None), Regressor(optimizer=None)])
def test_scikit_learns_check(model, check):
    check(type(model).__name__, model)


def test_a_function_is_no_kernel_by_itself():
    with pytest.raises(TypeError, match=r"goes into kalvi\.kernels\.Function"):
        Regressor(lambda x, z: x @ z.T).fit(X, Y)


def test_tables_that_refuse():
    with pytest.raises(ValueError, match="two classes or more; got 1 class"):
        Classifier().fit(X, np.ones(N))
    with pytest.raises(ValueError, match="link must be one of logit, probit"):
        Classifier(link="log").fit(X, BINARY)
    with pytest.raises(ValueError, match="non-negative; row 3 has -1"):
        normal().fit(X, Y, np.where(np.arange(N) == 3, -1.0, 1.0))
    with pytest.raises(NotFittedError):
        normal().predict(X)
    with pytest.raises(AttributeError, match="after fit"):
        _ = normal().elbo_
    with pytest.raises(ValueError, match="3 features"):
        normal().fit(X, Y).predict(np.ones((2, 3)))


def test_tables_too_large_for_memory_are_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda small: 10**9)
    n = 5000
    with pytest.raises(ValueError, match=r"5000 rows needs about 2\.4 GB .* 1 GB; use sparse=True"):
        Regressor().fit(np.zeros((n, 1)), np.zeros(n))
    with pytest.raises(ValueError, match=r"3000 rows needs about 1\.3 GB"):
        Regressor(SKLEARN_RBF).fit(np.zeros((3000, 2)), np.zeros(3000))
    memory.check_memory(3000, "float64")
