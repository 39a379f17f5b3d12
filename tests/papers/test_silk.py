"""Smooth binary factorisation beside its references, which are tested here as well."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit

from kalvi import cli
from papers import silk as figures
from papers import (
    silk_autonormal,
    silk_data,
    silk_fits,
    silk_gibbs,
    silk_recovery,
    silk_votes,
)

RNG = np.random.default_rng(0)
PRIOR = silk_data.Prior(
    np.array([0.0, 0.3, 1.0, 4.0]), np.array([0.2, -1.0]), np.array([1.5, 0.4]), np.array([0.5, 3])
)


def dense(prior, k):
    """The prior covariance of one factor."""
    distance = np.abs(prior.locations[:, None] - prior.locations)
    return prior.variance[k] * np.exp(-prior.rate[k] * distance / 2)


def test_the_tridiagonal_precision_of_the_prior():
    diagonal, beside = silk_gibbs.tridiagonal(PRIOR)
    for k in range(2):
        matrix = np.diag(diagonal[:, k]) + np.diag(beside[:, k], 1) + np.diag(beside[:, k], -1)
        np.testing.assert_allclose(matrix @ dense(PRIOR, k), np.eye(4), atol=1e-12)


def test_draws_of_a_side_have_the_moments_of_its_conditional():
    omega, pull, other = RNG.random((4, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))
    precision = np.zeros((4, 2, 4, 2))
    for k in range(2):
        precision[:, k, :, k] = np.linalg.inv(dense(PRIOR, k))
    target = np.einsum("rksl,l->rk", precision, PRIOR.mean) + pull @ other
    for r in range(4):
        precision[r, :, r, :] += (other.T * omega[r]) @ other
    cov = np.linalg.inv(precision.reshape(8, 8))
    n = 10_000
    draws = np.array(
        [silk_gibbs.draw_side(RNG, PRIOR, omega, pull, other).ravel() for _ in range(n)]
    )
    deviation = np.sqrt(np.diag(cov))
    error = (draws.mean(axis=0) - cov @ target.ravel()) / deviation
    np.testing.assert_allclose(error, 0, atol=5 / np.sqrt(n))
    correlation = np.cov(draws.T) / np.outer(deviation, deviation)
    np.testing.assert_allclose(correlation, cov / np.outer(deviation, deviation), atol=0.05)


def tiny(scale=1.0):
    """Two rows, two columns, one factor; the last entry hidden, its probability, the log evidence."""
    x, hidden = np.array([[1, 0], [1, 1]], np.int8), np.array([[False, False], [False, True]])
    rows = silk_data.Prior(
        np.array([0.0, 1.0]), np.array([0.5]), scale * np.array([2.0]), np.array([0.4])
    )
    cols = silk_data.Prior(
        np.array([0.0, 2.0]), np.array([0.3]), scale * np.array([1.0]), np.array([0.9])
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    values = []
    for prior in (rows, cols):
        root = np.linalg.cholesky(dense(prior, 0))
        grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
        values.append(prior.mean + grid @ root.T)
    weight = np.outer(weights, weights).ravel()
    joint = np.outer(weight, weight) / (2 * np.pi) ** 2
    p = expit(values[0][:, None, :, None] * values[1][None, :, None, :])
    joint = joint * p[..., 0, 0] * (1 - p[..., 0, 1]) * p[..., 1, 0]
    matrix = silk_data.Matrix(x, ~hidden, hidden, rows.locations, cols.locations)
    evidence = np.sum(joint)
    return matrix, rows, cols, float(np.sum(joint * p[..., 1, 1]) / evidence), np.log(evidence)


def test_gibbs_against_quadrature():
    matrix, rows, cols, exact, _ = tiny()
    found = silk_gibbs.gibbs(matrix, rows, cols, sweeps=3_000, burn_in=100, seed=0)
    # sigmoids deviate by 0.25; neighbouring sweeps are alike for some ten of them
    np.testing.assert_allclose(found.probability, exact, atol=0.05)


@pytest.mark.slow(reason="compiles a fit with priors of its own")
def test_a_fit_against_quadrature():
    matrix, rows, cols, exact, evidence = tiny(0.05)
    settings = silk_fits.Settings(learn=False, gain=1e-9, memory=0)
    found = silk_fits.fit(matrix, 1, settings, priors=(rows, cols))
    # with the variances of the priors s times as large the gap goes as s², the divergences (.005) as s
    assert evidence - 0.002 < found.elbo < evidence
    assert (np.diff(found.elbos) > -1e-12).all()
    np.testing.assert_allclose(found.probability, exact, atol=5e-4)
    np.testing.assert_allclose(found.loss, -np.log(found.probability[0]))
    for ours, given in zip(found.rates, (rows.rate, cols.rate), strict=True):
        np.testing.assert_allclose(ours, given)


def test_the_likeliest_rate_of_a_path():
    locations, path = np.arange(30.0), np.cumsum(RNG.normal(size=30))

    def log_likelihood(rate):
        """By the dense covariance, mean and variance at their best."""
        cov = np.exp(-rate * np.abs(locations[:, None] - locations) / 2)
        solved = np.linalg.solve(cov, np.stack([path, np.ones(30)], axis=1))
        away = path - solved[:, 0].sum() / solved[:, 1].sum()
        square = away @ np.linalg.solve(cov, away)
        return -15 * np.log(square) - np.linalg.slogdet(cov)[1] / 2

    best = silk_recovery.likeliest_rate(path)
    assert log_likelihood(best) > max(log_likelihood(best * 0.98), log_likelihood(best / 0.98))


def test_gibbs_finds_the_rates():
    made = silk_data.synthetic((120, 80), 2, (0.05, 0.5), seed=1, scale=2.0)
    wrong = [prior._replace(rate=np.full(2, 3.0)) for prior in (made.rows, made.cols)]
    options = {"sweeps": 300, "burn_in": 150, "seed": 0, "learn": True}
    found = silk_gibbs.gibbs(made.matrix, *wrong, **options)
    for rates, truth in zip(found.rates, (0.05, 0.5), strict=True):
        assert np.all(np.abs(np.log(rates / truth)) < np.log(4))
    perfect = -np.mean(
        np.log(np.abs(1 - made.matrix.answers - made.probability[made.matrix.hidden]))
    )
    assert found.losses[-1] < perfect + 0.03


@pytest.mark.slow(reason="compiles for twenty seconds")
def test_numpyro_factorises():
    made = silk_data.synthetic((60, 50), 2, (0.05, 0.5), seed=1, scale=2.0)
    found = silk_autonormal.auto_normal(made.matrix, 2, steps=1000, seed=0, rate=0.03, chunk=500)
    constant = np.log(2)
    assert found.losses[-1] < constant - 0.08
    assert found.elbos[1] > found.elbos[0]


def test_paths_have_the_covariance_of_the_prior():
    rng = np.random.default_rng(2)
    drawn = np.stack([PRIOR.sample(rng) for _ in range(8_000)])
    for k in range(2):
        cov = np.cov(drawn[:, :, k].T) / PRIOR.variance[k]
        np.testing.assert_allclose(cov, dense(PRIOR, k) / PRIOR.variance[k], atol=0.07)


def test_what_is_hidden():
    made = silk_data.synthetic((40, 30), 2, (0.1, 0.1), seed=0, missing=0.2)
    hidden = silk_data.corner(made.matrix, 0.3, np.random.default_rng(0))
    rows, cols = hidden.hidden.any(axis=1), hidden.hidden.any(axis=0)
    np.testing.assert_array_equal(hidden.hidden, np.outer(rows, cols))
    assert not (hidden.hidden & hidden.seen).any()
    tied = hidden._replace(row_locations=np.repeat(np.arange(20.0), 2))
    chosen = np.arange(30) % 2 == 0
    late = silk_data.future(tied, 0.1, chosen).hidden
    assert late[36:][:, chosen].all()
    assert late.sum() == 4 * 15
    np.testing.assert_array_equal(np.isnan(hidden.given), ~hidden.seen)


def held(result):
    plt.close(result.draw())
    return {claim.text: claim.verdict == "held" for claim in result.claims}


@pytest.mark.slow(reason="compiles for half a minute a case")
@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("1", "Smoothness brings hidden entries"),
        pytest.param("2", "kalvi is faster than Gibbs", marks=pytest.mark.alone),
        ("3", "There Jacobi steps take ten times"),
        ("table1", "Chains are tighter"),
    ],
)
def test_figures_of_drawn_matrices(name, claim):
    """What does not need the full size: single rates and losses scatter too much on 80 × 60 entries."""
    found = held(figures.FIGURES[name](True))
    assert found[next(text for text in found if text.startswith(claim))]


@pytest.mark.slow(reason="compiles fits of real matrices")
@pytest.mark.parametrize("name", ["5", "6"])
def test_figures_of_real_matrices(name, data):
    result = figures.FIGURES[name](True)
    held(result)
    losses = {row["method"]: row["log loss"] for row in result.table}
    assert losses["smooth"] < losses["column means"]


def test_countries_in_sessions_are_the_votes_again(data):
    votes = silk_votes.forecasts(300)
    assert votes.static.seen.sum() == votes.dynamic.seen.sum()
    for part in ("seen", "hidden", "x"):
        row, call = np.nonzero(getattr(votes.dynamic, part))
        again = np.zeros(votes.static.x.shape, bool)
        again[call, votes.country[row]] = True
        np.testing.assert_array_equal(again, getattr(votes.static, part) > 0)
    apart = np.diff(np.asarray(votes.dynamic.row_locations))
    assert set(apart[apart < 100]) == {1.0}
    assert (np.diff(votes.country)[apart > 100] > 0).all()


@pytest.mark.slow(reason="compiles for half a minute")
def test_the_command_forecasts_votes(data, tmp_path):
    arguments = ["reproduce", "silk", "4", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "silk" / "figure_04.png").stat().st_size > 10_000
    assert "smoothness lowers" in (tmp_path / "silk" / "claims.csv").read_text()
