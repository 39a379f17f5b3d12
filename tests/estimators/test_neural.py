"""Bayesian networks as estimators: against exact posteriors where the network is linear, and by use."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris

import kalvi
from kalvi.evaluation import metrics
from tests import oracles, tables


def curve(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)


def test_a_linear_network_is_a_linear_regression():
    """No hidden layer, prior and noise given: the exact posterior, in the units of standardised rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)) * [1, 10, 0.1] + 5
    y = x @ [1, 0.2, 3] + 0.5 * rng.normal(size=60)
    model = kalvi.NeuralRegressor(
        (), prior_precision=2.0, noise_scale=0.5, epochs=20, random_state=0
    ).fit(x, y)
    z = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(60)])
    t, variance = (y - y.mean()) / y.std(), (0.5 / y.std()) ** 2
    cov = np.linalg.inv(2 * np.eye(4) + z.T @ z / variance)
    mean = cov @ z.T @ t / variance
    np.testing.assert_allclose(model.posterior_.mean, mean, atol=1e-6)
    np.testing.assert_allclose(model.posterior_.cov, cov, rtol=1e-6, atol=1e-9)
    found, std = model.predict(x[:5], return_std=True)
    np.testing.assert_allclose(found, z[:5] @ mean * y.std() + y.mean(), rtol=1e-6)
    spread = np.einsum("nd,de,ne->n", z[:5], cov, z[:5]) + variance
    np.testing.assert_allclose(std, np.sqrt(spread) * y.std(), rtol=1e-6)
    evidence = np.linalg.slogdet(variance * np.eye(60) + z @ z.T / 2)[1]
    evidence = -(t @ np.linalg.solve(variance * np.eye(60) + z @ z.T / 2, t) + evidence) / 2
    np.testing.assert_allclose(model.elbo_, evidence - 30 * np.log(2 * np.pi), rtol=1e-6)


def standardised(a, weight):
    mean = np.average(a, axis=0, weights=weight)
    std = np.sqrt(np.average((a - mean) ** 2, axis=0, weights=weight))
    return (a - mean) / std, mean, std


def test_several_targets_and_weights_of_a_linear_network():
    """Each target has its own regression; a row of weight w is w rows, also in the units."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2)) * [1, 10] + 5
    y = x @ [[1, -3], [0.2, 1]] + 0.5 * rng.normal(size=(20, 2))
    weight = np.array([1.0, 2.0, 0.0, 0.5] * 5)
    model = kalvi.NeuralRegressor(
        (), prior_precision=2.0, noise_scale=0.5, epochs=10, random_state=0
    ).fit(x, y, weight)
    found, std = model.predict(x, return_std=True)
    z = np.column_stack([standardised(x, weight)[0], np.ones(20)])
    t, centre, scale = standardised(y, weight)
    for k in range(2):
        variance = (0.5 / scale[k]) ** 2
        mean, cov = oracles.linear_posterior(
            np.zeros(3), np.eye(3) / 2, z, t[:, k], variance, weight
        )
        np.testing.assert_allclose(found[:, k], z @ mean * scale[k] + centre[k], rtol=1e-6)
        spread = np.einsum("nd,de,ne->n", z, cov, z) + variance
        np.testing.assert_allclose(std[:, k], np.sqrt(spread) * scale[k], rtol=1e-6)


def test_a_low_rank_that_holds_all():
    """The precision of a linear network, wherever the training left its mean."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 3))
    y = x @ [1.0, 0.2, 3.0] + 0.5 * rng.normal(size=16)
    model = kalvi.NeuralRegressor(
        (), rank=4, prior_precision=2.0, noise_scale=0.5, epochs=3, random_state=0
    ).fit(x, y)
    assert isinstance(model.posterior_, kalvi.LowRankPrecision) and model.dtype_ == "float32"
    assert model.posterior_.precision.factor.shape == (4, 4)
    z = np.column_stack([standardised(x, None)[0], np.ones(16)])
    exact = 2 * np.eye(4) + z.T @ z / (0.5 / y.std()) ** 2
    root = np.linalg.cholesky(np.linalg.inv(exact))
    found = root.T @ np.asarray(model.posterior_.precision.to_dense(), float) @ root
    np.testing.assert_allclose(found, np.eye(4), atol=5e-3)


def test_one_pass_of_a_linear_network_goes_on():
    """From the posterior of the first rows, and in their units, to that of all."""
    x, y = curve(20)
    model = kalvi.NeuralRegressor(
        (), method="lrvga", prior_precision=2.0, noise_scale=0.5, random_state=0
    )
    first = model.partial_fit(x[:12], y[:12]).posterior_
    last = model.partial_fit(x[12:], y[12:]).posterior_
    z = np.column_stack([(x[12:] - x[:12].mean()) / x[:12].std(), np.ones(8)])
    t, variance = (y[12:] - y[:12].mean()) / y[:12].std(), (0.5 / y[:12].std()) ** 2
    mean, cov = oracles.linear_posterior(
        np.asarray(first.mean), np.asarray(first.cov), z, t, variance
    )
    np.testing.assert_allclose(last.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(last.cov, cov, rtol=1e-9, atol=1e-12)
    seen = np.column_stack([standardised(x[:12], None)[0], np.ones(12)])
    np.testing.assert_allclose(
        np.linalg.inv(first.cov), 2 * np.eye(2) + seen.T @ seen / variance, rtol=1e-9, atol=1e-9
    )
    assert float(model.fit_.learned.state.rows) == 20


def test_classes_of_a_linear_network():
    """The optimum's equations and the probabilities, by quadrature over three predictors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 1))
    labels = np.array([0, 1, 2, 2, 1, 0])
    names = np.array(["a", "b", "c"])[labels]
    model = kalvi.NeuralClassifier(
        (), prior_precision=1.0, epochs=100, learning_rate=0.1, random_state=0
    ).fit(x, names)
    mean, cov = np.asarray(model.posterior_.mean), np.asarray(model.posterior_.cov)
    z = standardised(x, None)[0]
    softmax, target, gradient = tables.BY_NAME["softmax"], np.eye(6), -mean
    p, epistemic, aleatoric = model.predict_parts(x)
    for i, label in enumerate(labels):
        design = np.hstack([z[i, 0] * np.eye(3), np.eye(3)])  # weights, then biases
        law = design @ mean, design @ cov @ design.T
        chance = oracles.expect_vector(lambda f: softmax.moments(f)[0], *law)
        bend = oracles.expect_vector(lambda f: softmax.moments(f)[1], *law)
        gradient = gradient + design.T @ (np.eye(3)[label] - chance)
        target = target + design.T @ bend @ design
        np.testing.assert_allclose(p[i], chance, atol=1e-4)
        np.testing.assert_allclose(aleatoric[i], np.diag(bend), atol=1e-4)
        np.testing.assert_allclose(epistemic[i] + aleatoric[i], chance * (1 - chance), atol=1e-4)
    # the last natural-gradient steps are few
    assert np.sqrt(gradient @ cov @ gradient) < 1e-3
    np.testing.assert_allclose(target @ cov, np.eye(6), atol=1e-3)
    assert list(model.classes_) == ["a", "b", "c"]


def test_a_curve():
    x, y = curve()
    model = kalvi.NeuralRegressor((10,), epochs=1500, random_state=0).fit(x, y)
    new, truth = curve(500, 1)
    mean, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((mean - np.sin(2 * new[:, 0])) ** 2)) < 0.05
    assert 0.08 < model.noise_scale_ < 0.12
    assert 0.92 < metrics.coverage(mean, std, truth) < 0.98
    _, epistemic, aleatoric = model.predict_parts([[0.0], [20.0]])
    assert epistemic[1] > 100 * epistemic[0]
    np.testing.assert_allclose(aleatoric, model.noise_scale_**2)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), mean)
    assert model.sample_posterior(3).shape == (3, model.n_parameters_)


@pytest.mark.parametrize(
    "method",
    [
        "swag",
        pytest.param(
            "multiswag", marks=pytest.mark.slow(reason="trains two networks side by side")
        ),
        pytest.param("fa", marks=pytest.mark.slow(reason="compiles a factor analysis of iterates")),
        pytest.param("multifa", marks=pytest.mark.slow(reason="trains two networks side by side")),
    ],
)
def test_iterates(method):
    x, y = curve()
    model = kalvi.NeuralRegressor(
        (10,), method=method, rank=3, epochs=200, n_members=2, random_state=0
    ).fit(x, y)
    assert model.score(x, y) > 0.9
    _, epistemic, _ = model.predict_parts(x)
    assert np.all(epistemic > 0)
    if method.startswith("multi"):
        means = [np.asarray(q.mean) for q in model.posterior_.components]
        assert np.linalg.norm(means[0] - means[1]) > 1  # two runs, two modes


@pytest.mark.slow(reason="compiles a stream of a network")
def test_one_pass_goes_on():
    x, y = curve(600)
    model = kalvi.NeuralRegressor((20,), method="lrvga", random_state=0)
    for part in np.array_split(np.arange(600), 3):
        model.partial_fit(x[part], y[part])
    assert model.score(*curve(300, 1)) > 0.8
    assert float(model.fit_.learned.state.rows) == 600


@pytest.mark.slow(reason="a thousand epochs")
def test_low_rank():
    x, y = curve()
    model = kalvi.NeuralRegressor((10,), rank=5, epochs=1000, random_state=0).fit(x, y)
    assert isinstance(model.posterior_, kalvi.LowRankPrecision)
    assert model.posterior_.precision.factor.shape == (31, 5)
    assert model.dtype_ == "float32"
    assert model.score(x, y) > 0.95


@pytest.mark.slow(reason="compiles the descent of five tables")
def test_weights_are_repeats():
    """Twice the weight is each row twice; a thousandth of it leaves nearly the prior; none is no row."""
    x, y = curve(30)
    model = kalvi.NeuralRegressor(
        (3,), epochs=20, noise_scale=0.1, prior_precision=1.0, random_state=0
    )
    twice = model.fit(np.vstack([x, x]), np.append(y, y)).predict(x, return_std=True)
    weighted = model.fit(x, y, sample_weight=np.full(30, 2.0)).predict(x, return_std=True)
    np.testing.assert_allclose(weighted, twice, rtol=1e-6)
    some = np.where(np.arange(30) < 20, 1.0, 0.0)
    less = model.fit(x[:20], y[:20]).predict(x, return_std=True)
    np.testing.assert_allclose(model.fit(x, y, some).predict(x, return_std=True), less, rtol=1e-6)
    wide = model.fit(x, y, np.full(30, 1e-3)).predict(x, return_std=True)[1]
    assert wide.mean() > 2 * less[1].mean()


def test_units_do_not_matter():
    x, y = curve(30)
    model = kalvi.NeuralRegressor((3,), epochs=20, random_state=0)
    plain = model.fit(x, y).predict(x)
    for scale in (1e-100, 1e100):  # beyond these the variance of y is no number
        found = model.fit(scale * x, scale * y).predict(scale * x)
        np.testing.assert_allclose(found / scale, plain, rtol=1e-6)


@pytest.mark.slow(reason="three hundred epochs, and integrals of a softmax")
def test_classes():
    x, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = kalvi.NeuralClassifier((4,), epochs=300, random_state=0).fit(x, names)
    p, epistemic, aleatoric = model.predict_parts(x)
    assert model.score(x, names) > 0.95
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(epistemic + aleatoric, p * (1 - p), atol=1e-6)
    far = model.predict_proba(x[:1] + 100)
    assert far.max() < 0.999  # no certainty where nothing was seen


@pytest.mark.slow(reason="a thousand epochs")
def test_several_targets():
    x, y = curve()
    both = np.column_stack([y, 3 * np.cos(x[:, 0])])
    model = kalvi.NeuralRegressor((10,), epochs=1000, random_state=0).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (200, 2)
    assert model.noise_scale_.shape == (2,)
    assert model.score(x, both) > 0.95


def test_refusals():
    x, y = curve(20)
    bad = {
        "method must be one of vifa, swag": {"method": "x"},
        "hidden_sizes must be a tuple of positive integers": {"hidden_sizes": (0,)},
        "rank must be 'auto', None or an integer of at least 2": {"rank": 1},
        "rank=1000 exceeds the 151 parameters": {"rank": 1000},
        "epochs must be 'auto' or a positive integer": {"epochs": 0},
        "noise_scale must be 'auto' or a positive number": {"noise_scale": -1.0},
        "learning_rate must be a positive number": {"learning_rate": "auto"},
        "needs a rank of at least 2, or 'auto'; got rank=None": {"method": "swag", "rank": None},
    }
    for message, given in bad.items():
        with pytest.raises(ValueError, match=message):
            kalvi.NeuralRegressor(**given).fit(x, y)
    with pytest.raises(AttributeError) as raised:
        kalvi.NeuralRegressor().partial_fit(x, y)
    assert "partial_fit needs a method of one pass" in str(raised.value.__cause__)
    with pytest.raises(ValueError, match="needs two classes or more"):
        kalvi.NeuralClassifier().fit(x, np.zeros(20))
    with pytest.raises(ValueError, match="two rows or more to learn their scales"):
        kalvi.NeuralRegressor(method="lrvga").partial_fit(x[:1], y[:1])
    begun = kalvi.NeuralClassifier((2,), method="lrvga").partial_fit(x, y > 0)
    with pytest.raises(ValueError, match="differ from those of the first call"):
        begun.partial_fit(x, y > 0, classes=[1, 2])
    with pytest.raises(ValueError, match="the network was begun with"):
        begun.set_params(hidden_sizes=(3,)).partial_fit(x, y > 0)
    with pytest.raises(ValueError, match="check its units"):
        begun.set_params(hidden_sizes=(2,)).predict([[1e300]])
    with pytest.raises(ValueError, match="sample_weight must be non-negative"):
        kalvi.NeuralRegressor().fit(x, y, sample_weight=-np.ones(20))
    with pytest.raises(ValueError, match="dtype must be 'auto', 'float64' or 'float32'"):
        kalvi.NeuralRegressor(dtype="int8").fit(x, y)
    with pytest.raises(AttributeError, match="elbo_ exists only after method='vifa' with a full"):
        _ = begun.elbo_
    with pytest.raises(AttributeError, match="posterior_ exists only after fit"):
        _ = kalvi.NeuralRegressor().posterior_


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("fitted_", None, "fitted_ and perceptron_"),
        ("structure_", {}, "structure_"),
        ("x_mean_", np.zeros(2), "n_features_in_ and perceptron_"),
        ("perceptron_", kalvi.networks.Perceptron((1, 3, 1)), "posterior_ and perceptron_"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(name, wrong, message):
    x, y = curve(20)
    begun = kalvi.NeuralClassifier((2,), method="lrvga").partial_fit(x, y > 0)
    with pytest.raises(ValueError, match=f"attributes that contradict each other: {message}"):
        kalvi.NeuralClassifier().__setstate__(begun.__getstate__() | {name: wrong})
