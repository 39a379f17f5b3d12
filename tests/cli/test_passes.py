"""`kalvi fit` and `kalvi update` killed at random moments: only rows after the last checkpoint are lost."""

import multiprocessing
import random
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kalvi
from kalvi import cli
from kalvi.tabular import learn as learning

PIECES = 12
TOGETHER = multiprocessing.get_context("forkserver")
TOGETHER.set_forkserver_preload(["equinox", "optax", "sklearn.linear_model"])


def command(arguments):
    cli.main([str(a) for a in arguments])


def start(*arguments):
    process = TOGETHER.Process(target=command, args=(arguments,))
    process.start()
    return process


def completed(*arguments):
    process = start(*arguments)
    process.join(60)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = PIECES * learning.PIECE_ROWS + 777
    x, c = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    y = rng.random(n) < 1 / (1 + np.exp(-x))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({"x": x, "c": c, "y": y}), path)
    return path


@pytest.fixture(scope="module")
def whole(rows, tmp_path_factory):
    """Without interruption: the model, its update with the same rows, and how long the second took."""
    folder = tmp_path_factory.mktemp("whole")
    out, more = folder / "fit.kalvi", folder / "update.kalvi"
    completed("fit", rows, "-t", "y", "-o", out, "-q")
    began = time.monotonic()
    completed("update", out, rows, "--again", "-o", more, "-q")
    return out, more, time.monotonic() - began


def learned(path):
    q = kalvi.load(path).estimator.posterior_
    return np.asarray(q.mean).tobytes(), np.asarray(q.root).tobytes()


def kill(process, seconds):
    time.sleep(seconds)
    process.kill()
    process.join()


def trial(rows, whole, out, updating, seconds):
    """Kill a run, look at what is there, go on: the same bits; says whether a checkpoint was there."""
    base, more, _ = whole
    if updating:
        out.write_bytes(base.read_bytes())
        arguments = ("update", out, rows, "--again", "--checkpoint-rows", 1, "-q")
    else:
        arguments = ("fit", rows, "-t", "y", "-o", out, "--checkpoint-rows", 1, "-q")
    kill(start(*arguments), seconds)
    expected = learned(more if updating else base)
    if out.exists():  # all or nothing: the old model or the new one
        assert learned(out) in (learned(base), expected)
    held = learning.find_unfinished_run(out)
    done = out.exists() and learned(out) == expected
    assert not (done and held)
    if held:
        completed("resume", out, "-q")
    elif not done:
        completed(*arguments)
    assert learned(out) == expected
    left = [p.name for p in out.parent.iterdir() if p.name not in (out.name, rows.name)]
    assert left == [] or (done and all(name.endswith(".tmp") for name in left))
    return held is not None


@pytest.mark.slow(reason="starts another Python three times")
def test_killed(rows, whole, tmp_path):
    trial(rows, whole, tmp_path / "m.kalvi", True, 0.8 * whole[2])


@pytest.mark.alone  # kills at times measured before
@pytest.mark.slow(reason="starts two hundred other Pythons")
@pytest.mark.parametrize("updating", [False, True])
def test_killed_a_hundred_times(rows, whole, tmp_path, updating):
    moments, resumed = random.Random(int(updating) + 10), 0
    for i in range(100):
        folder = tmp_path / str(i)
        folder.mkdir()
        seconds = moments.uniform(0, 1.1) * whole[2]
        resumed += trial(rows, whole, folder / "m.kalvi", updating, seconds)
    assert resumed > 25
