"""kalvi inspect, report and merge: what they write and say."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kalvi
from tests.cli.commands import ROWS, ok, run, sentence


def test_inspect_and_report(model, tmp_path):
    text = ok("inspect", model).stdout
    for words in (
        "rows.kalvi: logistic regression of sold",
        "300",
        "log evidence",
        "city=Ulm",
        "[",
    ):
        assert words in text
    about = json.loads(ok("inspect", model, "--json").stdout)
    assert about["effects"][0]["name"] == "size"
    assert about["effects_of"] == "the log odds of yes" in text
    assert "intercept" not in {effect["name"] for effect in about["effects"]}
    assert about["files"][0]["path"] == "rows.csv"
    assert "scores of 284 rows (each before it was learned)" in text and " per unit" in text
    page = tmp_path / "page.html"
    ok("report", model, "-o", page, "--no-diagnosis")
    html = page.read_text("utf-8")
    assert "rows.kalvi" in html and "Learning curve" in html and "Calibration" in html
    assert "predicted p_yes" in html and str(model.parent) not in html


def test_rows_are_kept_only_if_asked_for(model, data, frame, tmp_path):
    values = {f"{value:.6g}" for value in frame["size"]}
    page = tmp_path / "page.html"
    ok("report", model, "-o", page)
    html = page.read_text("utf-8")
    assert "Predictive examples" not in html
    assert "fit it with --diagnose, or with --keep-rows" in html
    told = ok("inspect", model, "--diagnose").stdout
    assert "note: There is no diagnosis of the Gaussian (Pareto k)" in told
    assert json.loads(ok("inspect", model, "--json").stdout)["examples"] == []
    kept = tmp_path / "kept.kalvi"
    ok("fit", data, "-t", "sold", "-o", kept, "-q", "--keep-rows")
    about = json.loads(ok("inspect", kept, "--diagnose", "--json").stdout)
    assert {example["row"]["size"] for example in about["examples"]} <= values
    assert {example["class"] for example in about["examples"]} == {"yes"}
    assert about["diagnosis"]["rows"] == ROWS
    ok("report", kept, "-o", page, "--no-diagnosis", "--force")
    assert "Predictive examples" in page.read_text("utf-8")
    ok("fit", data, "-t", "sold", "--like", kept, "-o", tmp_path / "like", "-q")
    assert kalvi.load(tmp_path / "like").record.examples == ()


def test_a_diagnosis_at_the_end_of_a_fit(data, tmp_path):
    path = tmp_path / "m.kalvi"
    ok("fit", data, "-t", "sold", "-o", path, "-q", "--diagnose")
    assert kalvi.load(path).record.sample.x is None
    assert "Pareto k" in ok("inspect", path).stdout
    message = sentence(
        run("fit", data, "-t", "sold", "-m", "gp", "-o", tmp_path / "g", "--diagnose")
    )
    assert "--diagnose is for logistic, linear and poisson models" in message


@pytest.mark.parametrize("name", ["labels", "numbers"])
def test_models_of_older_versions_have_a_page_with_less_on_it(name, tmp_path):
    """Files that were written before scores were kept; they hold rows, and whole paths."""
    old = Path(__file__).parents[1] / "tabular" / "files" / f"{name}.kalvi"
    about = json.loads(ok("inspect", old, "--diagnose", "--json").stdout)
    assert about["files"][0]["path"] == f"{name}.csv"
    assert about["scores"] is None and about["drift"] is None
    assert about["diagnosis"]["rows"] == 120 and len(about["examples"]) == 8
    page = tmp_path / "page.html"
    ok("report", old, "-o", page, "--no-diagnosis")
    html = page.read_text("utf-8")
    assert "Predictive examples" in html and "Calibration" in html and "/srv" not in html
    rng = np.random.default_rng(0)
    more = pd.DataFrame({"size": rng.normal(3, 2, 60), "city": rng.choice(["Bonn", "Ulm"], 60)})
    more["sold"], more["price"] = rng.choice(["yes", "no"], 60), 2 * more["size"]
    more.to_csv(tmp_path / "more.csv", index=False)
    ok("update", old, tmp_path / "more.csv", "-o", tmp_path / "new.kalvi", "-q")
    record = kalvi.load(tmp_path / "new.kalvi").record
    assert record.scores.rows() == 60 and record.rows == 180
    assert record.sample.x is None and record.examples == ()


def test_merge(model, data, tmp_path):
    ok("fit", data, "-t", "sold", "--like", model, "-o", tmp_path / "b", "-q")
    message = sentence(run("merge", model, tmp_path / "b", "-o", tmp_path / "both"))
    assert "have both learned rows.csv, and its rows would count twice" in message
    ok("merge", model, tmp_path / "b", "-o", tmp_path / "both", "--again")
    assert kalvi.load(tmp_path / "both").record.rows == 2 * ROWS
    message = sentence(run("merge", model, tmp_path / "b", "-o", tmp_path / "both"))
    assert "exists; choose another name with --out, or replace it with --force" in message
