"""A table with a label, and a logistic model of it."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.commands import ROWS, ok


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    size, city = rng.normal(3, 2, ROWS), rng.choice(["Bonn", "Köln", "Ulm"], ROWS)
    f = 0.8 * (size - 3) + (city == "Ulm") - 0.5
    return pd.DataFrame(
        {
            "size": size,
            "city": city,
            "sold": np.where(rng.random(ROWS) < 1 / (1 + np.exp(-f)), "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def data(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "rows.kalvi"
    ok("fit", data, "-t", "sold", "-o", path, "-q")
    return path


@pytest.fixture
def own(model, tmp_path):
    """A copy that may be changed."""
    path = tmp_path / "own.kalvi"
    path.write_bytes(model.read_bytes())
    return path
