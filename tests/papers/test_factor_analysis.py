"""Figures 5.1 and 5.2 on factor analysis: their measures against dense algebra, their claims as found."""

import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
from click.testing import CliRunner
from sklearn import decomposition

from kalvi.cli import main
from kalvi.rules.factor_analysis import random_factor_model
from papers import factor_analysis, factor_analysis_fits
from tests.laws import assert_close

HELD = [
    "D = 20, K = 3, s² ~ U(1, 10): online EM beats SGA",
    "D = 20, K = 3, s² ~ U(1, 1000): online EM beats SGA",
    "D = 20, K = 3, s² ~ U(1, 1000): at T = 2000 online EM does not match",
    "The Wasserstein distances look like",
]
"""What the numbers bear out with quick=True, the luck of a randomised SVD aside."""


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def judged():
    """The claims of both figures, small problems."""
    return [c for make in factor_analysis.FIGURES.values() for c in make(True).claims]


@pytest.mark.slow(reason="compiles every method")
def test_figures_and_claims():
    claims = [claim for claim in judged() if "randomised SVD" not in claim.text]
    held = [claim.text for claim in claims if claim.verdict == "held"]
    assert len(claims) == 8 and len(held) == len(HELD)
    assert all(found.startswith(said) for found, said in zip(held, HELD, strict=True))
    for panel in factor_analysis.panels(True):
        last = {method: panel.mean(method, 2000) for method in factor_analysis_fits.METHODS}
        assert last["eigen, our default"] < 1.1 * last["maximum likelihood"]
        assert last["online EM, ours"] < 0.6 * last["online EM as printed"]


@pytest.mark.parametrize("better", [True, False])
def test_claims_follow_the_numbers(monkeypatch, better):
    """Two trials of invented distances, in which online EM is as good as the best or as bad as none."""
    settings = factor_analysis.settings(False)[::4]
    share = {"online EM as printed": 1.0 if better else 9.0, "SGA as printed": 3.0}

    def invented(setting):
        found = {
            (m, t): factor_analysis_fits.Fit(share.get(m, 1.0) / np.sqrt(t), 1 / np.sqrt(t), 1e3)
            for m in factor_analysis_fits.METHODS
            for t in setting.times
        }
        return factor_analysis.Panel(setting, [found, found])

    panels = [invented(setting) for setting in settings]
    monkeypatch.setattr(factor_analysis, "panels", lambda quick: panels)
    claims = {claim.text: claim.verdict == "held" for claim in judged()}
    for panel in panels:
        hard, said = panel.setting.spectrum == (1, 1000), panel.setting.label
        beats = next(held for text, held in claims.items() if text.startswith(f"{said}: online"))
        matches = next(held for text, held in claims.items() if text.startswith(f"{said}: at T"))
        assert beats == better and matches == (better != hard)


def test_a_figure_that_is_not_there(tmp_path):
    result = run("reproduce", "factor_analysis", "5.3", "--out", tmp_path)
    assert result.exit_code == 2
    assert "factor_analysis has figures 5.1 to 5.2; got 5.3." in result.output


def test_measures_are_those_of_dense_matrices():
    truth, other = (random_factor_model(12, 3, key=jr.key(seed)) for seed in (0, 1))
    found = factor_analysis_fits._judged(other, truth, 1.0)
    a, b = (np.asarray(q.covariance.to_dense()) for q in (other, truth))
    assert_close(found.distance, np.linalg.norm(a - b) / np.linalg.norm(b), 1e-10)
    root = np.real(scipy.linalg.sqrtm(b))
    overlap = np.trace(np.real(scipy.linalg.sqrtm(root @ a @ root)))
    square = np.sum((other.mean - truth.mean) ** 2) + np.trace(a) + np.trace(b) - 2 * overlap
    assert_close(found.wasserstein, np.sqrt(square), 1e-10)


@pytest.mark.parametrize("name", factor_analysis_fits.BATCHES)
def test_fewer_rows_give_scikit_learn_the_same_fit(name):
    rng = np.random.default_rng(0)
    x = 3 + rng.normal(size=(300, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(300, 12))
    rows = factor_analysis_fits.Rows(np.full(12, 2.9))
    for part in np.split(x, 3):
        rows.add(part)
    found = factor_analysis_fits._batch(name, rows, 3, seed=0)
    settings = factor_analysis_fits.BATCHES[name]
    expected = decomposition.FactorAnalysis(3, random_state=0, **settings).fit(x)
    assert len(rows.equivalent()[0]) == 13
    assert_close(found.mean, x.mean(axis=0), 1e-12)
    assert_close(found.covariance.to_dense(), expected.get_covariance(), 1e-9)
