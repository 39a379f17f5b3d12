"""kalvi silk: what it writes, says and refuses."""

import json

import numpy as np
import pandas as pd
import pytest

import kalvi
from kalvi.tabular.binary_matrix import locate_side
from tests.cli.commands import printed_json, run, sentence

ROWS, COLS = 24, 10


@pytest.fixture(scope="module")
def entries():
    rng = np.random.default_rng(1)
    f = 3 * np.sin(np.arange(ROWS) / 5)[:, None] * rng.normal(size=COLS)
    found = (rng.random((ROWS, COLS)) < 1 / (1 + np.exp(-f))).astype(float)
    found[rng.random((ROWS, COLS)) < 0.1] = np.nan
    return found


def wide(entries, path):
    table = pd.DataFrame(entries, columns=[f"m{i}" for i in range(COLS)]).astype("Int8")
    table.insert(0, "day", pd.date_range("2020-01-01", periods=ROWS, freq="2D"))
    table.to_csv(path, index=False)


@pytest.fixture(scope="module")
def votes(entries, tmp_path_factory):
    """A fitted matrix and its tables: the folder, what was told."""
    folder = tmp_path_factory.mktemp("votes")
    wide(entries, folder / "votes.csv")
    tables = {"predictions": "p.csv", "row-factors": "rows.parquet", "col-factors": "cols.csv"}
    options = [part for k, v in tables.items() for part in (f"--{k}", folder / v)]
    out = folder / "votes.kalvi"
    said = printed_json(
        run(
            "silk", folder / "votes.csv", "-k", 1, "--unordered-cols", "-o", out, *options, "--json"
        )
    )
    return folder, said


@pytest.fixture(scope="module")
def own(entries):
    days = np.arange(ROWS) * 2.0
    model = kalvi.BinaryFactorization(
        1,
        row_locations=days,
        col_locations="unordered",
        random_state=0,
    )
    return model.fit(entries)


def test_silk_learns_what_the_estimator_does(votes, own):
    folder, said = votes
    probabilities = pd.read_csv(folder / "p.csv", index_col="row")
    np.testing.assert_allclose(probabilities.to_numpy(), own.predict_proba(), rtol=1e-6)
    assert list(probabilities.columns) == [f"m{i}" for i in range(COLS)]
    assert probabilities.index[1] == "2020-01-03"
    rows = pd.read_parquet(folder / "rows.parquet")
    np.testing.assert_allclose(rows["factor_1"], own.row_factors_[:, 0], rtol=1e-6)
    np.testing.assert_allclose(rows["sd_1"], own.row_stds_[:, 0], rtol=1e-6)
    cols = pd.read_csv(folder / "cols.csv")
    assert list(cols.columns) == ["col", "factor_1", "sd_1"]
    np.testing.assert_allclose(cols["factor_1"], own.col_factors_[:, 0], rtol=1e-6)
    np.testing.assert_allclose(said["bound"], own.elbo_, rtol=1e-9)


def test_silk_says_what_it_found(votes, own, entries):
    folder, said = votes
    assert (said["rows"], said["cols"]) == (ROWS, COLS)
    assert said["observed"] == np.sum(~np.isnan(entries))
    assert said["ones"] == np.nansum(entries)
    assert said["row_axis"] == {"kind": "dates", "least": "2020-01-01", "most": "2020-02-16"}
    np.testing.assert_allclose(said["factors"][0]["row_length"], own.smoothness_.rows[0], rtol=1e-6)
    text = run("inspect", folder / "votes.kalvi").stdout
    assert f"1 factor of a {ROWS} × {COLS} matrix" in text
    assert "rows along    dates 2020-01-01 to 2020-02-16" in text
    assert f"{own.smoothness_.rows[0]:.4g} days, columns unordered" in text


def test_a_matrix_is_predicted_without_data(votes):
    folder, _ = votes
    assert run("predict", folder / "votes.kalvi").stdout_bytes == (folder / "p.csv").read_bytes()
    message = sentence(run("predict", folder / "votes.kalvi", folder / "votes.csv"))
    assert "takes no DATA" in message


def test_a_matrix_has_a_page(votes):
    folder, _ = votes
    about = json.loads(run("inspect", folder / "votes.kalvi", "--json").stdout)
    assert about["files"] == [{"path": "votes.csv"}]
    assert len(about["row_factors"]["mean"][0]) == about["rows"]
    assert run("report", folder / "votes.kalvi", "-o", folder / "page.html").exit_code == 0
    text = (folder / "page.html").read_text("utf-8")
    assert "Factors along rows and columns" in text and str(folder) not in text


def test_what_a_matrix_cannot(votes):
    folder, _ = votes
    model = folder / "votes.kalvi"
    before = model.read_bytes()
    assert "cannot learn more" in sentence(run("update", model, folder / "votes.csv"))
    assert "is finished" in sentence(run("resume", model))
    assert "cannot be merged" in sentence(run("merge", model, model, "-o", folder / "two"))
    assert "exists" in sentence(run("silk", folder / "votes.csv", "-o", model))
    assert model.read_bytes() == before
    assert not (folder / "two").exists()


WRONG = {
    "a,b\n0,1\n1,2\n": "m.csv, row 2: column 'b' is '2'; an entry of the matrix is 0, 1 or missing.",
    "a,b\n0,1\n": "m.csv: has 1 rows and 2 columns; factors need 2 of each at least.",
    "n,a,b\nx,,\ny,,\n": "m.csv: all entries are missing.",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_matrices(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.csv").write_text(text)
    assert sentence(run("silk", "m.csv", "--row-factors", "r.csv")) == WRONG[text]
    assert [p.name for p in tmp_path.iterdir()] == ["m.csv"]


def test_wrong_settings_of_a_matrix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.csv").write_text("n,a,b\nx,0,1\ny,1,0\n")
    (tmp_path / "where.csv").write_text("name,at\nx,1.5\nz,2\n")
    (tmp_path / "three.csv").write_text("at\n1\n2\n3\n")
    for options, words in (
        (("--factors", "0"), "--factors must be auto or a whole number of 1 or more; got '0'."),
        (("--factors", "3"), "choose n_factors ≤ 2"),
        (("--set", "depth=3"), "BinaryFactorization has no parameter 'depth'; it has batch_size, "),
        (("--row-locations", "where.csv"), "where.csv: has no location of row 'y'."),
        (("--row-locations", "three.csv"), "got 1 columns of 3 lines."),
        (("--row-locations", "order", "--unordered-rows"), "choose one of the two."),
        (("--predictions", "m.kalvi"), "need different files."),
        (("--predictions", "no/p.csv"), "there is no folder no to write to."),
    ):
        assert words in sentence(run("silk", "m.csv", *options))
    assert not (tmp_path / "m.kalvi").exists()


def test_locations_come_from_names_or_order():
    years = np.array(["1990", "2010", "2000"])
    by_name = locate_side("row", 3, years, None, False)
    assert by_name.axis[0] == "numbers"
    assert by_name.axis[2:] == ("1990", "2010")
    assert by_name.locations.tolist() == [1990.0, 2010.0, 2000.0]
    assert locate_side("row", 3, years, "order", False).locations is None
    assert locate_side("row", 3, np.array(["x", "1", "2"]), None, False).axis.kind == "order"
    assert locate_side("col", 2, None, None, True).axis.names == ("col_1", "col_2")


def test_a_file_of_locations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "where.csv").write_text("name,at\ny,2020-01-03\nx,2020-01-01\nz,2020-02-01\n")
    found = locate_side("row", 2, np.array(["x", "y"]), "where.csv", False)
    assert found.axis == ("dates", ("x", "y"), "2020-01-01", "2020-01-03")
    assert np.diff(found.locations).tolist() == [2.0]
