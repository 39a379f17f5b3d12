"""The functions of kalvi that journeys enter, in order: `python -m tests.journeys NAME ...` prints them."""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import kalvi
import kalvi.cli.fit  # and the families: to import them while every call is noted takes long
import kalvi.estimators.binary_factorization
import kalvi.estimators.gaussian_process
import kalvi.estimators.linear
from kalvi.__main__ import main

SOURCE = f"{Path(kalvi.__file__).parent}/"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)


def partial_fit() -> None:
    kalvi.LogisticRegression().partial_fit(X, Y, classes=[0, 1])


def kalvi_fit() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.csv")
        lines = [f"{a},{b},{c},{'yes' if y else 'no'}" for (a, b, c), y in zip(X, Y, strict=True)]
        rows.write_text("\n".join(["a,b,c,y", *lines, ""]))
        sys.argv = ["kalvi", "fit", str(rows), "--target", "y", "--out", f"{folder}/model.kalvi"]
        try:
            main()
        except SystemExit as end:
            assert not end.code


def gaussian_process() -> None:
    kalvi.GaussianProcessClassifier().fit(X, Y)


def binary_matrix() -> None:
    kalvi.BinaryFactorization(n_factors=2).fit((RNG.random((40, 30)) < 0.5).astype(float))


JOURNEYS = {
    "partial-fit": partial_fit,
    "kalvi-fit": kalvi_fit,
    "gaussian-process": gaussian_process,
    "binary-matrix": binary_matrix,
}


def trace(journey: Callable[[], None]) -> list[str]:
    """The functions entered, each once, as `package.module.function`."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            module = code.co_filename.removeprefix(SOURCE).removesuffix(".py").replace("/", ".")
            entered[f"{module}.{code.co_qualname}"] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        journey()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered)


def trace_apart(name: str) -> None:
    """Print a journey's name and functions as a line of JSON, from a copy of this process."""
    if os.fork() == 0:
        sys.stdout = sys.stderr  # what the journey itself says
        line = json.dumps([name, trace(JOURNEYS[name])])
        os.write(1, f"{line}\n".encode())
        os._exit(0)
    _, status = os.wait()
    if status:
        sys.exit(f"{name} ended with {status}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        trace_apart(name)
