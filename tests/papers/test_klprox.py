"""Gaussian processes and logistic regressions beside textbook methods, which are tested here as well."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit

from kalvi import cli
from kalvi.likelihoods import Bernoulli, Laplace
from papers import klprox as figures
from papers import klprox_data, klprox_grid
from papers import klprox_linear_references as linear
from papers import klprox_references as references

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 2))
SQUARES = np.sum((X[:, None] - X) ** 2, axis=-1)
COV = 4 * np.exp(-SQUARES / 2)
LABELS, TARGETS = np.array([1.0, 0.0, 1.0]), np.array([0.4, -1.0, 2.0])
SCALE = 0.3


def logistic(f, y):
    return expit((2 * y - 1) * f)


def absolute(f, y):
    return np.exp(-np.abs(f - y) / SCALE) / (2 * SCALE)


CASES = [
    pytest.param(logistic, references.tilted_logistic, LABELS, id="logistic"),
    pytest.param(absolute, references.tilted_laplace(SCALE), TARGETS, id="Laplace"),
]


@pytest.mark.parametrize(("density", "tilted", "y"), CASES)
def test_tilted_moments(density, tilted, y):
    means, variances = np.array([-3.0, 0.2, 8.0]), np.array([0.05, 1.0, 30.0])
    found = np.array(tilted(y, means, variances))
    for i in range(3):
        std = np.sqrt(variances[i])
        low, high, points = means[i] - 12 * std, means[i] + 12 * std, [y[i], 0.0, means[i]]

        def moment(k, i=i, low=low, high=high, points=points, std=std):
            def term(f):
                return f**k * density(f, y[i]) * np.exp(-(((f - means[i]) / std) ** 2) / 2)

            return quad(term, low, high, points=points, limit=500, epsabs=0)[0]

        z, first, second = (moment(k) / np.sqrt(2 * np.pi * variances[i]) for k in range(3))
        expected = np.log(z), first / z, second / z - (first / z) ** 2
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-7)


def test_tilted_moments_of_very_narrow_noise():
    # prior deviation 400, noise 0.0067: b → 0 leaves the noise itself, mean y and variance 2 b²
    b = np.exp(-5.0)
    _, mean, var = references.tilted_laplace(b)(np.array([0.3]), np.array([1.0]), np.array([1.6e5]))
    np.testing.assert_allclose(mean, 0.3, rtol=1e-6)
    np.testing.assert_allclose(var, 2 * b**2, rtol=1e-6)


def exact(density, y, mean, cov, n=400_000):
    """log Z and the means of three latents by importance sampling, from a Gaussian that is near."""
    root, z = np.linalg.cholesky(2 * cov), np.random.default_rng(1).normal(size=(n, 3))
    f = mean + z @ root.T
    log_prior = -np.sum(f * np.linalg.solve(COV, f.T).T, axis=1) / 2 - np.linalg.slogdet(COV)[1] / 2
    log_near = -np.sum(z**2, axis=1) / 2 - np.log(np.diag(root)).sum()
    weight = np.exp(log_prior - log_near) * np.prod(density(f, y), axis=1)
    return np.log(weight.mean()), weight @ f / weight.sum()


@pytest.mark.parametrize(("density", "tilted", "y"), CASES)
def test_expectation_propagation(density, tilted, y):
    found = references.ep(tilted, COV, y, tolerance=1e-9)
    near = np.linalg.inv(np.linalg.inv(COV) + np.diag(found.curvature))
    log_z, mean = exact(density, y, found.mean, near)
    assert found.converged
    # the samples are good to 0.002; EP itself is not exact on correlated latents, but nearly
    np.testing.assert_allclose(found.evidence, log_z, atol=0.01)
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    alone = references.ep(tilted, np.diag([4.0, 1.0, 30.0]), y, tolerance=1e-10)
    each = tilted(y, np.zeros(3), np.array([4.0, 1.0, 30.0]))
    np.testing.assert_allclose(alone.evidence, each[0].sum(), rtol=1e-9)
    np.testing.assert_allclose(alone.mean, each[1], rtol=1e-7)
    np.testing.assert_allclose(alone.var, each[2], rtol=1e-7)


def test_laplace_approximation():
    found = references.laplace(COV, LABELS)
    f, p = found.mean, expit(found.mean)
    np.testing.assert_allclose(f, COV @ (LABELS - p), atol=1e-5)
    inverse = np.linalg.inv(COV) + np.diag(p * (1 - p))
    np.testing.assert_allclose(found.var, np.diag(np.linalg.inv(inverse)), rtol=1e-8)
    height = np.log(logistic(f, LABELS)).sum() - f @ np.linalg.solve(COV, f) / 2
    volume = np.linalg.slogdet(np.eye(3) + COV * (p * (1 - p)))[1]
    np.testing.assert_allclose(found.evidence, height - volume / 2, rtol=1e-9)


def test_the_mode_with_a_kink():
    found = references.kinked(COV, TARGETS, SCALE, gap=1e-9)

    def negative(a):
        return a @ COV @ a / 2 - TARGETS @ a, COV @ a - TARGETS

    box = [(-1 / SCALE, 1 / SCALE)] * 3
    other = minimize(negative, np.zeros(3), jac=True, method="L-BFGS-B", bounds=box, tol=1e-14)
    np.testing.assert_allclose(found.mean, COV @ other.x, atol=1e-5)
    np.testing.assert_array_equal(found.var, np.diag(COV))


@pytest.mark.parametrize("likelihood", [Bernoulli(), Laplace(SCALE)], ids=["logistic", "Laplace"])
def test_references_score_new_rows(likelihood):
    """Without any covariance to the rows a new row has its prior; a row itself, its own marginal."""
    y = LABELS if isinstance(likelihood, Bernoulli) else TARGETS
    tilted = klprox_grid._fits(likelihood)["EP"][1]
    given = klprox_grid.Task(COV, np.vstack([0 * COV, COV]), np.full(6, 4.0), y, np.tile(y, 2))
    for method in ("Laplace", "EP"):
        found, score, _, _, converged = klprox_grid.solver(method, likelihood)(given, None)
        assert converged, method
        np.testing.assert_allclose(score[:3], tilted(y, np.zeros(3), np.full(3, 4.0))[0], atol=1e-6)
        np.testing.assert_allclose(score[3:], tilted(y, found.mean, found.var)[0], atol=1e-6)


def test_logistic_references():
    x, y = RNG.normal(size=(40, 3)), (RNG.random(40) < 0.5).astype(float)
    whole, alone = linear.cholesky_optimum(x, y, 2.0), linear.mean_field(x, y, 2.0)
    cov = whole.spread @ whole.spread.T
    _, p, bend = references.expected_logistic(x @ whole.mean, np.sum((x @ cov) * x, axis=1))
    np.testing.assert_allclose(x.T @ (y - p), whole.mean / 2, atol=1e-3)
    np.testing.assert_allclose(np.linalg.inv(cov), np.eye(3) / 2 + (x.T * bend) @ x, rtol=1e-3)
    _, p, bend = references.expected_logistic(x @ alone.mean, x**2 @ alone.spread)
    np.testing.assert_allclose(x.T @ (y - p), alone.mean / 2, atol=1e-3)
    np.testing.assert_allclose(1 / alone.spread, 0.5 + bend @ x**2, rtol=1e-3)
    assert alone.bound > whole.bound
    found = linear.mode(x, y, 2.0)
    np.testing.assert_allclose(x.T @ (y - expit(x @ found.mean)), found.mean / 2, atol=1e-4)


def test_logistic_integrals():
    means, variances = np.array([-2.0, 0.5, 3.0]), np.array([0.1, 0.5, 40.0])
    found = np.array(references.expected_logistic(means, variances))
    for i, (m, v) in enumerate(zip(means, variances, strict=True)):
        for k, fn in enumerate(
            (lambda f: np.logaddexp(0, f), expit, lambda f: expit(f) * expit(-f))
        ):

            def term(z, fn=fn, m=m, v=v):
                return fn(m + np.sqrt(v) * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

            np.testing.assert_allclose(found[k, i], quad(term, -12, 12, limit=200)[0], rtol=1e-8)


def held(result):
    plt.close(result.draw())
    return {claim.text: claim.verdict == "held" for claim in result.claims}


@pytest.mark.slow(reason="compiles every method of the table")
def test_table_2(data):
    found = held(figures.FIGURES["table2"](True))
    assert found[next(text for text in found if text.startswith("Proximal obtains"))]


@pytest.mark.slow(reason="compiles every method of the table")
def test_table_3(data):
    result = figures.FIGURES["table3"](True)
    assert held(result)[
        next(c.text for c in result.claims if c.text.startswith("Proximal performs"))
    ]
    assert not any(row["points that did not converge"] for row in result.table)


def test_stand_in_for_gisette(data):
    x, y = klprox_data.gisette_like(60, 500)
    assert x.shape == (60, 500)
    assert y.sum() == 0
    np.testing.assert_allclose(999 * x, np.round(999 * x), atol=1e-9)


@pytest.mark.slow(reason="compiles every method of the figure and draws it")
def test_the_command_draws_figure_1(data, tmp_path):
    arguments = ["reproduce", "klprox", "1", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "klprox" / "figure_01.png").stat().st_size > 10_000
    assert "very much like EP" in (tmp_path / "klprox" / "claims.csv").read_text()
