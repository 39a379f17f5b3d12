"""Factor analysis of a file: what is learned, said of it, and kept when it is interrupted."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import kalvi
from kalvi.readers.files import BadData
from kalvi.readers.source import open_data
from kalvi.tabular import learn as learning
from kalvi.tabular.factor_analysis import FactorChoices, FactorModel
from kalvi.tabular.predictions import PredictOptions

PIECE, ROWS, NAMES = 64, 200, ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(learning, "PIECE_ROWS", PIECE)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(ROWS, 4))
    found = pd.DataFrame(x * [1, 10, 100, 1] + [5, 0, -300, 0], columns=NAMES)
    return found.assign(place=rng.choice(["north", "south"], ROWS))


@pytest.fixture(scope="module")
def file(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    frame.to_csv(path, index=False, float_format="%.17g")
    return path


def fit(file, out, tell=lambda *_: None, *, every=10**9, **choices):
    source = open_data(file)
    model = FactorModel.begin(source, FactorChoices(2, **choices))
    job = learning.new_job(
        model, source, out, data=(str(file),), format=None, every_rows=every, every_seconds=1e9
    )
    return learning.learn(model, source, job, tell)


@pytest.fixture(scope="module")
def model(file, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "PIECE_ROWS", PIECE)
        return fit(file, tmp_path_factory.mktemp("model") / "m")


def standardised(frame):
    x = frame[NAMES].to_numpy()
    return (x - x.mean(axis=0)) / x.std(axis=0)


def dense(model):
    """Mean, F, ψ and the covariance written out."""
    estimator = model.estimator
    factor, diag = estimator.components_.T, estimator.noise_variance_
    return estimator.mean_, factor, diag, factor @ factor.T + np.diag(diag)


def bits(model):
    """Everything that was learned, as bytes; the clock aside."""
    kept = model.estimator.__getstate__()
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(kept["state_"])]
    record = model.record
    rest = kept["buffer_"], record.curve, record.densities, model.encoder, record.rows
    return [*leaves, str(rest)]


def test_it_learns_what_the_estimator_does(frame, model):
    own = kalvi.FactorAnalysis(2).fit(standardised(frame))
    np.testing.assert_allclose(model.estimator.components_, own.components_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.estimator.noise_variance_, own.noise_variance_, rtol=1e-7)
    assert model.record.rows == ROWS
    assert model.left_out == (("place", "category"),)


def test_the_summary_says_what_the_covariance_does(frame, model):
    mean, factor, diag, cov = dense(model)
    said = model.describe("m")
    assert json.loads(json.dumps(said)) == said
    spread = np.sqrt(np.diag(cov))
    hidden = np.eye(2) - factor.T @ np.linalg.solve(cov, factor)
    for k, about in enumerate(said["factors"]):
        loadings = dict(about["loadings"])
        expected = factor[:, k] / spread
        np.testing.assert_allclose([loadings[name] for name in NAMES], expected, rtol=1e-9)
        strength = [abs(value) for _, value in about["loadings"]]
        assert strength == sorted(strength, reverse=True)
        np.testing.assert_allclose(about["sd"], np.sqrt(hidden[k, k]), rtol=1e-9)
    np.testing.assert_allclose(
        [dict(said["noise"])[name] for name in NAMES], diag / np.diag(cov), rtol=1e-9
    )
    np.testing.assert_allclose(said["explained"], 1 - np.mean(diag / np.diag(cov)), rtol=1e-9)
    density = multivariate_normal(mean, cov).logpdf(standardised(frame))
    np.testing.assert_allclose(said["sample"]["log_density"], density.mean(), rtol=1e-9)
    quantile = dict(said["sample"]["quantiles"])[0.05]
    np.testing.assert_allclose(quantile, np.quantile(density, 0.05), rtol=1e-9)


def test_log_densities_before_rows_are_learned(frame, model):
    """Of all rows but the first: in blocks of half of the rows before them, which pieces cut short."""
    x, own, total, start = standardised(frame), kalvi.FactorAnalysis(2), 0.0, 0
    first = PIECE  # 64 rows are learned before any is judged
    while start < ROWS:
        size = max(16, start // 2 // 16 * 16) if start else first
        end = min(start + size, ROWS, (start // PIECE + 1) * PIECE)
        if start:
            total += own.score_samples(x[start:end]).sum()
        own.partial_fit(x[start:end])
        start = end
    about = model.describe("m")
    np.testing.assert_allclose(about["log_density"], total / (ROWS - first), rtol=1e-7)
    assert about["curve"]["rows"][-1] == ROWS - first


def test_scores_and_log_densities_of_a_file(file, frame, model):
    mean, factor, _, cov = dense(model)
    x = standardised(frame)
    (piece,) = model.predictions(open_data(file), PredictOptions(keep=("place",)))
    assert piece.table.column_names == ["place", "factor_1", "factor_2", "log_density"]
    scores = np.column_stack([piece.table[f"factor_{k}"].to_numpy() for k in (1, 2)])
    np.testing.assert_allclose(scores, (x - mean) @ np.linalg.solve(cov, factor), rtol=1e-7)
    density = multivariate_normal(mean, cov).logpdf(x)
    np.testing.assert_allclose(piece.table["log_density"].to_numpy(), density, rtol=1e-9)
    np.testing.assert_allclose(
        piece.outcome.as_json()["mean_log_density"], density.mean(), rtol=1e-9
    )
    assert piece.outcome.ignored == ()


@pytest.mark.parametrize("stop_after", [1, 3])
def test_an_interrupted_run_goes_on_to_the_same_bits(file, model, tmp_path, stop_after):
    def end(model, rows, fraction):
        if rows >= stop_after * PIECE:
            raise ZeroDivisionError

    out = tmp_path / "m"
    with pytest.raises(ZeroDivisionError):
        fit(file, out, end, every=PIECE)
    assert not out.exists()
    held = learning.find_unfinished_run(out)
    assert held.job.done == (stop_after - 1) * PIECE
    resumed = learning.learn(held.model, learning.reopen(held.job), held.job, lambda *_: None)
    assert bits(resumed) == bits(model)
    assert bits(learning.load_model(out)) == bits(model)


def test_raw_columns_keep_their_units_and_missing_ones_are_the_centre(frame, tmp_path):
    holed = frame.copy()
    holed.loc[7, "a"] = np.nan
    holed.to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    found = fit(tmp_path / "x.csv", tmp_path / "m", raw=True, missing="impute")
    filled = holed[NAMES].fillna(holed[NAMES].mean()).to_numpy()
    np.testing.assert_allclose(found.estimator.mean_, filled.mean(axis=0), rtol=1e-12, atol=1e-12)
    own = kalvi.FactorAnalysis(2).fit(filled)
    np.testing.assert_allclose(found.estimator.components_, own.components_, rtol=1e-7)
    assert found.names() == NAMES


def test_a_hole_is_refused_with_its_place(frame, tmp_path):
    holed = frame.copy()
    holed.loc[150, "c"] = np.nan
    holed.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(BadData, match=r"^x\.csv, row 151: column 'c' is missing"):
        fit(tmp_path / "x.csv", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_the_maximum_likelihood_with_all_rows_in_memory(file, frame, tmp_path):
    found = fit(file, tmp_path / "m", method="batch_em", parameters={"max_iter": 3})
    own = kalvi.FactorAnalysis(2, method="batch_em", max_iter=3)
    with pytest.warns(match="had not converged"):
        own.fit(standardised(frame))
    np.testing.assert_allclose(found.estimator.log_likelihood_, own.log_likelihood_, rtol=1e-9)
    assert any("not converged after 3 passes" in said for said in found.describe("m")["warnings"])


def test_a_column_that_never_varies_is_said(frame, tmp_path):
    still = frame.assign(a=3.0)
    still.to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    found = fit(tmp_path / "x.csv", tmp_path / "m")
    assert found.describe("m")["warnings"] == ["'a' never varies; leave it out with --drop a."]
