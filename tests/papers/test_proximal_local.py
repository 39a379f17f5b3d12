"""Local variables in the proximal point against coordinate ascent in NumPy and scikit-learn's topics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp
from sklearn.decomposition import LatentDirichletAllocation

from kalvi.rules.rule import Batch
from kalvi.streams import run
from papers.proximal_local import GaussianMixture, Topics
from papers.proximal_point import ProximalPoint

RNG = np.random.default_rng(0)
Y = np.concatenate([RNG.normal(-3, 1, 30), RNG.normal(2, 1, 50)])
MIXTURE = GaussianMixture(2, spread=25.0, concentration=1.5)
SHARES, MEANS, VARIANCES = np.array([2.0, 2.0]), np.array([-1.0, 1.0]), np.array([1.0, 1.0])


def batch(y, weight=1.0):
    y = jnp.asarray(y)
    return Batch(jnp.zeros((len(y), 0)), y, jnp.full(len(y), weight))


def factors():
    normals = [jnp.array([m / v, -0.5 / v]) for m, v in zip(MEANS, VARIANCES, strict=True)]
    return (jnp.asarray(SHARES), *normals)


def scores(a, m, v):
    square = (Y[:, None] - m) ** 2 + v
    return digamma(a) - digamma(a.sum()) - (square + np.log(2 * np.pi)) / 2


def coordinate_ascent(rounds):
    """Variational Bayes of the mixture with the shares and then the means updated, in plain NumPy."""
    a, m, v = SHARES, MEANS.copy(), VARIANCES.copy()
    for _ in range(rounds):
        s = scores(a, m, v)
        a = 1.5 + np.exp(s - logsumexp(s, axis=1, keepdims=True)).sum(axis=0)
        for k in range(2):
            s = scores(a, m, v)
            r = np.exp(s - logsumexp(s, axis=1, keepdims=True))[:, k]
            v[k] = 1 / (1 / 25 + r.sum())
            m[k] = v[k] * (r @ Y)
    return a, m, v


def mixture_bound(a, m, v):
    rows = logsumexp(scores(a, m, v), axis=1).sum()
    log_share = digamma(a) - digamma(a.sum())
    kl = (
        gammaln(a.sum())
        - gammaln(a).sum()
        - gammaln(3.0)
        + 2 * gammaln(1.5)
        + (a - 1.5) @ log_share
    )
    return rows - kl - np.sum(np.log(25 / v) + (v + m**2) / 25 - 1) / 2


def test_a_mixture_is_coordinate_ascent_in_numpy():
    rule = ProximalPoint(MIXTURE, jnp.inf)
    state = rule.init(factors())
    for _ in range(5):
        state = run.advance(rule, state, batch(Y))
    a, m, v = coordinate_ascent(5)
    np.testing.assert_allclose(state.naturals[0], a, rtol=1e-10)
    means = np.array([-n[0] / (2 * n[1]) for n in state.naturals[1:]])
    np.testing.assert_allclose(means, m, rtol=1e-10)
    np.testing.assert_allclose(state.elbo, mixture_bound(a, m, v), rtol=1e-10)


@pytest.mark.parametrize("beta", [0.3, 3.0])
def test_the_bound_of_a_mixture_never_falls(beta):
    rule = ProximalPoint(MIXTURE, beta)
    state, bounds = rule.init(factors()), []
    for _ in range(30):
        state = run.advance(rule, state, batch(Y))
        bounds.append(float(state.elbo))
    assert np.all(np.diff(bounds) > -1e-10)


def test_minibatches_come_near_to_all_rows():
    whole = ProximalPoint(MIXTURE, jnp.inf)
    state = whole.init(factors())
    for _ in range(50):
        state = run.advance(whole, state, batch(Y))
    rule = ProximalPoint(MIXTURE, 1.0, rows=len(Y), decay=0.5)
    few, order = rule.init(factors()), np.random.default_rng(1)
    for _ in range(600):
        few = run.advance(rule, few, batch(order.choice(Y, 20, replace=False)))
    for part, best in zip(few.naturals, state.naturals, strict=True):
        np.testing.assert_allclose(part, best, rtol=0.08)


COUNTS = RNG.poisson(
    np.where(RNG.uniform(size=(12, 1)) < 0.5, [3, 3, 2, 0.2, 0.2, 0.1], [0.1, 0.2, 0.3, 2, 3, 4])
).astype(float)


def test_topics_are_those_of_scikit_learn():
    """One full step is an iteration of its batch variational Bayes, which updates all topics at once."""
    model = Topics(2, 6, mixing=0.5, sparsity=0.3, rounds=5000)
    peer = LatentDirichletAllocation(
        2, doc_topic_prior=0.5, topic_word_prior=0.3, max_iter=1, max_doc_update_iter=2000,
        mean_change_tol=1e-14, random_state=0,
    )  # fmt: skip
    peer._init_latent_vars(6, dtype=np.float64)
    start = tuple(jnp.asarray(row) for row in peer.components_)
    documents = Batch(jnp.asarray(COUNTS), jnp.zeros(12), jnp.ones(12))
    expectations = model.expectations(start)
    found = [jax.jit(model.target, static_argnums=0)(k, expectations, documents) for k in range(2)]
    peer._em_step(COUNTS, total_samples=12, batch_update=True)
    np.testing.assert_allclose(found, peer.components_, rtol=1e-6)


def test_the_bound_of_topics_never_falls_and_its_slope_is_that_of_all_local_factors():
    model = Topics(2, 6)
    rule = ProximalPoint(model, 2.0)
    documents = Batch(jnp.asarray(COUNTS), jnp.zeros(12), jnp.ones(12))
    state, bounds = rule.init(tuple(jnp.asarray(RNG.gamma(5, 1, 6)) for _ in range(2))), []
    for _ in range(25):
        state = run.advance(rule, state, documents)
        bounds.append(float(state.elbo))
    assert np.all(np.diff(bounds) > -1e-9)

    def height(shift):  # the local factors move along, the slope is the same
        first, second = model.expectations(state.naturals)
        return float(model.joint((first + shift, second), documents))

    slope = model.target(0, model.expectations(state.naturals), documents)
    h = 1e-5 * np.eye(6)
    numeric = [(height(jnp.asarray(e)) - height(jnp.asarray(-e))) / 2e-5 for e in h]
    np.testing.assert_allclose(slope, numeric, rtol=1e-5)
