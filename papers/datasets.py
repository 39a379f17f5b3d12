"""Real data sets: read from the directory named by KALVI_DATA, or a few of them from OpenML.

`load(name)` gives the arrays of `$KALVI_DATA/<name>.npz`, with `X` in float64 (dense, or a CSR matrix).
Nothing is centred or scaled beyond undoing the packing of the file. `binary_matrix(name)` gives the sets
that are matrices of yes and no along an order: votes by date, spikes by time.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import fetch_openml

VARIABLE = "KALVI_DATA"
BINARY = ("un_votes", "us_senate_votes", "auditory_spikes")


class OpenML(NamedTuple):
    """Where OpenML keeps a set, and the numbers we give its class labels."""

    data_id: int
    labels: dict[str, int] | None = None


OPENML = {
    "breast_cancer": OpenML(15, {"benign": 2, "malignant": 4}),  # nine columns: without the id
    "covtype": OpenML(1596, {str(k): k for k in range(1, 8)}),
    "housing": OpenML(531),
    "ionosphere": OpenML(59, {"g": 1, "b": -1}),
    "mnist": OpenML(554, {str(k): k for k in range(10)}),
    "sonar": OpenML(40, {"Mine": 1, "Rock": -1}),
}


class BinaryMatrix(NamedTuple):
    """Entries 1, 0, or −1 where nothing was observed; locations of an axis in order, names of the other."""

    entries: np.ndarray
    row_locations: np.ndarray | None
    col_locations: np.ndarray | None
    names: np.ndarray


def load(name: str) -> dict[str, Any]:
    """The arrays of a data set: X (float64, or CSR), y and whatever else its file holds."""
    folder = directory()
    if folder is None:
        return _from_openml(name)
    stored = _read(folder / f"{name}.npz", name)
    if "format" in stored:
        return _with_csr(stored)
    if "wilderness" in stored:
        return _with_indicators(stored)
    if "X" in stored:
        stored["X"] = stored["X"].astype(np.float64) * stored.pop("X_scale", 1.0)
    return stored


def binary_matrix(name: str, *, abstentions: int = -1, part: str = "E1") -> BinaryMatrix:
    """A binary matrix of the directory: un_votes, us_senate_votes or auditory_spikes.

    An abstention in the United Nations counts as `abstentions`: −1 as missing, 0 as a no. Spikes are those
    of any cell in a millisecond, of the experiment `part` (E1 or E3); their trials have the sound as name.
    """
    if name not in BINARY:
        raise ValueError(f"no binary matrix {name!r}; there are {', '.join(BINARY)}.")
    if directory() is None:
        raise FileNotFoundError(
            f"{name} is read from disk; set {VARIABLE} to the directory of the data."
        )
    stored = load(name)
    if name == "auditory_spikes":
        spikes = (stored[f"S_{part}"] > 0).astype(np.int8)
        return BinaryMatrix(spikes, None, stored["col_loc"], stored[f"sound_{part}"])
    if name == "un_votes":
        entries = np.where(stored["Y"] == 2, abstentions, stored["Y"])
    else:
        votes = stored["X"].toarray()
        entries = np.where(votes == 0, -1, votes > 0)
    return BinaryMatrix(entries.astype(np.int8), stored["row_loc"], None, stored["col_id"])


def figure_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and 0/1 labels of a figure of the R-VGA paper, from `$KALVI_DATA/rvga_figures`."""
    folder = directory()
    if folder is None:
        raise FileNotFoundError(
            f"the rows of {name} are read from disk; set {VARIABLE} to the directory of the data."
        )
    stored = _read(folder / "rvga_figures" / f"{name}.npz", name)
    return stored["X"].astype(np.float64), stored["y"].astype(np.float64)


def names() -> list[str]:
    """The data sets that `load` can find."""
    folder = directory()
    return sorted(OPENML) if folder is None else _stems(folder)


def directory() -> Path | None:
    """The directory named by KALVI_DATA, if it is set."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    if not Path(value).is_dir():
        raise NotADirectoryError(f"{VARIABLE} names {value}, which is not a directory.")
    return Path(value)


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.npz"))


def _read(path: Path, name: str) -> dict[str, Any]:
    if not path.is_file():
        held = ", ".join(_stems(path.parent)) or "no .npz file"
        raise FileNotFoundError(f"no data set {name!r} in {path.parent}, which holds {held}.")
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def _with_csr(stored: dict[str, Any]) -> dict[str, Any]:
    """The same set with its sparse matrix put together."""
    stored.pop("format")
    data = stored.pop("data").astype(np.float64)
    parts = (data, stored.pop("indices"), stored.pop("indptr"))
    return {"X": sp.csr_matrix(parts, shape=tuple(stored.pop("shape"))), **stored}


def _with_indicators(stored: dict[str, Any]) -> dict[str, Any]:
    """Forest cover types: ten numbers, four wilderness areas and forty soils as indicators."""
    numeric, rows = stored.pop("num").T, np.arange(stored["y"].size)
    x = np.zeros((rows.size, 54))
    x[:, :10] = numeric
    x[rows, 10 + stored.pop("wilderness").astype(int)] = 1
    x[rows, 14 + stored.pop("soil").astype(int)] = 1
    return {"X": x, **stored}


def _from_openml(name: str) -> dict[str, Any]:
    if name not in OPENML:
        raise ValueError(
            f"no data set {name!r} on OpenML (there are {', '.join(OPENML)}); "
            f"set {VARIABLE} to the directory that holds {name}.npz."
        )
    source = OPENML[name]
    x, y = fetch_openml(data_id=source.data_id, return_X_y=True, as_frame=False, parser="liac-arff")
    x = np.asarray(x, np.float64)
    y = np.asarray(y, np.float64) if source.labels is None else _coded(y, source.labels)
    complete = ~np.isnan(x).any(axis=1)
    return {"X": x[complete], "y": y[complete]}


def _coded(y: np.ndarray, labels: dict[str, int]) -> np.ndarray:
    return np.array([labels[str(label)] for label in y])
