"""Models of the command line, loaded in Python: the predictions of the commands for every kind of frame."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from click.testing import CliRunner

import kalvi
from kalvi.cli import main
from tests.cli.commands import ok


def run(*said) -> str:
    """What a command prints."""
    found = CliRunner().invoke(main, [str(word) for word in said])
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model of each kind of target."""
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    n = 60
    size = rng.normal(size=n).round(3)
    frame = pd.DataFrame(
        {
            "size": size,
            "colour": rng.choice(["red", "blue", "green"], n),
            "day": pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d"),
            "sold": np.where(size + rng.normal(size=n) > 0, "yes", "no"),
            "grade": np.digitize(size, [-0.5, 0.5]).astype(str),
            "price": (2 * size + rng.normal(size=n)).round(3),
        }
    )
    frame["grade"] = "g" + frame["grade"]
    frame.to_csv(folder / "rows.csv", index=False)
    others = {"sold": "grade price", "grade": "sold price", "price": "sold grade"}
    for target, dropped in others.items():
        drop = [word for name in dropped.split() for word in ("--drop", name)]
        run("fit", folder / "rows.csv", "-t", target, *drop, "-o", folder / f"{target}.kalvi", "-q")
    return folder


@pytest.fixture(scope="module")
def frame(folder):
    return pd.read_csv(folder / "rows.csv")


def written(folder, target: str, *options) -> pd.DataFrame:
    """What `kalvi predict` writes."""
    out = folder / "out.csv"
    run(
        "predict", folder / f"{target}.kalvi", folder / "rows.csv", "-o", out, "-q", "--force",
        *options,
    )  # fmt: skip
    return pd.read_csv(out)


def frames(frame: pd.DataFrame, folder) -> dict:
    """The same rows in every shape."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return {
        "pandas": frame,
        "arrow": table,
        "batch": table.to_batches()[0],
        "dict": frame.to_dict("list"),
        "arrays": {name: frame[name].to_numpy() for name in frame},
        "rows": frame.to_dict("records"),
        "path": folder / "rows.csv",
        "text": str(folder / "rows.csv"),
        "shuffled columns": frame[sorted(frame)],
        "without the target": frame.drop(columns=["sold", "grade", "price"]),
        "categories": frame.astype({"colour": "category"}),
    }


@pytest.mark.parametrize("target", ["sold", "grade"])
def test_classes(folder, frame, target):
    model, wanted = kalvi.load(folder / f"{target}.kalvi"), written(folder, target)
    labels = model.classes_.tolist()
    assert sorted(labels) == sorted(set(frame[target]))
    probabilities = wanted[[f"p_{label}" for label in labels]].to_numpy()
    for shape, rows in frames(frame, folder).items():
        np.testing.assert_allclose(model.predict_proba(rows), probabilities, 1e-13, err_msg=shape)
    assert model.predict(frame).tolist() == wanted["predicted"].tolist()
    lower, upper = model.predict_interval(frame, level=0.8)
    wanted = written(folder, target, "--level", "0.8")
    for k, label in enumerate(labels):
        np.testing.assert_allclose(lower[:, k], wanted[f"lower_{label}"], rtol=1e-12)
        np.testing.assert_allclose(upper[:, k], wanted[f"upper_{label}"], rtol=1e-12)
    with pytest.raises(ValueError, match="no standard deviation"):
        model.predict(frame, return_std=True)


def test_numbers(folder, frame):
    model, wanted = kalvi.load(folder / "price.kalvi"), written(folder, "price")
    for shape, rows in frames(frame, folder).items():
        np.testing.assert_allclose(model.predict(rows), wanted["mean"], 1e-12, err_msg=shape)
    mean, std = model.predict(frame, return_std=True)
    np.testing.assert_allclose(mean, wanted["mean"], rtol=1e-12)
    np.testing.assert_allclose(std, wanted["sd"], rtol=1e-12)
    for found, end in zip(model.predict_interval(frame), ("lower", "upper"), strict=True):
        np.testing.assert_allclose(found, wanted[end], rtol=1e-12)
    with pytest.raises(AttributeError, match="'price' is a number"):
        model.predict_proba(frame)
    with pytest.raises(AttributeError, match="classes_"):
        _ = model.classes_
    assert not hasattr(model, "classes_")


def test_the_table_is_what_the_command_writes(folder, frame):
    for target in ("sold", "grade", "price"):
        table = kalvi.load(folder / f"{target}.kalvi").predict_table(frame)
        wanted = pa_csv.read_csv(folder / "out.csv" if written(folder, target) is not None else "")
        assert table.column_names == wanted.column_names
        for name in table.column_names:
            if pa.types.is_floating(table[name].type):
                np.testing.assert_allclose(table[name], wanted[name], rtol=1e-12)


def test_polars(folder, frame):
    polars = pytest.importorskip("polars")
    model, rows = kalvi.load(folder / "sold.kalvi"), polars.from_pandas(frame)
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(frame))
    with pytest.raises(TypeError, match="collect"):
        model.predict(rows.lazy())


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ({"size": [1.0], "day": ["2024-01-01"]}, ValueError, "the table, row 1.*no column 'colour'"),
        ([{"size": 1.0, "day": "2024-01-01", "colour": "red"}, {"size": "big", "day": "2024-01-01",
          "colour": "red"}], ValueError, "the table"),
        ({"size": 1.0, "day": "2024-01-01", "colour": "red"}, TypeError, "a list of one dict"),
        ([], ValueError, "no rows"),
        (7, TypeError, "rows to predict are a pandas, polars or Arrow table"),
        (np.eye(3), TypeError, "got ndarray"),
        ("absent.csv", ValueError, "absent.csv: no such file"),
    ],
    ids=["column", "entry", "scalars", "empty", "number", "array", "file"],
)  # fmt: skip
def test_what_is_refused(folder, rows, error, said):
    model = kalvi.load(folder / "sold.kalvi")
    with pytest.raises(error, match=said):
        model.predict(rows)


def test_a_level_is_refused(folder, frame):
    with pytest.raises(ValueError, match=r"level must be between 0 and 1; got 95"):
        kalvi.load(folder / "price.kalvi").predict_interval(frame, 95.0)


def test_the_summary_prints_what_inspect_prints(folder):
    for target in ("sold", "price"):
        path = folder / f"{target}.kalvi"
        about = kalvi.load(path).summary()
        printed = run("inspect", path).replace(path.name, "model", 1)
        assert str(about) == repr(about) == printed.rstrip("\n")
        assert isinstance(about, dict) and about["rows"] == 60


def test_a_short_repr(folder):
    found = repr(kalvi.load(folder / "sold.kalvi"))
    classes = "/".join(kalvi.load(folder / "sold.kalvi").classes_)
    wanted = f"<kalvi logistic regression of sold: 3 columns, 60 rows, classes {classes}>"
    assert found == wanted
    found = repr(kalvi.load(folder / "price.kalvi"))
    assert found == "<kalvi linear regression of price: 3 columns, 60 rows>"


def test_factors(folder, frame):
    path = folder / "factors.kalvi"
    run("factor", folder / "rows.csv", "--components", 1, "-o", path, "-q")
    model, table = kalvi.load(path), written(folder, "factors")
    np.testing.assert_allclose(model.transform(frame)[:, 0], table["factor_1"], rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(frame), table["log_density"], rtol=1e-12)
    assert model.predict_table(frame).column_names == list(table)
    assert repr(model) == "<kalvi factor analysis: 1 factor of 2 columns, 60 rows>"
    assert str(model.summary()) == run("inspect", path).replace(path.name, "model", 1).rstrip("\n")


def test_matrices(folder):
    matrix = (np.random.default_rng(0).random((6, 5)) < 0.5).astype(int)
    pd.DataFrame(matrix, columns=list("abcde")).to_csv(folder / "votes.csv", index=False)
    path = folder / "votes.kalvi"
    run("silk", folder / "votes.csv", "-o", path, "-q", "--factors", 1, "--set", "max_sweeps=2")
    model = kalvi.load(path)
    assert model.predict_proba().shape == matrix.shape
    assert model.predict_table().column_names == ["row", *"abcde"]
    np.testing.assert_array_equal(model.predict_table()["c"], model.predict_proba()[:, 2])
    assert repr(model) == "<kalvi binary matrix: 1 factor of a 6 × 5 matrix, 30 entries observed>"
    assert str(model.summary()) == run("inspect", path).replace(path.name, "model", 1).rstrip("\n")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Models of targets that are numbers and truths, with a zip code and imputed values."""
    folder, rng = tmp_path_factory.mktemp("odd"), np.random.default_rng(0)
    x, zips = rng.normal(size=120), rng.choice(["01234", "00501", "98765"], 120)
    yes = rng.random(120) < 1 / (1 + np.exp(-2 * x))
    rows = pd.DataFrame({"x": x, "zip": zips, "one": yes.astype(int), "flag": yes})
    rows.to_csv(folder / "rows.csv", index=False)
    for target, other in (("one", "flag"), ("flag", "one")):
        out = ["-o", folder / f"{target}.kalvi", "-q", "--missing", "impute"]
        ok("fit", folder / "rows.csv", "-t", target, "-d", other, *out)
    return folder, rows


@pytest.mark.parametrize("target", ["one", "flag"])
def test_labels_are_of_the_type_that_they_have_in_the_table(odd, target):
    folder, rows = odd
    model = kalvi.load(folder / f"{target}.kalvi")
    assert model.classes_.tolist() == [0, 1]
    assert np.mean(model.predict(rows) == rows[target]) > 0.7


def test_what_a_frame_lacks_or_the_model_has_never_seen_is_warned_of(odd):
    folder, rows = odd
    model = kalvi.load(folder / "one.kalvi")
    with pytest.warns(UserWarning, match="the data have no column 'x': it is imputed in all rows"):
        model.predict_proba(rows.drop(columns="x"))
    lost = rows.assign(zip=rows["zip"].astype(int))
    with pytest.warns(UserWarning, match="'zip' has levels .*lost their leading zeros"):
        model.predict(lost)
    with pytest.warns(UserWarning, match="lost their leading zeros"):
        model.predict_table(lost)
    rows.drop(columns="x").to_csv(folder / "less.csv", index=False)
    said = ok("predict", folder / "one.kalvi", folder / "less.csv").stderr
    assert "the data have no column 'x': it is imputed in all rows" in said
