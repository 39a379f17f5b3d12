"""What Gaussian process estimators refuse, and likelihoods and searches out of the ordinary."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import kalvi

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=30)
BINARY = (Y > 0).astype(int)
Classifier, Regressor = kalvi.GaussianProcessClassifier, kalvi.GaussianProcessRegressor


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: Classifier().fit(X, BINARY, BINARY * 1.0), "two classes or more; got 1 class"),
        (
            lambda: Regressor(likelihood=kalvi.likelihoods.Bernoulli()).fit(X, Y),
            "y must hold 0 or 1",
        ),
        (lambda: Regressor(likelihood=["normal"]).fit(X, Y), "likelihood must be one of"),
        (lambda: Regressor(likelihood="poisson").fit(X, Y - 2), "y must hold counts"),
        (lambda: Classifier(link=["logit"]).fit(X, BINARY), "link must be one of"),
        (lambda: Regressor(mean=np.zeros(2)).fit(X, Y), "mean must be 'constant', a number"),
        (lambda: Regressor(sparse="no").fit(X, Y), "sparse must be True or False"),
    ],
)
def test_refusals(fit, message):
    with pytest.raises(ValueError, match=message):
        fit()


def test_likelihoods_of_several_predictors_are_refused():
    several = "GaussianProcessRegressor takes likelihoods of one predictor and Softmax has 3"
    with pytest.raises(TypeError, match=several):
        Regressor(likelihood=kalvi.likelihoods.Softmax(3)).fit(X, BINARY)


def test_results_before_fit_say_so():
    with pytest.raises(AttributeError, match="after fit"):
        _ = Regressor().kernel_


def test_a_likelihood_of_ones_own():
    """A normal one written by hand is the normal one."""
    own = kalvi.Custom(lambda f, y: -((y - f) ** 2) / 0.02, lambda f: (f, jnp.full_like(f, 0.01)))
    fixed = {"mean": 0.0, "optimizer": None}
    model = Regressor(likelihood=own, **fixed).fit(X, Y)
    known = Regressor(likelihood=kalvi.likelihoods.Normal(0.01), **fixed).fit(X, Y)
    np.testing.assert_allclose(model.predict_latent(X), known.predict_latent(X), atol=1e-6)
    assert list(model.hyperparameters_) == ["Constant.variance", "RBF.length_scale"]


@pytest.mark.slow(reason="two searches with a Student likelihood")
def test_a_search_comes_back_from_where_there_is_no_bound():
    sharp = Regressor(likelihood="student_t").fit(X, Y)
    model = Regressor(likelihood="student_t", dtype="float32").fit(X, Y)
    assert abs(model.elbo_ - sharp.elbo_) < 0.5
    loss = -np.mean(stats.norm(*model.predict(X, return_std=True)).logpdf(Y))
    assert loss < -np.mean(stats.norm(Y.mean(), Y.std()).logpdf(Y))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("fits_", [], "fits_"),
        ("fits_", [1], "fits_"),
        ("n_features_in_", 3, "n_features_in_ and fits_"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(name, wrong, message):
    kept = Regressor(optimizer=None).fit(X, Y).__getstate__() | {name: wrong}
    with pytest.raises(ValueError, match=f"attributes that contradict each other: {message}"):
        Regressor().__setstate__(kept)


def test_predictions_ask_mean_functions_about_given_points_only():
    model = Regressor(mean=lambda x: np.log(x[:, 0]), optimizer=None).fit(np.exp(X), Y)
    assert np.all(np.isfinite(model.predict(np.exp(X[:11]))))  # log of a filled-up zero would warn
