"""Draws of the linear models: the ratios of the true posterior to the Gaussian, and the way to ArviZ."""

import builtins

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import log_softmax

import kalvi
from kalvi.estimators.linear import diagnostics
from kalvi.gaussians import Dense

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 2))
F = X @ [1.0, -0.5] + 0.3
Y = F + 0.7 * RNG.normal(size=60)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-F))).astype(int)
THREE = np.argmax(np.column_stack([F, -F, 0 * F]) + RNG.gumbel(size=(60, 3)), axis=1)
WEIGHT = RNG.uniform(0.5, 2, size=60)
WIDE = np.column_stack([X, np.ones(60)])


def expected_ratios(model, log_likelihood, prior_std, theta):
    """The same in dense NumPy; log_likelihood(theta) of one draw."""
    q = model.posterior_.to_dense()
    gaussian = stats.multivariate_normal(np.asarray(q.mean), np.asarray(q.cov))
    prior = stats.norm(0, prior_std).logpdf(theta).sum(axis=1)
    return prior + [log_likelihood(one) for one in theta] - gaussian.logpdf(theta)


def check(model, y, log_likelihood, prior_std, x=X):
    theta = np.asarray(model.posterior_.sample(jr.fold_in(jr.key(5), 0), 100))
    found = diagnostics.log_ratios(model.fit_, (x, y, WEIGHT), 100, jr.key(5))
    expected = expected_ratios(model, log_likelihood, prior_std, theta)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_ratios_of_a_logistic_model():
    model = kalvi.LogisticRegression(prior_scale=2.0).partial_fit(X, LABELS, sample_weight=WEIGHT)
    signs = 2 * LABELS - 1

    def log_likelihood(theta):
        return -WEIGHT @ np.logaddexp(0, -signs * (WIDE @ theta))

    check(model, LABELS.astype(float), log_likelihood, [2.0, 2.0, 20.0], sp.csr_array(X))


@pytest.mark.parametrize(
    "rank", [0, pytest.param(1, marks=pytest.mark.slow(reason="compiles a low-rank stream"))]
)
def test_ratios_of_a_model_of_counts(rank):
    counts = np.random.default_rng(4).poisson(np.exp(F))
    model = kalvi.PoissonRegression(rank=rank, passes=1).fit(X, counts, WEIGHT)

    def log_likelihood(theta):
        return WEIGHT @ stats.poisson(np.exp(WIDE @ theta)).logpmf(counts)

    check(model, counts.astype(float), log_likelihood, [1.0, 1.0, 10.0])


@pytest.mark.parametrize(
    "scheme",
    [
        "ekf",
        pytest.param(
            "implicit", marks=pytest.mark.slow(reason="compiles a stream of three classes")
        ),
    ],
)
def test_ratios_of_several_classes(scheme):
    model = kalvi.LogisticRegression(scheme=scheme, prior_scale=1.0)
    model.partial_fit(X, THREE, sample_weight=WEIGHT)

    def log_likelihood(theta):
        table = log_softmax(WIDE @ theta.reshape(3, 3).T, axis=1)
        return WEIGHT @ table[np.arange(60), THREE]

    check(model, THREE.astype(float), log_likelihood, [1.0, 1.0, 10.0] * 3)


@pytest.mark.parametrize("noise", [0.7, "auto"])
def test_a_linear_model_is_exact(noise):
    """Given the noise the posterior is Gaussian: every ratio is the evidence."""
    model = kalvi.LinearRegression(noise_scale=noise, prior_scale=3.0).fit(X, Y)
    ratios = diagnostics.log_ratios(model.fit_, (X, Y, np.ones(60)), 200, jr.key(0))
    scale = model.noise_scale_
    unit = scale if noise == "auto" else 1.0
    prior = (WIDE * np.square(unit * np.array([3.0, 3.0, 30.0]))) @ WIDE.T
    evidence = stats.multivariate_normal(np.zeros(60), prior + scale**2 * np.eye(60)).logpdf(Y)
    np.testing.assert_allclose(ratios, evidence, rtol=1e-9)
    found = model.diagnose(X, Y)
    assert (found.pareto_k, found.verdict, found.n_draws, found.n_rows) == (0.0, "good", 1000, 60)


def narrowed(model, factor: float):
    """The same model, its precision multiplied."""
    q = model.state_.posterior.rescale(jnp.asarray(factor))
    state = eqx.tree_at(lambda s: s.posterior, model.state_, q)
    model.fit_ = model.fit_.with_state(state, model.fit_.n_rows, model.fit_.optimum)
    return model


def test_a_gaussian_that_is_too_narrow_is_poor():
    """Of a third of the deviation: the ratios' tail has the shape 1 − 1/9."""
    model = narrowed(kalvi.LinearRegression(noise_scale=0.7).fit(X, Y), 9.0)
    found = model.diagnose(X, Y, random_state=0)
    assert found.verdict == "poor"
    assert found.pareto_k > 0.7
    assert found.ess < 100


def test_the_best_gaussian_is_good_whatever_the_shape_of_its_faint_tail():
    model = kalvi.LogisticRegression(prior_scale=0.3).fit(X, LABELS)
    found = model.diagnose(X, LABELS, random_state=7)
    assert found.pareto_k > 0.5
    assert found.ess > 990
    assert found.verdict == "good"


def test_a_wide_gaussian_loses_draws_as_theory_says():
    """Of √2 the deviation in d dimensions ESS/S = (√3/2)ᵈ: (E r)²/E r² of the ratio of two normals."""
    model = narrowed(kalvi.LinearRegression(noise_scale=0.7).fit(X, Y), 0.5)
    found = model.diagnose(X, Y, n_draws=20_000, random_state=0)
    assert found.verdict == "good"
    np.testing.assert_allclose(found.ess / 20_000, (np.sqrt(3) / 2) ** 3, rtol=0.02)


@pytest.mark.parametrize(
    "scale",
    [1.0, pytest.param("auto", marks=pytest.mark.slow(reason="compiles a grid of streams"))],
)
def test_a_sample_is_judged_by_a_model_of_its_own(scale):
    model = kalvi.LogisticRegression(prior_scale=scale).partial_fit(X, LABELS)
    part = kalvi.LogisticRegression(prior_scale=model.prior_scale_)
    part.partial_fit(X[:30], LABELS[:30])
    found = model.diagnose(X[:30], LABELS[:30], random_state=7)
    assert found == part.diagnose(X[:30], LABELS[:30], random_state=7)
    assert found.n_rows == 30


def test_refusals():
    model = kalvi.LogisticRegression().partial_fit(X, LABELS)
    with pytest.raises(ValueError, match="total weight up to 60; got 120"):
        model.diagnose(X, LABELS, 2 * np.ones(60))
    with pytest.raises(ValueError, match="n_draws must be at least 100; got 50"):
        model.diagnose(X, LABELS, n_draws=50)
    faded = kalvi.LogisticRegression(forgetting=0.9, rank=1).partial_fit(X[:5], LABELS[:5], [0, 1])
    with pytest.raises(ValueError, match="diagnose needs forgetting=1"):
        faded.diagnose(X, LABELS)


def test_draws_in_pieces_are_as_many(monkeypatch):
    model = kalvi.LogisticRegression().partial_fit(X, LABELS)
    monkeypatch.setattr(diagnostics, "NUMBERS", 3 * 64)
    assert model.diagnose(X, LABELS, n_draws=150, random_state=0).n_draws == 150


def test_coefficients_have_the_names_of_their_columns():
    frame = pd.DataFrame(X, columns=["age", "size"])
    model = kalvi.LogisticRegression(random_state=1).partial_fit(frame, LABELS)
    found = model.to_arviz(400).posterior["coef"]
    assert found.shape == (4, 100, 3)
    assert found.coords["coef_dim"].to_numpy().tolist() == ["age", "size", "intercept"]
    expected = model.sample_posterior(400).reshape(4, 100, 3)
    np.testing.assert_array_equal(found.to_numpy(), expected)
    bare = kalvi.LogisticRegression().partial_fit(X, LABELS).to_arviz(9)
    assert bare.posterior["coef_dim"].to_numpy().tolist() == ["x0", "x1", "intercept"]
    assert bare.posterior["coef"].shape == (1, 9, 3)


def test_refusals_of_names(monkeypatch):
    q = Dense(np.zeros(2), np.eye(2))
    for names in (["a"], ["a", "a"]):
        with pytest.raises(
            ValueError, match="names must be 2 different ones, one a parameter; got"
        ):
            q.to_arviz(names=names, key=jr.key(0))
    real = builtins.__import__

    def without(name, *args):
        if name == "arviz_base":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'kalvi\[arviz\]'"):
        q.to_arviz(key=jr.key(0))
