"""After the pass: to the optimum where the rows fit in memory, stopped or not, and what is said of it."""

import numpy as np
import pandas as pd
import pytest

import kalvi
from kalvi.readers.source import open_data
from kalvi.tabular import learn as learning
from kalvi.tabular.choices import Choices
from kalvi.tabular.linear import LinearModel
from kalvi.tabular.merge import merge_table_models
from kalvi.tabular.prefetch import Interrupted
from kalvi.tabular.table_kinds import new_model

PIECE, ROWS, WIDTH = 64, 200, 4


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(learning, "PIECE_ROWS", PIECE)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, WIDTH)) + 0.7 * rng.normal(size=(ROWS, 1))
    f = x @ [2.0, -1.5, 1.0, 0.5]
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(WIDTH)])
    frame["bought"] = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-f)), "yes", "no")
    frame["visits"] = rng.poisson(np.exp(0.4 * f)).astype(float)
    return frame


@pytest.fixture(scope="module")
def file(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


def begun(file, out, **choices):
    source = open_data(file)
    given = {"drift": 1} | choices.pop("parameters", {})
    chosen = Choices(**{"target": "bought", "drop": ("visits",), "parameters": given, **choices})
    model = new_model(source, chosen)
    return model, source, job_of(model, source, out, file)


def job_of(model, source, out, file):
    often = {"every_rows": PIECE, "every_seconds": 1e9}
    return learning.new_job(model, source, out, data=(str(file),), format=None, **often)


def fit(file, out, **choices):
    return learning.learn(*begun(file, out, **choices), lambda *_: None)


def table(frame):
    x = frame[[f"x{i}" for i in range(WIDTH)]].to_numpy()
    return (x - x.mean(axis=0)) / x.std(axis=0)


def apart(a, b):
    """Means in standard deviations, and deviations as a ratio."""
    std = np.sqrt(b.variance())
    away = np.max(np.abs(np.asarray(a.mean) - np.asarray(b.mean)) / std)
    return max(away, np.max(np.abs(np.sqrt(a.variance()) / std - 1)))


def same_bits(a, b):
    for one, other in zip((a.mean, a.root), (b.mean, b.root), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_table_in_memory_is_taken_to_its_optimum(file, frame, tmp_path, kind):
    counts = kind == "poisson"
    named = {"target": "visits", "drop": ("bought",), "model": "poisson"} if counts else {}
    model = fit(file, tmp_path / "m", **named)
    cls = kalvi.PoissonRegression if counts else kalvi.LogisticRegression
    y = frame["visits"] if counts else frame["bought"] == "yes"
    whole, streamed = cls().fit(table(frame), y), cls(passes=1).fit(table(frame), y)
    assert apart(model.estimator.posterior_, whole.posterior_) < 1e-6
    assert apart(streamed.posterior_, whole.posterior_) > 0.02  # one pass was not enough
    said = model.describe("m")
    assert said["reached"]["how"] == "optimum" and said["passes"] == said["reached"]["passes"] > 1
    np.testing.assert_allclose(said["reached"]["bound"], whole.elbo_, rtol=1e-10)
    # what was said of rows before they were learned stays as it was said
    np.testing.assert_allclose(said["log_evidence"], streamed.log_evidence_, rtol=1e-10)
    assert "at the optimum of the variational bound" in said["reached"]["text"]


def test_the_evidence_of_a_linear_model_stays_that_of_its_stream(file, tmp_path):
    named = {"target": "visits", "drop": ("bought",), "model": "linear"}
    low = {"rank": 2}
    stream = fit(file, tmp_path / "s", parameters=low | {"passes": 1}, **named)
    model = fit(file, tmp_path / "m", parameters=low, **named)
    assert model.estimator.n_passes_ > 1 and stream.estimator.n_passes_ == 1
    np.testing.assert_allclose(model.evidence(), stream.evidence(), rtol=1e-12)
    assert fit(file, tmp_path / "e", **named).describe("e")["reached"]["how"] == "exact"


def test_one_pass_is_the_stream(file, frame, tmp_path):
    model = fit(file, tmp_path / "m", parameters={"passes": 1}, keep_rows=True)
    x, y = table(frame), (frame["bought"] == "yes").astype(int)
    streamed = kalvi.LogisticRegression(drift=1)
    for start in range(0, ROWS, PIECE):
        rows = slice(start, start + PIECE)
        streamed.partial_fit(x[rows], y[rows], classes=[0, 1])
    assert apart(model.estimator.posterior_, streamed.posterior_) < 1e-9
    said = model.describe("m", diagnose=True)
    assert said["reached"]["how"] == "one pass" and said["passes"] == 1
    measured = said["diagnosis"]["one_pass"]
    first, best = streamed.posterior_, streamed.climb_to_optimum(x, y).posterior_
    far = np.max(np.abs(first.mean - best.mean) / np.sqrt(best.variance()))
    assert far > 0.5
    np.testing.assert_allclose(measured["mean_in_sd"], far, rtol=1e-6)
    assert measured["rows"] == ROWS and "from their own optimum" in measured["text"]


def test_rows_beyond_the_memory_are_streamed(file, tmp_path, monkeypatch):
    stream = fit(file, tmp_path / "s", parameters={"passes": 1})
    monkeypatch.setattr("kalvi.estimators.linear.refinement.REVISIT_BYTES", 8 * (ROWS - 1) * WIDTH)
    model = fit(file, tmp_path / "m")
    same_bits(model.estimator.posterior_, stream.estimator.posterior_)
    assert model.describe("m")["reached"]["how"] == "one pass"


def test_what_forgets_has_no_optimum_to_go_on_to(file, tmp_path):
    model = fit(file, tmp_path / "m", parameters={"forgetting": 0.99})
    assert model.describe("m")["reached"]["how"] == "stream"
    with pytest.raises(ValueError, match="only a model with forgetting=1"):
        model.estimator.climb_to_optimum(np.zeros((2, WIDTH)), [0, 1])


@pytest.mark.parametrize("stopped_by", [Interrupted, KeyboardInterrupt])
def test_a_climb_that_is_stopped_loses_nothing(file, tmp_path, monkeypatch, stopped_by):
    whole = fit(file, tmp_path / "whole")
    out = tmp_path / "part"

    def stop(model, pieces):
        raise stopped_by

    with monkeypatch.context() as patched:
        patched.setattr(LinearModel, "learn_together", stop)
        with pytest.raises(stopped_by):
            fit(file, out)
    held = learning.find_unfinished_run(out)
    assert held.job.done == held.model.record.rows == ROWS and not out.exists()
    resumed = learning.learn(held.model, learning.reopen(held.job), held.job, lambda *_: None)
    same_bits(resumed.estimator.posterior_, whole.estimator.posterior_)
    assert resumed.record.rows == ROWS and learning.find_unfinished_run(out) is None


def test_an_update_is_one_pass_from_what_was_known(file, frame, tmp_path):
    model = fit(file, tmp_path / "m")
    known = model.estimator.posterior_
    source = model.open_rows([str(file)])
    job = job_of(model, source, tmp_path / "m", file)
    assert not job.climbs
    after = learning.learn(model, source, job, lambda *_: None)
    x, y = table(frame), frame["bought"] == "yes"
    streamed = kalvi.LogisticRegression(prior=known, passes=1).fit(x, y)
    assert apart(after.estimator.posterior_, streamed.posterior_) < 1e-6
    said = after.describe("m")["reached"]
    assert said["how"] == "one pass" and "bound" not in said


def test_shards_at_their_optimum_merge_into_nearly_that_of_all_rows(file, frame, tmp_path):
    whole = fit(file, tmp_path / "whole")
    parts = []
    for i, rows in enumerate((slice(0, ROWS // 2), slice(ROWS // 2, ROWS))):
        part = tmp_path / f"{i}.csv"
        frame[rows].to_csv(part, index=False)
        model = whole.fresh()
        source = model.open_rows([str(part)])
        job = job_of(model, source, tmp_path / f"m{i}", part)
        parts.append(learning.learn(model, source, job, lambda *_: None))
    found = merge_table_models(parts, ["a", "b"])
    assert apart(found.estimator.posterior_, whole.estimator.posterior_) < 0.3
    assert found.describe("m")["reached"]["how"] == "merged"


def test_a_climb_needs_all_the_rows_there_were(frame):
    x, y = table(frame), frame["bought"] == "yes"
    model = kalvi.LogisticRegression().partial_fit(x, y)
    with pytest.raises(ValueError, match=r"of a total weight of 200; got 150\."):
        model.climb_to_optimum(x[:150], y[:150])
    assert not hasattr(model, "elbo_")
    best = kalvi.LogisticRegression(prior_scale=model.prior_scale_).fit(x, y)
    assert apart(model.climb_to_optimum(x, y).posterior_, best.posterior_) < 1e-6


def test_a_posterior_half_a_deviation_off_is_not_called_good(frame):
    """The tail of its ratios is short, so that k alone finds nothing wrong."""
    x, y = table(frame), frame["bought"] == "yes"
    best = kalvi.LogisticRegression().fit(x, y).diagnose(x, y, random_state=0)
    assert best.verdict == "good" and best.shift < 0.1
    far = kalvi.LogisticRegression(passes=1).fit(x, y).diagnose(x, y, random_state=0)
    assert far.pareto_k < 0.5 and far.verdict == "usable" and 0.5 < far.shift < 1


def test_rows_beyond_what_may_be_held_are_streamed_and_not_refused(file, tmp_path, monkeypatch):
    """float32 rows are held as float64 ones: the rule of the estimator allows twice as many."""
    stream = fit(file, tmp_path / "s", parameters={"passes": 1, "dtype": "float32"})
    monkeypatch.setattr("kalvi.tabular.learn.MOST_BYTES", 8 * (ROWS - 1) * WIDTH)
    model = fit(file, tmp_path / "m", parameters={"dtype": "float32"})
    same_bits(model.estimator.posterior_, stream.estimator.posterior_)
    with pytest.raises(ValueError, match="needs all rows at once"):
        fit(file, tmp_path / "n", parameters={"dtype": "float32", "passes": 3})
