"""Every figure of the R-VGA paper: numbers against the authors' own code, claims as found.

The stored rows (KALVI_DATA) are those on which the authors' filters were run; without them the figures
are made from generated rows and only what must hold on any rows is asserted.
"""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
from scipy.special import expit

from papers import rvga, rvga_scalar
from papers.rvga_data import SETTINGS, Setting, two_classes
from papers.rvga_filters import compare
from papers.rvga_plane import divergences, log_evidence

# final KL (Z = 1) of the authors' code on the stored rows by quadrature, to the digits printed:
# implicit, explicit, EKF, QKF, Laplace, best Gaussian
AUTHORS = {
    3: [(31.79, 31.81, 32.28, 32.87, 31.72, 31.70)],
    4: [(32.52, 32.93, 31.85, 49.02, 31.82, 31.75)],
    5: [(36.92, 41.09, 62260, 397.23, 36.35, 36.28)],
    6: [(2.59, 2.64, 9.26, 5.31, 73.27, 2.14)],
    7: [
        (22.51, 23.04, 28.07, 38.70, 20.79, 20.26),
        (21.90, 22.48, 28.52, 38.58, 20.35, 19.71),
        (21.49, 22.08, 28.56, 38.20, 19.88, 19.21),
    ],
    8: [
        (13.74, 18.96, 89.57, 63.73, 2726, 8.73),
        (15.28, 24.72, 190.48, 111.65, 3334, 8.75),
        (16.00, 27.68, 279.08, 138.93, 3493, 8.52),
    ],
    9: [
        (20.81, 27.84, 116.09, 58.94, 214.29, 16.68),
        (5.58, 7.03, 128.69, 42.32, 266.13, 3.92),
        (3.37, 3.79, 140.01, 34.24, 326.82, 2.42),
        (34.71, 34.99, 37.74, 38.83, 34.45, 33.89),
        (9.34, 9.58, 13.01, 15.78, 9.05, 8.62),
        (5.03, 5.15, 8.68, 10.88, 5.10, 4.63),
    ],
    10: [
        (9.09, 12.21, 119.37, 48.17, 246.13, 6.45),
        (16.55, 22.60, 142.04, 60.44, 453.90, 12.69),
        (6.73, 7.51, 34.86, 21.25, 125.04, 5.28),
    ],
    14: [(22.81, 23.00, 22.20, 30.59, 21.90, 21.77)],
    15: [(2.71, 2.75, 8.20, 5.58, 77.30, 2.15)],
    16: [(2.24, 2.36, 7.49, 5.52, 274.08, 1.65)],
}
COLUMNS = ("implicit", "explicit", "EKF", "QKF", "Laplace", "best Gaussian")
# The authors' Laplace differs from the exact one (an independent Newton's method agrees with ours) by up to
# 0.3 per mille. Their MAP comes from L-BFGS with finite differences, which stops at gradients of 1e-6 to
# 1e-5: a likely cause, which reproduces their digits in two of the six panels and not in the others.
LAPLACE_RTOL = 4e-4
SOLVER = 2e-4  # and their implicit equations are solved to residuals of 3e-4
REFUTED = {
    1: ["The two may be used indifferently"],
    4: ["The explicit scheme runs second in most experiments"],
    13: [
        "Fixed-point iterations oscillate and do not converge at ν₀ = 1 ",
        "Fixed-point iterations oscillate and do not converge at ν₀ = 5 ",
    ],
    14: ["The explicit scheme runs second in most experiments"],
    15: ["The batch Laplace covariance is considered accurate"],
    16: ["The batch Laplace covariance is considered accurate"],
}
"""What holds on no draw of the rows, with quick=True and the stored rows first."""


LONG = pytest.mark.slow(reason="compiles and runs every method in up to a hundred dimensions")
HIGH = (5, 6, 7, 8, 9, 10)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[LONG] if n in (3, *HIGH) else []) for n in AUTHORS]
)
def test_final_divergences_are_the_authors(data, number):
    for setting, printed in zip(SETTINGS[number], AUTHORS[number], strict=True):
        ours = compare(setting, 1 if setting.dim == 2 else 5).finals()
        for method, value in zip(COLUMNS, printed, strict=True):
            digit = 1.0 if value > 1000 else 0.01
            slack = (
                LAPLACE_RTOL * value
                if method == "Laplace"
                else SOLVER
                if method == "implicit"
                else 0
            )
            assert abs(ours[method] - value) <= 0.5 * digit + slack, (setting.label, method)


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[LONG] if n in HIGH else []) for n in rvga.FIGURES if n != "nuts"],
)
def test_claims_on_the_stored_rows(data, number):
    result = rvga.FIGURES[number](True)
    refuted = [claim.text for claim in result.claims if claim.verdict == "refuted"]
    assert len(refuted) == len(REFUTED.get(number, []))
    assert all(
        text.startswith(start) for text, start in zip(refuted, REFUTED.get(number, []), strict=True)
    )


@pytest.mark.parametrize(
    "number",
    [1, 2, 12, 13, 15, *(pytest.param(n, marks=LONG) for n in (6, 8))],
)
def test_figures_from_generated_rows(monkeypatch, number):
    monkeypatch.delenv("KALVI_DATA", raising=False)
    rvga._draws.cache_clear()
    result = rvga.FIGURES[number](True)
    assert result.number == number
    assert all(np.isfinite(list(claim.numbers.values())).all() for claim in result.claims)
    if number in (6, 8, 15):
        assert {row["rows"] for row in result.table} == {"generated"}
        lowest = min(row["above_best_gaussian"] for row in result.table)
        assert lowest == 0  # nothing beats the best Gaussian
    rvga._draws.cache_clear()
    figure = result.draw()
    assert len(figure.axes) >= 1
    plt.close(figure)


def test_true_divergences_are_positive_and_log_z_agrees_with_quadrature():
    setting = Setting("", 0, 2, 12, 2.0, 1.0, 5, 3.0)
    c = compare(setting)
    best = c.paths["best Gaussian"]
    log_z = log_evidence(c.x, c.y, setting, (best.mean[-1], best.cov[-1]))

    def joint(b, a):
        signs = 2 * c.y - 1
        prior = np.exp(-(a**2 + b**2) / (2 * 9)) / (2 * np.pi * 9)
        return np.prod(expit(signs * (c.x @ np.array([a, b])))) * prior

    z, _ = scipy.integrate.dblquad(joint, -30, 30, -30, 30, epsabs=1e-13, epsrel=1e-10)
    assert log_z == pytest.approx(np.log(z), abs=1e-8)
    assert min(c.finals().values()) + log_z > 0


def test_divergences_of_the_plane_against_quadrature():
    """A posterior that is nearly Gaussian: all three from dense quadrature on one grid."""
    setting = Setting("", 0, 2, 12, 2.0, 1.0, 5, 1.0)
    c = compare(setting)
    best, q = ((c.paths[m].mean[-1], c.paths[m].cov[-1]) for m in ("best Gaussian", "EKF"))
    found = divergences(c.x, c.y, setting, best, q)
    a = np.linspace(-9, 9, 901)
    theta = np.stack(np.meshgrid(a, a), axis=-1)
    joint = expit((2 * c.y - 1) * (theta @ c.x.T)).prod(axis=-1) * np.exp(-0.5 * (theta**2).sum(-1))
    p = joint / joint.sum()
    other = scipy.stats.multivariate_normal(*q).pdf(theta)
    other /= other.sum()
    half = (p + other) / 2

    def kl(one, two):
        return float(np.sum(one * np.log(np.maximum(one, 1e-300) / np.maximum(two, 1e-300))))

    expected = {"left KL": kl(other, p), "right KL": kl(p, other)}
    expected["JS"] = (kl(p, half) + kl(other, half)) / 2
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-6), name


def test_two_classes_follow_the_recipe():
    setting = Setting("", 0, 4, 40_000, 3.0, 1.0, 0, 1.0)
    x, y = two_classes(setting)
    means = [x[y == label].mean(axis=0) for label in (0, 1)]
    assert np.linalg.norm(means[1] - means[0]) == pytest.approx(3, abs=0.03)
    spectrum = np.linalg.eigvalsh(np.cov((x - np.array(means)[y.astype(int)]).T))[::-1]
    expected = 1 / np.arange(1, 5)
    np.testing.assert_allclose(spectrum, expected / expected.sum(), rtol=0.05)
    np.testing.assert_array_equal(two_classes(setting)[0], x)


def test_the_root_is_the_one_of_hybrid_powell():
    step = rvga_scalar.Step(100.0, 300.0, 0.0)
    found = scipy.optimize.root(
        lambda u: np.array(u) - np.array(rvga_scalar.fixed_point(step, *u)), [-1.0, 9.0], tol=1e-13
    )
    np.testing.assert_allclose(rvga_scalar.solve(step), found.x, rtol=1e-9)


@pytest.mark.parametrize(
    "number", [3, 5, pytest.param(9, marks=pytest.mark.slow(reason="several long streams")), 11, 14]
)
def test_pictures_are_drawn(number, data):
    figure = rvga.FIGURES[number](True).draw()
    assert len(figure.axes) == {3: 6, 5: 6, 9: 2, 11: 6, 14: 5}[number]
    plt.close(figure)
