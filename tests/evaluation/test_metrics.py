import numpy as np
import pytest
from scipy import special

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Poisson
from tests import oracles, problems
from tests.problems import batch
from tests.tables import BY_NAME, NOISY, name, task


@pytest.mark.parametrize("make", ["dense", "diagonal", "low rank"])
def test_elbo_is_the_sum_of_adaptive_integrals_minus_the_kl(make):
    p = problems.binary(12)
    rng = np.random.default_rng(0)
    q = {
        "dense": Dense(rng.normal(size=4), problems.spd(rng, 4)),
        "diagonal": Diagonal(rng.normal(size=4), np.ones(4)),
        "low rank": LowRankPrecision(rng.normal(size=4), rng.normal(size=(4, 1)), np.ones(4)),
    }[make]
    weight = np.linspace(0, 2, 12)
    found = metrics.elbo(q, Dense(p.mean, p.cov), Bernoulli(), batch(p.x, p.y, weight))
    mean, cov = np.asarray(q.mean), np.asarray(q.to_dense().cov)
    fit = sum(
        w * oracles.expect(lambda f, s=2 * y - 1: special.log_expit(s * f), x @ mean, x @ cov @ x)
        for x, y, w in zip(p.x, p.y, weight, strict=True)
    )
    wanted = fit - oracles.gaussian_kl(mean, cov, p.mean, p.cov)
    np.testing.assert_allclose(found, wanted, atol=2e-7)  # twelve integrals good to 1e-8


def test_elbo_against_gauss_hermite():
    p = problems.counts(12)
    cov = p.cov / 10
    found = metrics.elbo(Dense(p.mean, cov), Dense(p.mean, p.cov), Poisson(), batch(p.x, p.y))

    def log_prob(f, y):
        return y * f - np.exp(f) - special.gammaln(y + 1)

    wanted = oracles.batch_elbo(log_prob, p.mean, cov, p.mean, p.cov, p.x, p.y)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.parametrize("observed", [BY_NAME["bernoulli"], BY_NAME["softmax"]], ids=name)
def test_elbo_of_any_number_of_outputs_against_quadrature(observed):
    p = task(observed, 4)
    weight, q = np.array([1.0, 0.0, 2.0, 0.5]), Dense(p.mean + 0.2, p.cov / 2)
    found = metrics.elbo(q, p.prior, observed.likelihood, batch(p.x, p.y, weight))
    wanted = -oracles.gaussian_kl(p.mean + 0.2, p.cov / 2, p.mean, p.cov)
    for x, y, w in zip(p.design, p.y, weight, strict=True):
        law = x @ (p.mean + 0.2), x @ (p.cov / 2) @ x.T
        wanted += w * observed.average(lambda f, y=y: observed.log_prob(f, y), *law, y)
    # integrals are good to 1e-8, of a softmax with variances below 2 to 1e-7
    np.testing.assert_allclose(found, wanted, atol=1e-7 if observed.outputs == 1 else 4e-7)


@pytest.mark.parametrize("observed", NOISY, ids=name)
def test_elbo_is_below_the_evidence_and_reaches_it(observed):
    p = task(observed, 10)
    rows, likelihood = batch(p.x, p.y), observed.likelihood
    evidence = oracles.linear_log_evidence(*p.linear)
    exact = Dense(*oracles.linear_posterior(*p.linear))
    found = metrics.elbo(exact, p.prior, likelihood, rows)
    np.testing.assert_allclose(found, evidence, rtol=1e-10)
    assert metrics.elbo(p.prior, p.prior, likelihood, rows) < evidence - 1


def test_log_loss_and_brier():
    p, y = np.array([0.9, 0.2, 0.5]), np.array([1, 0, 1])
    np.testing.assert_allclose(metrics.log_loss(p, y), -np.log([0.9, 0.8, 0.5]).mean())
    np.testing.assert_allclose(metrics.brier(p, y), (0.01 + 0.04 + 0.25) / 3)


def test_scores_of_several_classes():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
    y = np.array([0, 2, 0])
    np.testing.assert_allclose(metrics.log_loss(p, y), -np.log([0.7, 0.8, 0.3]).mean())
    # in one bin: the likeliest classes have 0.633 on average, two of three are right
    np.testing.assert_allclose(metrics.calibration_error(p, y, bins=1), 2 / 3 - 1.9 / 3)
    uniform, certain = metrics.entropy(np.array([[0.25] * 4, [0, 1, 0, 0]]))
    np.testing.assert_allclose([uniform, certain], [np.log(4), 0], atol=1e-12)


def test_log_loss_of_a_wrong_certainty_is_large_but_finite():
    assert 700 < metrics.log_loss(np.array([0.0]), np.array([1])) < 710


def test_calibration_bins():
    p = np.array([0.1, 0.9, 0.2, 0.8])
    table = metrics.calibration(p, np.array([0, 1, 1, 1]), bins=2)
    np.testing.assert_array_equal(table.count, [2, 2])
    np.testing.assert_allclose(table.predicted, [0.15, 0.85])
    np.testing.assert_allclose(table.observed, [0.5, 1.0])
    error = metrics.calibration_error(p, np.array([0, 1, 1, 1]), bins=2)
    np.testing.assert_allclose(error, (0.35 + 0.15) / 2)


def test_calibration_of_few_rows_has_few_bins():
    table = metrics.calibration(np.array([0.3, 0.6, 0.9]), np.array([0, 1, 1]), bins=10)
    np.testing.assert_array_equal(table.count, [1, 1, 1])


def test_perfect_probabilities_are_calibrated():
    rng = np.random.default_rng(1)
    p = rng.uniform(size=20_000)
    y = rng.uniform(size=20_000) < p
    # ten bins of 2000: mean absolute deviation of a bin's frequency is below 0.5/√2000 = 0.011
    assert metrics.calibration_error(p, y) < 0.011
    assert metrics.calibration_error(p**2, y) > 0.1


def test_coverage():
    y = np.array([0.0, 1.9, 2.0, -3.0])
    assert metrics.coverage(np.zeros(4), np.ones(4), y) == 0.5
    assert metrics.coverage(np.zeros(4), np.ones(4), y, level=0.9999) == 1.0
    assert metrics.coverage(np.zeros(4), 2 * np.ones(4), y) == 1.0
