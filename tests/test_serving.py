"""Models behind a server: many threads, and the example of the pages over HTTP."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import kalvi
from kalvi.cli import main
from tests.estimators.test_saving import LABELS, THREE, X, Y
from tests.test_docs import DOCS, script

THREADS = 8


@pytest.mark.parametrize(
    "fitted",
    [
        lambda: kalvi.LinearRegression(noise_scale="auto").partial_fit(X, Y),
        lambda: kalvi.LogisticRegression(rank=1).partial_fit(X[:25], LABELS[:25]),
        lambda: kalvi.LogisticRegression(passes=1).fit(X, THREE),
    ],
    ids=["linear", "low rank", "classes"],
)
def test_many_threads_predict_as_one(fitted, tmp_path):
    model = fitted()
    kalvi.save(tmp_path / "m.kalvi", model)
    wanted = [model.predict(X[i : i + 1])[0] for i in range(len(X))]
    for served in (fitted(), kalvi.load(tmp_path / "m.kalvi")):
        together = Barrier(THREADS)

        def ask(i, served=served, together=together):
            together.wait()  # the first predictions come at once
            return [served.predict(X[i : i + 1])[0] for i in range(i, len(X), THREADS)]

        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(ask, range(THREADS)))
        for i, part in enumerate(found):
            assert part == wanted[i::THREADS]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The example of the page with a model of the command line, and the model's rows."""
    testclient = pytest.importorskip("fastapi.testclient")
    folder, rng = tmp_path_factory.mktemp("served"), np.random.default_rng(0)
    frame = pd.DataFrame(
        {"hour": rng.integers(0, 24, 80), "origin": rng.choice(["CGN", "FRA"], 80)}
    )
    frame["late"] = np.where(frame["hour"] + rng.normal(size=80) > 12, "yes", "no")
    frame.to_csv(folder / "flights.csv", index=False)
    said = ["fit", folder / "flights.csv", "-t", "late", "-o", folder / "m.kalvi", "-q"]
    assert CliRunner().invoke(main, [str(word) for word in said]).exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KALVI_MODEL", str(folder / "m.kalvi"))
        sys.modules["serve"] = example = script(DOCS / "examples" / "serve.py")
        yield testclient.TestClient(example.app), frame, kalvi.load(folder / "m.kalvi")
        del sys.modules["serve"]


def test_the_example_answers_what_the_command_writes(served):
    client, frame, model = served
    rows = frame.drop(columns="late").to_dict("records")
    answer = client.post("/predict", json=rows, params={"level": 0.8})
    assert answer.status_code == 200
    assert answer.json() == model.predict_table(rows, 0.8).to_pylist()
    assert set(answer.json()[0]) >= {"predicted", "p_no", "p_yes", "lower_yes", "upper_yes"}


def test_the_example_refuses_in_a_sentence(served):
    client, _, _ = served
    answer = client.post("/predict", json=[{"hour": 7}])
    assert answer.status_code == 422 and "no column 'origin'" in answer.json()["detail"]
    assert client.post("/predict", json=[]).status_code == 422
    assert client.post("/predict", json=[{"hour": 7}], params={"level": 2}).status_code == 422


def test_the_example_says_what_the_model_is(served):
    client, _, _ = served
    known = client.get("/model").json()
    assert (known["target"], known["rows"]) == ("late", 80)
    assert sorted(known["classes"]) == ["no", "yes"]


def test_the_latencies_of_the_page_are_printed(capsys, monkeypatch):
    example = script(Path(DOCS) / "examples" / "latency.py")
    monkeypatch.setattr(example.quantiles, "__defaults__", (3,))
    example.main()
    assert capsys.readouterr().out.count("p99") == 2


def test_the_page_shows_the_example():
    page = (DOCS / "tasks" / "serving.md").read_text("utf-8")
    code = (DOCS / "examples" / "serve.py").read_text("utf-8")
    shown = code[code.index("import os") : code.index('\n\n\n@app.get("/model")')]
    assert shown in page
