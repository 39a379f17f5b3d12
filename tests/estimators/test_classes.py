"""Logistic regression of three classes: optimum, streams, weights, ranks, scales and refusals."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import optimize, special
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression as Penalised
from sklearn.metrics import log_loss

import kalvi
from tests import oracles

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 1))
SCORES = 2 * X @ np.array([[-1.0, 0.0, 1.0]]) + np.array([0.0, 0.5, 0.0])
Y = np.array(["ant", "bee", "cat"])[np.argmax(SCORES + RNG.gumbel(size=(48, 3)), axis=1)]
INDEX = np.searchsorted(["ant", "bee", "cat"], Y)


def posterior(model):
    return np.asarray(model.posterior_.mean), np.asarray(model.posterior_.covariance.to_dense())


def same(one, other, rtol=1e-9):
    for a, b in zip(posterior(one), posterior(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.fixture(scope="module")
def fitted():
    return kalvi.LogisticRegression(prior_scale=2.0).fit(X, Y)


@pytest.fixture(scope="module")
def streamed():
    return kalvi.LogisticRegression(passes=1).fit(X, Y)


def bound(mean, root):
    """The variational bound of N(mean, root rootᵀ) by a fine grid over two differences of predictors."""
    prior = np.diag(np.tile([4.0, 400.0], 3))
    grid = np.linspace(-6, 6, 31)
    z = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    weight = np.exp(-np.sum(z**2, axis=1) / 2)
    weight /= weight.sum()
    total = -oracles.gaussian_kl(mean, root @ root.T, np.zeros(6), prior)
    for row, label in zip(X, INDEX, strict=True):
        design = np.kron(np.eye(3), np.append(row, 1))
        apart = design[1:] - design[0]
        half = np.linalg.cholesky(apart @ root @ root.T @ apart.T)
        f = np.column_stack([np.zeros(len(z)), apart @ mean + z @ half.T])
        total += weight @ special.log_softmax(f, axis=1)[:, label]
    return total


def optimality(model, index, x=X):
    """What the optimum's equations leave: the gradient in deviations, and how far the precision is."""
    mean, cov = posterior(model)
    line = np.linspace(-7, 7, 71)
    z = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    weight = np.exp(-np.sum(z**2, axis=1) / 2)
    weight /= weight.sum()
    target = np.diag(1 / np.tile([4.0, 400.0], 3))
    gradient = -target @ mean
    for row, label in zip(x, index, strict=True):
        design = np.kron(np.eye(3), np.append(row, 1))
        apart = design[1:] - design[0]
        half = np.linalg.cholesky(apart @ cov @ apart.T)
        p = special.softmax(np.column_stack([np.zeros(len(z)), apart @ mean + z @ half.T]), axis=1)
        average = weight @ p
        gradient += design.T @ (np.eye(3)[label] - average)
        bend = np.diag(average) - p.T @ (weight[:, None] * p)
        target += design.T @ bend @ design
    return np.sqrt(gradient @ cov @ gradient), target @ cov - np.eye(6)


def test_fit_solves_the_equations_of_the_optimum(fitted):
    """Expected gradients and curvatures on a fine grid over two differences of predictors."""
    gradient, excess = optimality(fitted, INDEX)
    assert gradient < 1e-6 and np.abs(excess).max() < 1e-6  # the softmax's integrals
    once = kalvi.LogisticRegression(prior_scale=2.0, passes=1).fit(X, Y)
    assert optimality(once, INDEX)[0] > 0.01


def test_an_intercept_has_a_scale_of_its_own():
    narrow = kalvi.LogisticRegression(prior_scale=[1e-6, 1.0], passes=1).fit(X, Y)
    assert np.max(np.abs(narrow.coef_)) < 1e-9 and np.max(np.abs(narrow.intercept_)) > 0.1


def test_an_automatic_scale_has_the_most_evidence():
    settings = {"scheme": "ekf", "passes": 1}  # the quickest to compile
    auto = kalvi.LogisticRegression(prior_scale="auto", **settings).fit(X, Y)
    scale = auto.prior_scale_
    chosen, narrow, wide = (
        kalvi.LogisticRegression(prior_scale=s, **settings).fit(X, Y)
        for s in (scale, scale / 10, scale * 10)
    )
    same(auto, chosen, 1e-7)
    assert auto.log_evidence_ == pytest.approx(chosen.log_evidence_, rel=1e-9)
    assert auto.log_evidence_ > max(narrow.log_evidence_, wide.log_evidence_)


def test_low_rank_passes_of_few_rows():
    """Rank 4 holds all that three classes say of a line: the optimum's equations, in any batches before."""
    x, y = X[:12], Y[:12]
    settings = {"rank": 4, "prior_scale": 2.0}
    parts = kalvi.LogisticRegression(**settings)
    for rows in (slice(0, 3), slice(3, 12)):
        parts.partial_fit(x[rows], y[rows], classes=np.unique(Y))
    same(parts, kalvi.LogisticRegression(passes=1, **settings).fit(x, y))
    climbed = kalvi.LogisticRegression(**settings).fit(x, y)
    assert climbed.n_passes_ > 1
    assert optimality(climbed, INDEX[:12], x)[0] < 0.01 * optimality(parts, INDEX[:12], x)[0]


@pytest.mark.slow(reason="differences of a bound in 27 dimensions, and three fits")
def test_fit_is_the_optimum_of_the_bound(fitted):
    mean, cov = posterior(fitted)
    index = np.tril_indices(6)

    def at(u):
        root = np.zeros((6, 6))
        root[index] = u[6:]
        return bound(u[:6], root)

    lower = np.linalg.cholesky(cov)
    here = np.concatenate([mean, lower[index]])
    slope = optimize.approx_fprime(here, at, 1e-6)
    scale = np.concatenate([np.sqrt(np.diag(cov)), np.diag(lower)[index[0]]])
    assert np.max(np.abs(slope * scale)) < 1e-3  # nats a deviation: integrals, and differences
    assert abs(fitted.elbo_ - at(here)) < 1e-3
    rising = [
        kalvi.LogisticRegression(prior_scale=2.0, passes=n).fit(X, Y).elbo_ for n in (2, 3, 5)
    ]
    assert np.all(np.diff([*rising, fitted.elbo_]) > 0)
    # the problem is concave in the mean and the root, so this is the only such point
    assert fitted.n_passes_ > 1 and fitted.elbo_gap_ < 1e-10


def test_shapes_and_probabilities(fitted):
    assert fitted.coef_.shape == (3, 1) and fitted.intercept_.shape == (3,)
    np.testing.assert_array_equal(fitted.classes_, ["ant", "bee", "cat"])
    scores, p = fitted.decision_function(X), fitted.predict_proba(X)
    np.testing.assert_allclose(scores, X @ fitted.coef_.T + fitted.intercept_, rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[np.argmax(scores, axis=1)])
    draws = fitted.sample_posterior(20_000, random_state=0).reshape(-1, 3, 2)
    f = np.append(X[0], 1) @ draws.transpose(0, 2, 1)
    chance = special.softmax(f, axis=1)
    assert np.all(np.abs(chance.mean(axis=0) - p[0]) < 5 * chance.std(axis=0) / np.sqrt(20_000))
    same(pickle.loads(pickle.dumps(fitted)), fitted, 0)


def test_a_stream_is_one_pass_whatever_the_batches(streamed):
    parts = kalvi.LogisticRegression(prior_scale=1.0)
    for rows in (slice(0, 5), slice(5, 37), slice(37, 48)):
        parts.partial_fit(X[rows], Y[rows], classes=["cat", "ant", "bee"])
    same(parts, streamed)
    assert parts.log_evidence_ == pytest.approx(streamed.log_evidence_, rel=1e-9)
    sparse = kalvi.LogisticRegression(passes=1).fit(sp.csr_array(X), Y)
    same(sparse, streamed)
    extra = np.concatenate([X, 9 * X[:4]]), np.concatenate([Y, Y[:4][::-1]])
    weight = np.append(np.ones(48), np.zeros(4))
    same(kalvi.LogisticRegression(passes=1).fit(*extra, sample_weight=weight), streamed)


def test_a_posterior_is_a_prior(streamed):
    first = kalvi.LogisticRegression(prior_scale=1.0).partial_fit(
        X[:20], Y[:20], classes=np.unique(Y)
    )
    then = kalvi.LogisticRegression(prior=first.posterior_)
    same(then.partial_fit(X[20:], Y[20:], classes=np.unique(Y)), streamed)


@pytest.mark.slow(reason="compiles streams and passes of three classes at a low rank")
def test_low_rank_streams_and_climbs(fitted):
    parts = kalvi.LogisticRegression(rank=4, prior_scale=2.0)
    for rows in (slice(0, 3), slice(3, 48)):
        parts.partial_fit(X[rows], Y[rows], classes=np.unique(Y))
    whole = kalvi.LogisticRegression(rank=4, prior_scale=2.0, passes=1).fit(X, Y)
    same(parts, whole)
    # the softmax says nothing of one common shift and one common slope: rank 4 holds all it does say
    climbed = kalvi.LogisticRegression(rank=4, prior_scale=2.0).fit(X, Y)
    assert climbed.n_passes_ > 1
    assert climbed.elbo_ == pytest.approx(fitted.elbo_, abs=0.01)
    np.testing.assert_allclose(climbed.predict_proba(X), fitted.predict_proba(X), atol=0.01)


@pytest.mark.slow(reason="compiles a grid of streams of three classes")
def test_automatic_and_separate_scales():
    auto = kalvi.LogisticRegression(prior_scale="auto", passes=1).fit(X, Y)
    chosen = kalvi.LogisticRegression(prior_scale=auto.prior_scale_, passes=1).fit(X, Y)
    same(auto, chosen, 1e-7)
    narrow = kalvi.LogisticRegression(prior_scale=[1e-6, 1.0], passes=1).fit(X, Y)
    assert np.max(np.abs(narrow.coef_)) < 1e-9 and np.max(np.abs(narrow.intercept_)) > 0.1


@pytest.mark.slow(reason="compiles stream and passes of another shape")
def test_iris_is_learned_as_well_as_by_penalised_likelihood():
    x, y = load_iris(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    train = np.arange(150) % 2 == 0
    ours = kalvi.LogisticRegression(prior_scale=3.0).fit(x[train], y[train])
    theirs = Penalised(C=9.0, max_iter=1000).fit(x[train], y[train])
    loss = log_loss(y[~train], ours.predict_proba(x[~train]))
    assert loss < log_loss(y[~train], theirs.predict_proba(x[~train])) + 0.02
    assert ours.score(x[~train], y[~train]) >= theirs.score(x[~train], y[~train]) - 0.03


def test_refusals():
    with pytest.raises(ValueError, match="scheme='qkf' is for two classes and y has 3"):
        kalvi.LogisticRegression(scheme="qkf").fit(X, Y)
    with pytest.raises(ValueError, match="rank=7 exceeds the 6 parameters"):
        kalvi.LogisticRegression(rank=7).fit(X, Y)
    with pytest.raises(ValueError, match="prior has 2 parameters but this model has 6"):
        kalvi.LogisticRegression(prior=kalvi.Dense(np.zeros(2), np.eye(2))).fit(X, Y)
    model = kalvi.LogisticRegression().partial_fit(X, Y)
    with pytest.raises(ValueError, match="y contains 'dog', which is not one of"):
        model.partial_fit(X[:1], ["dog"])
