"""kalvi factor: what it writes, says and refuses."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.commands import printed_json, run, sentence


@pytest.fixture(scope="module")
def sensors(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)) @ rng.normal(size=(1, 3)) + 0.5 * rng.normal(size=(60, 3))
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(place="north")
    folder = tmp_path_factory.mktemp("sensors")
    table.to_csv(folder / "all.csv", index=False, float_format="%.17g")
    table[:40].to_csv(folder / "first.csv", index=False, float_format="%.17g")
    table[40:].to_csv(folder / "rest.csv", index=False, float_format="%.17g")
    return folder


def test_factor_update_predict_inspect(sensors):
    model, units = sensors / "m.kalvi", ("--raw", "-k", 1)
    whole = printed_json(
        run("factor", sensors / "all.csv", *units, "-o", sensors / "all.kalvi", "--json")
    )
    part = printed_json(run("factor", sensors / "first.csv", *units, "-o", model, "--json"))
    assert (whole["rows"], part["rows"]) == (60, 40)
    updated = printed_json(run("update", model, sensors / "rest.csv", "--json"))
    assert updated["factors"] == whole["factors"]
    assert updated["noise"] == whole["noise"]
    scores = run("predict", model, sensors / "rest.csv", "--keep", "place")
    head, first = scores.stdout.splitlines()[:2]
    assert head == '"place","factor_1","log_density"'
    assert first.startswith('"north",')
    text = run("inspect", model, "--effects", 1).stdout
    assert "m.kalvi: 1 factor of 3 columns (eigen)" in text
    listed = [f"  {name:<36} {share:7.1%}\n" in text for name, share in whole["noise"]]
    assert listed == [True, False, False]
    run("report", model, "-o", sensors / "page.html")
    text = (sensors / "page.html").read_text("utf-8")
    assert "Loadings" in text and "Noise" in text and str(sensors) not in text
    assert "cannot be merged" in sentence(run("merge", model, model, "-o", sensors / "two"))


def test_wrong_factors(sensors, tmp_path):
    (tmp_path / "names.csv").write_text("a,b\nx,y\nz,w\n")
    (tmp_path / "holes.csv").write_text("a,b\n1,2\n3,\n5,5\n")
    out = ("-o", tmp_path / "m.kalvi")
    rows = sensors / "first.csv"
    assert "4 factors of 3 columns" in sentence(run("factor", rows, "-k", 4, *out))
    message = sentence(run("factor", rows, "-k", 1, "-f", "a", "-f", "place", *out))
    assert message == "'place' is a category; factors need columns of numbers."
    message = sentence(run("factor", rows, "-k", 1, "--set", "depth=2", *out))
    assert message.startswith("FactorAnalysis has no parameter 'depth'; it has block_size, ")
    message = sentence(run("factor", rows, "-k", 1, "--set", "method=sga", *out))
    assert message.startswith("FactorAnalysis has no parameter 'method'; it has block_size, ")
    message = sentence(run("factor", rows, "-k", 1, "--set", "prior_rows=-1", *out))
    assert message == "prior_rows must be a non-negative number; got -1."
    message = sentence(run("factor", tmp_path / "names.csv", "-k", 1, *out))
    assert "has no columns of numbers among a, b." in message
    message = sentence(run("factor", tmp_path / "holes.csv", "-k", 1, *out))
    assert message.startswith("holes.csv, row 2: column 'b' is missing; ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["holes.csv", "names.csv"]
