"""Work done ahead in a thread: in order, with its errors, and never deaf to who asks to stop."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from kalvi.tabular import learn as learning
from kalvi.tabular.prefetch import Interrupted, Stop, prefetch

COMMAND = "import sys; from kalvi.cli import main; main(sys.argv[1:])"


def failing():
    yield 1
    yield 2
    raise OSError("no more")


def test_order_and_errors():
    assert list(prefetch(range(50), Stop())) == list(range(50))
    found = prefetch(failing(), Stop())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="no more"):
        next(found)


def test_stops_while_it_waits():
    stall, stop = threading.Event(), Stop()

    def items():
        yield 1
        stall.wait(30)
        yield 2

    found = prefetch(items(), stop)
    assert next(found) == 1
    threading.Timer(0.2, lambda: setattr(stop, "asked", True)).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        next(found)
    stall.set()
    assert 0.1 < time.monotonic() - began < 5


def test_what_is_ready_comes_before_a_stop():
    stop = Stop()
    found = prefetch(range(3), stop)
    assert next(found) == 0
    stop.asked = True
    assert list(found) == [1, 2]


@pytest.mark.alone
@pytest.mark.slow(reason="starts another Python, which compiles a fit")
def test_ctrl_c_on_a_stalled_pipe(tmp_path):
    out = tmp_path / "m.kalvi"
    arguments = ["fit", "-", "--format", "csv", "-t", "y", "-o", out, "-q", "--checkpoint-rows", 1]
    rng = np.random.default_rng(0)
    same = "a" * 400  # text is read in blocks, of which some must be whole
    rows = "x,y,c\n" + "".join(f"{v},{int(v > 0)},{same}\n" for v in rng.normal(size=25_000))
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        feeder = threading.Thread(target=process.stdin.write, args=(rows.encode(),))
        feeder.start()
        wait_for(
            lambda: (held := learning.find_unfinished_run(out)) is not None and held.job.done > 0
        )
        feeder.join()
        time.sleep(0.5)  # until it waits for more
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        code, said = process.wait(20), process.stderr.read().decode()
        took = time.monotonic() - began
    assert code == 1 and said.strip().endswith(f"kalvi resume {out}"), said
    assert said.count("\n") == 1 and took < 5
    held = learning.find_unfinished_run(out)
    assert held is not None and held.job.done > 0 and not out.exists()


def wait_for(condition):
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")
