"""Nothing is written over what a command reads, nor over another file without --force, and its kind."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import kalvi
from kalvi.archives import container
from tests.cli.commands import ok, run, sentence

KALVI = (sys.executable, "-m", "kalvi")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table with an identifier, a model of it that drops the identifier, a page, and a matrix."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    x = rng.normal(size=200)
    y = np.where(rng.random(200) < 1 / (1 + np.exp(-x)), "ill", "well")
    rows = pd.DataFrame({"id": [f"{i:05d}" for i in range(200)], "x": x, "y": y})
    rows.to_csv(folder / "rows.csv", index=False)
    rows[:50].to_csv(folder / "new.csv", index=False)
    ok("fit", folder / "rows.csv", "-t", "y", "-d", "id", "-o", folder / "m.kalvi", "-q")
    (folder / "days").mkdir()
    rows[50:90].to_csv(folder / "days" / "one.csv", index=False)
    (folder / "page.html").write_text("<!doctype html><p>mine")
    pd.DataFrame(rng.integers(0, 2, (12, 8))).to_csv(folder / "matrix.csv", index=False)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """The same files in a folder of their own, which nothing may change but what a test says."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    os.link(tmp_path / "rows.csv", tmp_path / "hard.csv")
    os.symlink(tmp_path / "rows.csv", tmp_path / "soft.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FIT = ("-t", "y", "-d", "id", "-q", "--force")
FORBIDDEN = {
    "predict over its rows": "predict m.kalvi rows.csv -o rows.csv --force",
    "by another path": "predict m.kalvi rows.csv -o ./../{folder}/rows.csv --force",
    "by a hard link": "predict m.kalvi rows.csv -o hard.csv --force",
    "by a symbolic link": "predict m.kalvi soft.csv -o rows.csv --force",
    "by a pattern": "predict m.kalvi r*s.csv -o rows.csv --force",
    "by its folder": "predict m.kalvi days -o days/one.csv --force",
    "predict over its model": "predict m.kalvi rows.csv -o m.kalvi --force",
    "a table over a model": "predict m.kalvi rows.csv -o m.csv --force",
    "a page over data": "report m.kalvi -o rows.csv --force --no-diagnosis",
    "a page over renamed data": "report m.kalvi -o rows.html --force --no-diagnosis",
    "a model over its data": "fit rows.csv -t y -q --force -o rows.csv",
    "a model over other data": "fit rows.csv -t y -q --force -o new.csv",
    "a model over a page": "fit rows.csv -t y -q --force -o page.html",
    "a model over its pattern": "fit new.csv -t y -q --force --like m.kalvi -o m.kalvi",
    "a checkpoint over data": "fit rows.csv -t y -q --force -o other",
    "factors over data": "factor rows.csv -k 1 -f x -q --force -o rows.csv",
    "update of another model": "update m.kalvi new.csv -q -o n.kalvi",
    "update over data": "update m.kalvi new.csv -q --force -o rows.csv",
    "merge over a shard": "merge m.kalvi n.kalvi --again --force -o n.kalvi",
    "row factors over the matrix": "silk matrix.csv -k 1 -q --force -o s.kalvi --row-factors matrix.csv",
    "row factors without force": "silk matrix.csv -k 1 -q -o s.kalvi --row-factors new.csv",
    "predictions over locations": (
        "silk matrix.csv -k 1 -q --force -o s.kalvi --row-locations new.csv --predictions new.csv"
    ),
    "predictions without force": "predict m.kalvi rows.csv -o new.csv",
    "a page without force": "report m.kalvi -o page.html --no-diagnosis",
    "a picture over data": "demo --rows 10 --force --out rows.png",
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_what_is_never_overwritten(here, case):
    for name in ("m.csv", "n.kalvi"):
        shutil.copy("m.kalvi", name)
    for name in ("rows.html", "rows.png", "other.checkpoint"):
        shutil.copy("rows.csv", name)
    before = contents(here)
    message = sentence(run(*FORBIDDEN[case].format(folder=here.name).split()))
    named = ("is read by this command", "is not replaced by a", "exists; ", "no name for a model")
    assert any(words in message for words in named) or "must end in" in message
    assert contents(here) == before


def test_force_replaces_a_file_of_the_same_kind(here):
    ok("predict", "m.kalvi", "rows.csv", "-o", "new.csv", "--force", "-q")
    assert (here / "new.csv").read_text().startswith('"predicted"')
    ok("report", "m.kalvi", "-o", "page.html", "--force", "--no-diagnosis", "-q")
    assert "m.kalvi" in (here / "page.html").read_text()
    ok("fit", "rows.csv", *FIT, "-o", "m.kalvi")
    (here / "empty.csv").touch()
    ok("predict", "m.kalvi", "rows.csv", "-o", "empty.csv", "--force", "-q")


def test_a_column_that_was_dropped_can_be_kept(here):
    text = ok("predict", "m.kalvi", "rows.csv", "--keep", "id", "--keep", "x", "-q").stdout
    found = pd.read_csv(pd.io.common.StringIO(text), dtype={"id": str})
    assert list(found)[:3] == ["id", "x", "predicted"]
    assert found["id"].tolist() == pd.read_csv("rows.csv", dtype={"id": str})["id"].tolist()


def test_rows_that_were_learned_are_not_learned_again(here):
    shutil.copy("rows.csv", "copy.csv")
    before = (here / "m.kalvi").read_bytes()
    for data in ("rows.csv", "copy.csv", "soft.csv"):
        message = sentence(run("update", "m.kalvi", data, "-q"))
        assert message.startswith(
            f"{data} was learned by m.kalvi already, and its rows would count"
        )
        assert "--again" in message
    with open("rows.csv", "a") as file:
        file.write("x,1.5,ill\n")
    assert "has grown since" in sentence(run("update", "m.kalvi", "rows.csv", "-q"))
    assert (here / "m.kalvi").read_bytes() == before
    ok("update", "m.kalvi", "copy.csv", "-q", "--again")
    assert kalvi.load("m.kalvi").record.rows == 400


def test_the_same_shard_is_not_merged_twice(here):
    shutil.copy("m.kalvi", "n.kalvi")
    message = sentence(run("merge", "m.kalvi", "n.kalvi", "-o", "both.kalvi"))
    assert "m.kalvi and n.kalvi are the same model" in message
    ok("fit", "rows.csv", "-t", "y", "--like", "m.kalvi", "-o", "again.kalvi", "-q")
    message = sentence(run("merge", "m.kalvi", "again.kalvi", "-o", "both.kalvi"))
    assert "m.kalvi and again.kalvi have both learned rows.csv" in message
    ok("merge", "m.kalvi", "n.kalvi", "-o", "both.kalvi", "--again", "-q")
    assert kalvi.load("both.kalvi").record.rows == 400


def test_one_file_by_two_names_is_read_once(here):
    message = sentence(run("fit", "rows.csv", "hard.csv", *FIT, "-o", "two.kalvi"))
    assert message.startswith("no file may be named twice") and "rows.csv and hard.csv" in message


def test_only_our_own_leftovers_are_removed(here):
    left, mine = here / f".m.kalvi.{'ab' * 6}.tmp", here / ".m.kalvi-notes.tmp"
    for path in (left, mine):
        path.write_text("half")
    ok("fit", "rows.csv", *FIT, "-o", "m.kalvi")
    assert mine.exists() and not left.exists()


def test_an_option_of_another_command_is_said_to_be(here):
    (here / "bad.csv").write_text("x,y\n1,ill\n,well\n")
    message = sentence(run("update", "m.kalvi", "bad.csv", "-q"))
    assert "(--missing is an option of kalvi fit.)" in message
    message = sentence(run("fit", "bad.csv", "-t", "y", "-q", "-o", "b.kalvi"))
    assert "--missing impute" in message and "is an option of" not in message


def test_a_full_disk_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "m.kalvi"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(container.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        kalvi.save(path, [1.0])
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_names_the_file(tmp_path, monkeypatch):
    def denied(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(container.os, "open", denied)
    with pytest.raises(PermissionError) as caught:
        kalvi.save(tmp_path / "m.kalvi", [1.0])
    assert caught.value.filename == str(tmp_path / "m.kalvi")


def test_what_is_no_model_is_said_without_riddles(here):
    assert sentence(run("inspect", "rows.csv")) == (
        "rows.csv is not a saved state: it does not begin like a file of kalvi."
    )


@pytest.mark.parametrize(
    "arguments", ["fit no.csv -t y", "predict no.kalvi no.csv", "report no.kalvi", "silk no.csv"]
)
def test_a_missing_file_is_refused_before_jax_is_imported(tmp_path, arguments):
    heavy = "import sys, kalvi.__main__ as k\ntry: k.main()\nfinally: print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", heavy, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert done.stdout.strip() == "False"


HEEDING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command that heeds Ctrl-C; jobs that a shell put in the background are born deaf to it."""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_while_modules_are_imported(here, monkeypatch):
    """A module that swallows KeyboardInterrupt, as some do, keeps no command alive."""
    (here / "swallow").mkdir()
    (here / "swallow" / "jax.py").write_text(
        "import time\nprint('importing', flush=True)\n"
        "for _ in range(200):\n    try:\n        time.sleep(0.1)\n"
        "    except BaseException:\n        pass\n"
    )
    path = f"{here / 'swallow'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = subprocess.Popen(
        [sys.executable, "-c", HEEDING, *KALVI, "fit", "rows.csv", *FIT, "-o", "m.kalvi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    with command:
        assert command.stdout is not None
        assert command.stdout.readline() == "importing\n"
        command.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, said = command.communicate(timeout=15)
    assert time.monotonic() - began < 5
    assert (command.returncode, said) == (1, "stopped.\n")
