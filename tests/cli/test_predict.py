"""kalvi predict: what it writes and says."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import ROWS, ok


def test_predict(model, data, frame, tmp_path):
    text = ok("predict", model, data, "--keep", "city")
    assert "log loss" in text.stderr
    out = tmp_path / "p.parquet"
    about = json.loads(ok("predict", model, data, "-o", out, "--json").stdout)
    table = pq.read_table(out).to_pandas()
    parts = [f"{part}_{label}" for part in ("p", "sd", "lower", "upper") for label in ("no", "yes")]
    assert list(table) == ["predicted", *parts]
    assert about["rows"] == about["labelled"] == len(table) == ROWS
    p = np.where(frame["sold"] == "yes", table["p_yes"], table["p_no"])
    assert about["log_loss"] == pytest.approx(-np.mean(np.log(p)))
    printed = text.stdout.splitlines()
    assert printed[0].replace('"', "") == ",".join(["city", "predicted", *parts])
    np.testing.assert_allclose(table["p_no"] + table["p_yes"], 1)
    np.testing.assert_allclose(table["lower_no"] + table["upper_yes"], 1)
    assert np.all(table["predicted"] == np.where(table["p_yes"] > 0.5, "yes", "no"))
    assert len(printed) == ROWS + 1
    lines = ok("predict", model, data, "-o", tmp_path / "p.jsonl", "-q")
    assert lines.output == ""
    first = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert first["p_yes"] == table["p_yes"][0]


def test_predictions_of_unknown_things_are_reported(model, tmp_path):
    other = tmp_path / "new.csv"
    other.write_text("size,city,colour\n1,Bonn,red\n2,Trier,blue\n")
    text = ok("predict", model, other).stderr
    assert "ignored: colour" in text
    assert "'city' has levels the model has not seen, in 1 rows: Trier" in text
