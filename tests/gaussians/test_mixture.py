import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from kalvi.gaussians import Dense, Diagonal
from kalvi.gaussians.mixture import Mixture
from tests import tables

RNG = np.random.default_rng(0)
KNOWN = [structure.make(RNG) for structure in tables.STRUCTURES]
WEIGHTS = np.arange(1.0, len(KNOWN) + 1)
SHARES = WEIGHTS / WEIGHTS.sum()
MEAN = SHARES @ np.stack([k.mean for k in KNOWN])
COV = sum(
    w * (k.cov + np.outer(k.mean - MEAN, k.mean - MEAN)) for w, k in zip(SHARES, KNOWN, strict=True)
)


@pytest.fixture(scope="module")
def mixture():
    return Mixture([k.q for k in KNOWN], WEIGHTS)


def test_moments(mixture):
    x = np.random.default_rng(1).normal(size=(3, len(MEAN)))
    assert mixture.dim == len(MEAN)
    np.testing.assert_allclose(mixture.mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(mixture.variance(), np.diag(COV), rtol=1e-10)
    np.testing.assert_allclose(mixture.matvec(jnp.asarray(x.T)), COV @ x.T, rtol=1e-9)
    np.testing.assert_allclose(mixture.matvec(jnp.asarray(x[0])), COV @ x[0], rtol=1e-9)
    np.testing.assert_allclose(
        mixture.marginal_variance(jnp.asarray(x)), np.diag(x @ COV @ x.T), rtol=1e-10
    )


def test_density(mixture):
    theta = np.random.default_rng(2).normal(size=len(MEAN))
    terms = [stats.multivariate_normal(k.mean, k.cov).logpdf(theta) for k in KNOWN]
    expected = logsumexp(terms, b=SHARES)
    np.testing.assert_allclose(mixture.log_prob(jnp.asarray(theta)), expected, rtol=1e-10)


def test_draws_have_its_moments():
    far = Mixture([Dense([5.0, 0], np.eye(2)), Diagonal([-5.0, 0], [4.0, 9])], [3, 1])
    draws = np.asarray(far.sample(jr.key(0), 20_000))
    mean, var = np.array([2.5, 0]), np.array([1.75 + 18.75, 3.0])
    error = np.sqrt(var / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4 * error)
    np.testing.assert_allclose(draws.var(axis=0), var, rtol=0.05)
    left = np.mean(draws[:, 0] < 0)  # 4 standard errors of a share of 1/4
    assert abs(left - (0.25 * stats.norm.cdf(2.5) + 0.75 * stats.norm.cdf(-5))) < 0.0123
    assert len(np.unique(draws[:, 0])) == len(draws)


def test_equal_weights_are_the_default():
    both = Mixture([k.q for k in KNOWN[:2]])
    np.testing.assert_array_equal(both.weights, [0.5, 0.5])


@pytest.mark.parametrize(
    ("components", "weights", "message"),
    [
        ([], None, "at least one component; got none"),
        ([Diagonal([0.0], [1.0]), KNOWN[0].q], None, r"got float64\[1\], float64\[6\]"),
        ([KNOWN[0].q, KNOWN[1].q], [1.0], r"weights of shape \(2,\); got \(1,\)"),
        ([KNOWN[0].q, KNOWN[1].q], [1.0, -1], "weights must be positive and finite; entry 1 is -1"),
    ],
)
def test_refused(components, weights, message):
    with pytest.raises(ValueError, match=message):
        Mixture(components, weights)
