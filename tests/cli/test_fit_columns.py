"""Files that are not quite those a model was fitted to, and options that contradict each other."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kalvi
from kalvi.tabular import linear
from tests.cli.commands import ok, run, sentence

ROWS = 120


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "x": x,
            "on": rng.random(ROWS) < 0.5,
            "when": pd.date_range("2026-01-01", periods=ROWS, freq="h"),
            "code": rng.choice(["01", "02", "x"], ROWS),
            "price": 1e6 + 10 * x + rng.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def models(frame, tmp_path_factory):
    """A linear model, one of labels, one that imputes."""
    folder = tmp_path_factory.mktemp("models")
    frame.to_csv(folder / "rows.csv", index=False)
    ok("fit", folder / "rows.csv", "-t", "price", "-f", "x", "-o", folder / "price", "-q")
    ok("fit", folder / "rows.csv", "-t", "code", "-f", "x", "-o", folder / "code", "-q")
    arguments = ("-t", "price", "-d", "code", "--missing", "impute", "-q")
    ok("fit", folder / "rows.csv", *arguments, "-o", folder / "impute")
    return folder


def written(tmp_path, frame):
    path = tmp_path / "new.csv"
    frame.to_csv(path, index=False)
    return path


def predicted(model, path, tmp_path):
    out = ("-o", tmp_path / "p.csv", "--force")
    about = json.loads(ok("predict", model, path, *out, "--json").stdout)
    return pd.read_csv(tmp_path / "p.csv"), about


def test_an_offset_of_the_target_is_not_noise(models, frame, tmp_path):
    said, about = predicted(models / "price", models / "rows.csv", tmp_path)
    assert 0.8 < said["sd"].mean() < 1.25  # the noise is 1
    assert about["mean_squared_error"] == pytest.approx(
        np.mean((said["mean"] - frame["price"]) ** 2)
    )
    about = json.loads(ok("inspect", models / "price", "--json").stdout)
    named = {effect["name"]: effect for effect in about["effects"]}
    centre = frame["price"].mean()
    assert about["intercept"][0]["mean"] == pytest.approx(centre, abs=1)
    slope = np.polyfit((frame["x"] - frame["x"].mean()) / frame["x"].std(ddof=0), frame["price"], 1)
    assert named["x"]["mean"] == pytest.approx(slope[0], abs=0.01)


def test_the_evidence_is_that_of_the_target_as_it_came(models, frame):
    """Against the density of a normal-inverse-gamma model of the standardised target, in NumPy."""
    z = (frame["price"] - frame["price"].mean()) / frame["price"].std(ddof=0)
    x = (frame["x"] - frame["x"].mean()) / frame["x"].std(ddof=0)
    own = kalvi.LinearRegression().partial_fit(x.to_numpy()[:, None], z)
    expected = own.log_evidence_ - ROWS * np.log(frame["price"].std(ddof=0))
    about = json.loads(ok("inspect", models / "price", "--json").stdout)
    assert about["log_evidence"] == pytest.approx(expected, rel=1e-9)
    assert about["noise_scale"] == pytest.approx(own.noise_scale_ * frame["price"].std(ddof=0))


def test_predictions_need_no_target(models, frame, tmp_path):
    whole, _ = predicted(models / "price", models / "rows.csv", tmp_path)
    path = written(tmp_path, frame.drop(columns="price"))
    said, about = predicted(models / "price", path, tmp_path)
    pd.testing.assert_frame_equal(said, whole)
    assert about["labelled"] == 0
    odd = frame.assign(price=["?"] * 60 + ["1000000"] * 60)
    assert predicted(models / "price", written(tmp_path, odd), tmp_path)[1]["labelled"] == 60


def test_new_labels_are_not_judged(models, frame, tmp_path):
    path = written(tmp_path, frame.assign(code=["01"] * 100 + ["new"] * 20))
    said, about = predicted(models / "code", path, tmp_path)
    assert about["labelled"] == 100
    assert about["log_loss"] == pytest.approx(-np.mean(np.log(said["p_01"][:100])))
    assert "'new'; the classes are 01, 02, x" in sentence(
        run("update", models / "code", path, "-q")
    )


def test_labels_stay_text(models, frame, tmp_path):
    path = written(tmp_path, frame[frame["code"] != "x"])
    ok("update", models / "code", path, "-o", tmp_path / "more", "-q")
    assert kalvi.load(tmp_path / "more").record.rows == ROWS + np.sum(frame["code"] != "x")


def test_a_column_that_is_not_there(models, frame, tmp_path):
    path = written(tmp_path, frame.drop(columns="x"))
    message = sentence(run("predict", models / "price", path))
    assert message.startswith("new.csv, row 1: there is no column 'x', which the model needs")
    said, _ = predicted(models / "impute", path, tmp_path)
    model = kalvi.load(models / "impute")
    table = pa.Table.from_pandas(frame.drop(columns=["code", "price"]), preserve_index=False)
    without = table.set_column(0, "x", pa.nulls(ROWS, pa.float64()))
    without = without.set_column(2, "when", without["when"].cast(pa.timestamp("us")))
    x, _ = model.inputs(without, str)
    np.testing.assert_allclose(said["mean"], model.prediction(x).mean, rtol=1e-12)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (
            "when",
            7,
            "new.csv, row 1: column 'when' is read as a time, but the entry is '7'; correct it",
        ),
        ("on", 17, "new.csv, row 1: column 'on' is 17, but the model knows it as true or false"),
        (
            "on",
            "maybe",
            "new.csv, row 1: column 'on' is string here, but the model knows it as bool",
        ),
        ("x", "tall", "new.csv, row 1: column 'x'"),
    ],
)
def test_columns_of_another_kind(models, frame, tmp_path, column, value, words):
    path = written(tmp_path, frame.assign(**{column: value}))
    for command in ("predict", "update"):
        assert words in sentence(run(command, models / "impute", path))


def test_flags_may_be_numbers(models, frame, tmp_path):
    whole, _ = predicted(models / "impute", models / "rows.csv", tmp_path)
    path = written(tmp_path, frame.assign(on=frame["on"].astype(int)))
    pd.testing.assert_frame_equal(predicted(models / "impute", path, tmp_path)[0], whole)


@pytest.mark.slow(reason="compiles a fit of its own")
def test_vectors(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    path, other = tmp_path / "v.parquet", tmp_path / "w.parquet"
    table = pa.table({"v": list(rows), "y": rows[:, 0] > 0})
    pq.write_table(table, path)
    pq.write_table(table.set_column(0, "v", pa.array(list(rows[:, :2]))), other)
    ok("fit", path, "-t", "y", "-o", tmp_path / "m", "-q")
    for data in (other, written(tmp_path, pd.DataFrame({"v": [1.0], "y": [True]}))):
        assert "column 'v' is " in sentence(run("predict", tmp_path / "m", data))
    assert "the target 'v' is " in sentence(run("fit", path, "-t", "v", "-o", tmp_path / "n"))


def test_levels_whose_names_look_alike_are_merged_apart(tmp_path):
    """Column a with the level b=c, and column a=b with the level c."""
    rng = np.random.default_rng(0)
    one, two = rng.choice(["b=c", "d"], 200), rng.choice(["c", "e"], 200)
    y = rng.random(200) < np.where(one == "b=c", 0.9, 0.1)
    frame = pd.DataFrame({"a": one, "a=b": two, "y": y})
    plain = frame.rename(columns={"a=b": "k"})
    found = []
    for name, table in (("odd", frame), ("plain", plain)):
        for i, part in enumerate((table[:100], table[100:])):
            path = tmp_path / f"{name}{i}.csv"
            part.to_csv(path, index=False)
            like = ("--like", tmp_path / f"{name}0") if i else ()
            ok("fit", path, "-t", "y", *like, "-o", tmp_path / f"{name}{i}", "-q")
        shards = (tmp_path / f"{name}0", tmp_path / f"{name}1")
        ok("merge", *shards, "-o", tmp_path / name, "-q")
        found.append(predicted(tmp_path / name, tmp_path / f"{name}0.csv", tmp_path)[0])
    pd.testing.assert_frame_equal(*found)


@pytest.mark.slow(reason="compiles a fit that widens as levels come")
def test_a_full_covariance_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(linear, "MOST_FULL", 40)
    monkeypatch.setattr("kalvi.tabular.learn.PIECE_ROWS", 64)
    monkeypatch.setattr("kalvi.tabular.sources.SAMPLED", 64)
    path = tmp_path / "rows.csv"
    cities = [f"c{i % 5}" for i in range(64)] + [f"c{i}" for i in range(64)]
    pd.DataFrame({"city": cities, "y": [0, 1] * 64}).to_csv(path, index=False)
    message = sentence(run("fit", path, "-t", "y", "-o", tmp_path / "m"))
    assert "too many for a full covariance; give a rank (--rank 20)" in message
    ok("fit", path, "-t", "y", "-o", tmp_path / "m", "--force", "--set", "rank=null", "-q")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-t", "x"], "is of the target 'price'; got --target x"),
        (["-t", "price", "--rank", 3], "--like decides --rank too"),
        (["-t", "price", "--missing", "impute"], "--like decides --missing too"),
    ],
)
def test_like_decides(models, tmp_path, arguments, words):
    out = tmp_path / "m"
    result = run("fit", models / "rows.csv", *arguments, "--like", models / "price", "-o", out)
    assert words in sentence(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--classes", "01,02,x,x"], "--classes must be different labels"),
        (["--classes", "01,,02"], "--classes must be different labels"),
        (["-c", "x", "--number", "x"], "'x' cannot be a category and a number"),
    ],
)
def test_options_that_cannot_be(models, tmp_path, arguments, words):
    result = run("fit", models / "rows.csv", "-t", "code", *arguments, "-o", tmp_path / "m")
    assert words in sentence(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keep", "mean"], "the data have no column 'mean'"),
        (["--out", "p.weird"], "--out must end in .csv, .parquet or .jsonl; got p.weird"),
        (["--out", "nowhere/p.csv"], "there is no folder nowhere to write to"),
    ],
)
def test_what_predict_refuses(models, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in sentence(run("predict", models / "price", models / "rows.csv", *arguments))
    assert list(tmp_path.iterdir()) == []


def test_all_rows_at_once_must_have_all_classes(models, tmp_path):
    arguments = (
        "-t",
        "code",
        "-f",
        "x",
        "-m",
        "gp",
        "--classes",
        "01,02,x,y",
        "-o",
        tmp_path / "m",
    )
    assert sentence(run("fit", models / "rows.csv", *arguments)) == "no row has the class 'y'."
    assert list(tmp_path.iterdir()) == []


def test_kept_columns_do_not_replace_predictions(models, frame, tmp_path):
    path = written(tmp_path, frame.assign(mean=1.0))
    message = sentence(run("predict", models / "price", path, "--keep", "mean"))
    assert "the predictions have a column 'mean' of their own" in message


def test_a_forced_run_that_cannot_begin_takes_nothing_away(models, tmp_path):
    kept = tmp_path / "m.checkpoint"
    kept.write_bytes(b"what was learned")
    sentence(run("fit", tmp_path / "gone.csv", "-t", "y", "-o", tmp_path / "m", "--force"))
    assert kept.read_bytes() == b"what was learned"


def test_the_name_of_a_model(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.data.v2.csv").write_bytes((models / "rows.csv").read_bytes())
    ok("fit", "my.data.v2.csv", "-t", "price", "-f", "x", "-q")
    assert (tmp_path / "my.data.v2.kalvi").exists()
