"""Predictions of models out of files never start JAX's backend, and forked children never hang."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kalvi
from kalvi.cli import main
from kalvi.system import forks
from tests.estimators.test_saving import LABELS, THREE, X, Y

SECONDS = 60
"""A child that has not answered by then hangs."""

LINEAR = {
    "linear": (kalvi.LinearRegression, {}, Y),
    "logistic": (kalvi.LogisticRegression, {}, LABELS),
    "classes": (kalvi.LogisticRegression, {}, THREE),
    "counts": (kalvi.PoissonRegression, {}, THREE),
}


COMMANDS = (
    ("y", "--one-pass"),
    ("label", "--rank", "1", "--one-pass"),
    ("grade", "--one-pass"),
    ("count", "--model", "poisson", "--one-pass"),
)


def alone(code: str) -> str:
    """What a program prints in a process of its own, which must not hang."""
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == 0, run.stderr
    return run.stdout


def answers(model, x) -> list[np.ndarray]:
    """Everything that a linear model predicts."""
    if hasattr(model, "classes_"):
        return [model.predict(x), model.predict_proba(x), model.decision_function(x)]
    return list(model.predict(x, return_std=True))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind of linear model, dense and of low rank, and of models of the command line."""
    folder = tmp_path_factory.mktemp("models")
    for name, (cls, how, y) in LINEAR.items():
        for rank in (None, 1):
            model = cls(rank=rank, **how).partial_fit(X[:25], y[:25])
            kalvi.save(folder / f"{name}-{rank}.kalvi", model)
    grid = kalvi.LinearRegression(prior_scale="auto", rank=1).partial_fit(X[:25], Y[:25])
    kalvi.save(folder / "grid.kalvi", grid)
    lines = ["a,b,c,y,label,grade,count"]
    columns = (X[:, 0], X[:, 1], X[:, 2], Y, LABELS, [f"g{k}" for k in THREE], THREE)
    lines += [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    (folder / "rows.csv").write_text("\n".join(lines))
    for i, (target, *options) in enumerate(COMMANDS):
        out = f"{folder}/command-{i}.kalvi"
        said = [
            "fit",
            f"{folder}/rows.csv",
            "-t",
            target,
            *["-f", "a", "-f", "b", "-f", "c"],
            "-o",
            out,
            "-q",
        ]
        main([*said, *options], standalone_mode=False)
    np.save(folder / "x.npy", X)
    return folder


def test_the_files_predict_as_before_and_start_no_backend(files):
    code = f"""
        import io, json, sys
        from contextlib import redirect_stdout
        from pathlib import Path
        import numpy as np, scipy.sparse as sp, kalvi
        from kalvi.system.forks import backend_started
        x, found = np.load("{files}/x.npy"), {{}}
        for path in sorted(Path("{files}").glob("*.kalvi")):
            model = kalvi.load(path)
            if path.stem.startswith("command"):
                from kalvi.cli import main
                with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                    main(["predict", str(path), "{files}/rows.csv", "-q"], standalone_mode=False)
            else:
                for rows in (x, sp.csr_array(x)):
                    model.predict(rows)
                proba = getattr(model, "predict_proba", None)
                found[path.stem] = (proba(x) if proba else model.predict(x)).tolist()
                if model.buffer_.waiting is None:  # otherwise these project the waiting rows
                    model.coef_, model.intercept_, model.log_evidence_, model.prior_scale_
            assert not backend_started(), path
        print(json.dumps(found))
    """
    found = json.loads(alone(code))
    assert len(found) == 9
    for name, (cls, how, y) in LINEAR.items():
        for rank in (None, 1):
            model = cls(rank=rank, **how).partial_fit(X[:25], y[:25])
            wanted = answers(model, X)
            wanted = wanted[1] if hasattr(model, "classes_") else wanted[0]
            np.testing.assert_array_equal(found[f"{name}-{rank}"], wanted)


def test_waiting_rows_of_an_old_file_are_absorbed(files):
    model = kalvi.load(files / "logistic-1.kalvi")
    assert model.buffer_.waiting is not None
    kept = model.__getstate__()
    kept.pop("_after_waiting")
    old = object.__new__(type(model))
    old.__setstate__(kept)
    for mine, other in zip(answers(old, X), answers(model, X), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_state_of_other_shapes_is_refused(files):
    model = kalvi.load(files / "logistic-1.kalvi")
    other = kalvi.LogisticRegression(rank=1).partial_fit(X[:25, :2], LABELS[:25])
    kept = model.__getstate__() | {"_after_waiting": other.__getstate__()["_after_waiting"]}
    with pytest.raises(ValueError, match="rows that wait"):
        object.__new__(type(model)).__setstate__(kept)


def test_forked_children_of_a_process_that_loaded_predict(files):
    code = f"""
        import multiprocessing, numpy as np, kalvi
        x = np.load("{files}/x.npy")
        models = [kalvi.load(f"{files}/{{n}}.kalvi") for n in ("linear-None", "classes-1")]
        for model in models:
            model.predict(x)
        def ask(i):
            return [model.predict(x[i:i + 1]).tolist() for model in models]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(ask, range(4))
        assert found == [ask(i) for i in range(4)]
        print("done")
    """
    assert alone(code) == "done\n"


def test_a_forked_child_of_a_process_that_started_jax_computes_by_numpy_or_says_so(tmp_path):
    code = """
        import multiprocessing, numpy as np, kalvi
        from kalvi.streams import engines
        from kalvi.system.forks import backend_started
        x = np.eye(3)
        model = kalvi.LinearRegression().fit(x, [1.0, 2.0, 3.0])
        wanted = model.predict(x).tolist()
        assert not backend_started()
        prior = kalvi.Diagonal(np.zeros(2), np.ones(2))
        assert backend_started()
        many = np.ones((3 * engines.FIRST_ROWS, 1))
        def refit(_):
            return kalvi.LinearRegression().fit(x, [1.0, 2.0, 3.0]).predict(x).tolist()
        def learn(_):
            kalvi.LinearRegression().fit(many, many[:, 0])
        def make(_):
            kalvi.Dense(np.zeros(2), np.eye(2))
        def measure(_):
            prior.variance(), prior.logdet()
        kalvi.save("{path}", model)
        def load(_):
            return kalvi.load("{path}").predict(x).tolist()
        with multiprocessing.get_context("fork").Pool(1) as pool:
            for task in (learn, make, measure):
                try:
                    pool.map(task, [0])
                except RuntimeError as error:
                    assert '"spawn"' in str(error) and "need no JAX" in str(error), error
                    assert "\\n" not in str(error)
                else:
                    raise AssertionError(task)
            assert pool.map(model.predict, [x])[0].tolist() == wanted
            assert pool.map(load, [0]) == pool.map(refit, [0]) == [wanted]
        model.partial_fit(x, [1.0, 2.0, 3.0])  # the parent goes on
        print("done")
    """
    assert alone(code.replace("{path}", str(tmp_path / "m.kalvi"))) == "done\n"


def test_a_child_forked_before_jax_was_started_has_jax():
    code = """
        import multiprocessing, numpy as np, kalvi
        from kalvi import estimators
        from kalvi.system.forks import backend_started
        assert not backend_started()
        def learn(_):
            return kalvi.LinearRegression().fit(np.eye(3), [1.0, 2.0, 3.0]).coef_.shape
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(learn, [0]) == [(3,)]
        print("done")
    """
    assert alone(code) == "done\n"


def test_the_refusal_is_one_sentence_with_the_remedy(monkeypatch):
    forks.refuse_inherited_backend()
    monkeypatch.setattr(forks, "_inherited", True)
    with pytest.raises(RuntimeError, match='start workers with "spawn" or "forkserver"'):
        forks.refuse_inherited_backend()
    with pytest.raises(RuntimeError, match="forked"):
        kalvi.Dense(np.zeros(2), np.eye(2))
