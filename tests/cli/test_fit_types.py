"""What `kalvi` takes columns for: on tables as people have them, said and overridden, in every command."""

import json

import numpy as np
import pandas as pd
import pytest

import kalvi
from kalvi.tabular import learn as learning
from tests.cli.commands import ok, run, sentence

ROWS = 400


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x, price = rng.normal(size=ROWS).round(3), rng.gamma(2.0, 900.0, ROWS).round(2)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, ROWS), "D")
    words = np.array(["good", "bad", "cheap", "slow", "fast", "ugly", "nice", "the", "a"])
    said = [" ".join(rng.choice(words, 6)) + f" {i}" for i in range(ROWS)]
    f = 1.5 * x + np.array(["good" in s for s in said])
    return pd.DataFrame(
        {
            "x": x.astype(str),
            "price": [f"${v:,.2f}" for v in price],
            "day": day.strftime("%m/%d/%Y"),
            "zip": [f"{v:05d}" for v in rng.choice([1234, 2139, 90210], ROWS)],
            "said": said,
            "one": 1,
            "late": np.where(rng.random(ROWS) < 1 / (1 + np.exp(-f)), "yes", "no"),
        }
    )


def saved(path, frame, **entries):
    """The table with other entries, given as column=(row, entry)."""
    frame = frame.copy()
    for column, (row, entry) in entries.items():
        frame.loc[row, column] = entry
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def models(frame, tmp_path_factory):
    """A model that imputes and one that does not."""
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "rows.csv", frame)
    for missing in ("impute", "error"):
        out = ("-o", folder / missing, "-q", "--missing", missing)
        ok("fit", folder / "rows.csv", "-t", "late", "-d", "said", *out)
    return folder


def test_a_question_mark_among_numbers_is_a_missing_number(frame, tmp_path):
    found = []
    for name, entry in (("mark", "?"), ("empty", "")):
        path = saved(tmp_path / f"{name}.csv", frame[["x", "late"]], x=(7, entry))
        arguments = ("-t", "late", "--missing", "impute", "--json")
        found.append(json.loads(ok("fit", path, *arguments, "-o", tmp_path / name).stdout))
    mark, empty = found
    assert [column["name"] for column in mark["columns"]] == ["x"]
    assert mark["columns"][0]["kind"] == "number"
    assert mark["columns"][0]["missing"] == 1
    assert mark["parameters"] == empty["parameters"] == 3
    assert mark["log_loss"] == empty["log_loss"] < 0.6
    assert mark["taken_for"]["x"] == "numbers; 1 entry '?' missing"


def test_every_column_is_said_with_the_reason(frame, tmp_path):
    path = saved(tmp_path / "rows.csv", frame, x=(3, "abc"))
    said = ok("fit", path, "-t", "late", "--missing", "impute", "-o", tmp_path / "m").stderr
    for line in (
        "x                            number  ",
        "(99.75 % numbers; 1 entry such as 'abc' counted as missing)",
        "(numbers written as $1,234.5)",
        "day                          time  202",
        "days  (times written as %m/%d/%Y)",
        "zip                          category  3 levels: ",
        "(leading zeros, as in '",
        "said                         text  409 words: ",
        "(7 words an entry, most of them different)",
        "one                          number  always 1  (numbers)",
        "the target: logistic regression (no, yes)  (text such as '",
        "note: column 'x': entries that are not a number count as missing, 1 of those read: 'abc'",
    ):
        assert line in said
    assert "e+09" not in ok("inspect", tmp_path / "m").stdout
    effects = json.loads(ok("inspect", tmp_path / "m", "--json").stdout)["effects"]
    assert {effect["name"]: effect["mean"] for effect in effects}["said: good"] > 0.5


def test_a_stray_entry_is_refused_by_name_and_row_unless_it_is_imputed(models, frame, tmp_path):
    path = saved(tmp_path / "stray.csv", frame, x=(9, "abc"))
    start = "stray.csv, row 10: column 'x' is read as a number, but the entry is 'abc'; correct it"
    message = sentence(run("fit", path, "-t", "late", "-o", tmp_path / "m"))
    assert message.startswith(start)
    assert "(--missing impute, or --skip-unlabelled for the target)" in message
    for command in ("predict", "update"):
        message = sentence(run(command, models / "error", path))
        assert message.startswith(start)
        assert "--missing" not in message  # the command has no such option
    said = ok("predict", models / "impute", path, "-o", tmp_path / "p.csv").stderr
    assert "count as missing, 1 of those read: 'abc'" in said
    said = ok("update", models / "impute", path, "-o", tmp_path / "more").stderr
    assert "count as missing, 1 of those read: 'abc'" in said
    assert list(tmp_path.glob("m*")) == [tmp_path / "more"]


def test_columns_that_are_not_used_cannot_end_a_run(frame, tmp_path):
    path = saved(tmp_path / "rows.csv", frame.assign(other="01/02/2020"), price=(9, "dear"))
    ok("fit", path, "-t", "late", "-f", "x", "-o", tmp_path / "m", "-q")
    assert "column 'other' has entries such as '01/02/2020'" in sentence(
        run("fit", path, "-t", "late", "-d", "price", "-o", tmp_path / "n")
    )


def test_other_files_are_read_in_the_notation_of_the_model(models, frame, tmp_path):
    model = kalvi.load(models / "error")
    assert model.notation == {"price": "number:$1,234.5", "day": "time:%m/%d/%Y"}
    few = frame[frame["zip"] == "90210"][:3]
    few = few.assign(day="01/02/2020", price=["$1,234", "$2,345", "$3,456"])
    plain = few.assign(day="2020-01-02", price=["1234", "2345", "3456"], zip=90210)
    found = []
    for name, table in (("same", few), ("plain", plain.drop(columns="late"))):
        path = saved(tmp_path / f"{name}.csv", table)
        how = ("--as", "day=time", "--as", "zip=category") if name == "plain" else ()
        ok("predict", models / "error", path, *how, "-o", tmp_path / f"p_{name}.csv", "-q")
        found.append(pd.read_csv(tmp_path / f"p_{name}.csv"))
    pd.testing.assert_frame_equal(*found)


def test_resuming_reads_as_before(models, frame, tmp_path, monkeypatch):
    """Also where an update says how its file is written."""
    path = saved(
        tmp_path / "new.csv", frame.assign(day=pd.to_datetime(frame["day"]).dt.strftime("%d.%m.%Y"))
    )
    out = ("--as", "day=time:%d.%m.%Y", "-q")
    ok("update", models / "error", path, *out, "-o", tmp_path / "whole")
    monkeypatch.setattr(learning, "PIECE_ROWS", 100)
    told = []

    def stop(self, rows, start):
        told.append(start)
        if len(told) == 3:
            raise ValueError("stopped here")
        return learned(self, rows, start)

    learned = type(kalvi.load(models / "error")).learned
    with monkeypatch.context() as patched:
        patched.setattr(type(kalvi.load(models / "error")), "learned", stop)
        arguments = ("update", models / "error", path, *out, "--checkpoint-rows", 100)
        assert "stopped here" in sentence(run(*arguments, "-o", tmp_path / "part"))
    held = learning.find_unfinished_run(tmp_path / "part")
    assert held is not None
    assert held.job.types["day"] == "time:%d.%m.%Y"
    ok("resume", tmp_path / "part", "-q")
    one, two = (kalvi.load(tmp_path / name).estimator.posterior_.mean for name in ("whole", "part"))
    np.testing.assert_allclose(one, two, rtol=1e-9)


def test_a_target_of_any_notation(frame, tmp_path):
    rng = np.random.default_rng(1)
    y = 1000 + 100 * frame["x"].astype(float) + rng.normal(size=ROWS)
    table = frame[["x"]].assign(y=[f"{v:,.2f} €".translate(str.maketrans(",.", ".,")) for v in y])
    path = saved(tmp_path / "rows.csv", table)
    ok("fit", path, "-t", "y", "-o", tmp_path / "m", "-q")
    arguments = ("predict", tmp_path / "m", path, "-o", tmp_path / "p.csv", "--json")
    about = json.loads(ok(*arguments).stdout)
    assert about["labelled"] == ROWS
    assert 0.5 < about["mean_squared_error"] < 2
    stray = saved(tmp_path / "stray.csv", table, y=(4, "dear"))
    message = sentence(run("fit", stray, "-t", "y", "-o", tmp_path / "n"))
    assert message.startswith(
        "stray.csv, row 5: column 'y' is read as a number (€1.234,5), but the entry is 'dear'"
    )
    how = ("--skip-unlabelled", "--json")
    assert (
        json.loads(ok("fit", stray, "-t", "y", "-o", tmp_path / "n", *how).stdout)["rows"]
        == ROWS - 1
    )
    about = json.loads(
        ok("predict", tmp_path / "m", stray, "-o", tmp_path / "q.csv", "--json").stdout
    )
    assert about["labelled"] == ROWS - 1


@pytest.mark.parametrize("form", ["csv", "json"])
def test_users_may_say_what_columns_are(frame, tmp_path, form):
    words = {"x": "category", "price": "drop", "day": "time:%m/%d/%Y", "zip": "number"}
    file = tmp_path / f"columns.{form}"
    lines = "".join(f"{name},{word}\n" for name, word in words.items())
    file.write_text(f"name,type\n{lines}" if form == "csv" else json.dumps(words))
    path = saved(tmp_path / "rows.csv", frame)
    ok(
        *("fit", path, "-t", "late", "--columns", file, "-o", tmp_path / "m", "-q"),
        *("--as", "x=number", "--as", "said=drop", "--as", "one=category"),
    )
    model = kalvi.load(tmp_path / "m")
    kinds = {column["name"]: column["kind"] for column in model.encoder.describe()}
    assert kinds == {"x": "number", "zip": "number", "day": "time", "one": "category"}
    ok("predict", tmp_path / "m", path, "-o", tmp_path / "p.csv", "-q")


def test_factors_may_be_told_too(frame, tmp_path):
    path = saved(tmp_path / "rows.csv", frame, x=(3, "-"))
    how = ("-k", "1", "--missing", "impute", "-o", tmp_path / "m")
    said = ok("factor", path, *how, "--as", "zip=number", "--as", "one=drop").stderr
    assert "(numbers; 1 entry '-' missing)" in said
    assert "left out: a time is no number  (times written as %m/%d/%Y)" in said
    assert kalvi.load(tmp_path / "m").columns() == ("x", "price", "zip")
    ok("predict", tmp_path / "m", path, "-o", tmp_path / "p.csv", "-q")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--as", "x"], "--as takes NAME=TYPE, such as zip=category; got 'x'"),
        (["--as", "x=integer"], "a column is called one of number, category, time, text"),
        (["--as", "q=number"], "rows.csv: has no column 'q' to read as a number"),
        (["--as", "x=number", "-c", "x"], "'x' cannot be a category and a number"),
        (["--as", "x=time"], "rows.csv, row 1: column 'x' is read as a time, but the entry is '"),
        (["--columns", "gone.csv"], "gone.csv: no such file."),
        (["--columns", "bad.csv"], "bad.csv: it must be a CSV file with the columns name and type"),
        (["--columns", "bad.json"], "bad.json: it must be a CSV file with the columns name and"),
    ],
)
def test_what_cannot_be_said_of_columns(frame, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "rows.csv", frame)
    (tmp_path / "bad.csv").write_text("column,kind\nx,number\n")
    (tmp_path / "bad.json").write_text('{"x": 1}')
    assert words in sentence(run("fit", "rows.csv", "-t", "late", *arguments))
    assert not (tmp_path / "rows.kalvi").exists()


def test_streams_take_the_same_words(frame, tmp_path):
    path = saved(tmp_path / "rows.csv", frame, x=(3, "?"))
    types = {"said": "drop", "day": "time:%m/%d/%Y", "zip": "number", "price": "drop"}
    rows = kalvi.stream(path, "late", types=types, missing="impute", drop=["one"])
    assert rows.names[:3] == ["x", "day", "zip"]
    assert sum(1 for _ in rows) == 1
    with pytest.raises(ValueError, match=r"a column is called one of"):
        kalvi.stream(path, "late", types={"x": "integer"})


def test_times_and_constants_are_said_in_words_in_notes(frame, tmp_path, monkeypatch):
    monkeypatch.setattr("kalvi.tabular.sources.SAMPLED", 100)
    day = pd.date_range("2020-01-01", periods=100, freq="h").append(
        pd.date_range("2024-01-01", periods=300, freq="D")
    )
    table = pd.DataFrame({"day": day, "still": [1.0] * 100 + [5.0] * 300, "late": frame["late"]})
    path = saved(tmp_path / "rows.csv", table)
    said = ok("fit", path, "-t", "late", "-o", tmp_path / "m").stderr
    assert "still                        number  always 1  (numbers)" in said
    assert "'day' is 2023-" in said
    assert "days over all rows, but was 2020-01-03" in said
    assert "± 28.9 hours in the first" in said


def test_one_column_more(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 14)), columns=[f"x{i}" for i in range(14)])
    path = tmp_path / "rows.csv"
    table.assign(x13=["?", *table["x13"][1:]]).to_csv(path, index=False)
    said = ok("fit", path, "-t", "x0", "--missing", "impute", "-o", tmp_path / "m").stderr
    assert "  ... and 1 more column\n" not in said  # the thirteenth has something to say
    assert "x13 " in said
    said = ok("fit", path, "-t", "x13", "--skip-unlabelled", "-o", tmp_path / "n").stderr
    assert "  ... and 1 more column\n" in said


def test_a_marker_among_labels_is_a_missing_label(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},{'yes' if i % 3 else 'no'}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text(f"x,y\n{rows}7,?\n")
    message = sentence(run("fit", "rows.csv", "-t", "y", "-o", "m.kalvi", "-q"))
    assert message.startswith("rows.csv, row 41: the target 'y' is missing ('?'); fill it in")
    ok("fit", "rows.csv", "-t", "y", "-o", "m.kalvi", "-q", "--skip-unlabelled")
    assert kalvi.load("m.kalvi").classes_.tolist() == ["no", "yes"]
    ok("fit", "rows.csv", "-t", "y", "-o", "n.kalvi", "-q", "--classes", "?,no,yes")
    assert kalvi.load("n.kalvi").record.rows == 41


def test_a_target_of_one_number_names_the_linear_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("x,y\n1,3.0\n2,3.0\n")
    assert "or use --model linear." in sentence(run("fit", "rows.csv", "-t", "y", "-o", "m.kalvi"))


@pytest.mark.parametrize("model", ["linear", "neural"])
def test_a_table_too_small_to_be_scored_says_so(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i},{i * i}.5\n" for i in range(14)))
    ok("fit", "rows.csv", "-t", "y", "-m", model, "-o", "m.kalvi", "-q")
    about = json.loads(ok("inspect", "m.kalvi", "--json").stdout)
    assert about["scores"] is None
    assert "there were only 14 of them" in about["scores_absent"]
