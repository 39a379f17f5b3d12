"""A binary matrix out of a file as smooth factors of its rows and columns (`BinaryFactorization`).

Rows and columns are where their names say if these are numbers or dates, where a file of locations says, or
in their order.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning

from kalvi import __version__
from kalvi.columns.targets import label
from kalvi.estimators.binary_factorization import BinaryFactorization
from kalvi.estimators.binary_factorization.locations import UNORDERED, locations_as_numbers
from kalvi.numerics.precision import matching_precision
from kalvi.readers.errors import counted
from kalvi.readers.files import BadData
from kalvi.readers.matrix import Matrix
from kalvi.readers.source import Source, open_data
from kalvi.rules.silk.prune import contributions
from kalvi.streams import run
from kalvi.tabular.choices import new_estimator
from kalvi.tabular.integrity import Rules
from kalvi.tabular.predictions import Outcome, PredictedPiece, Tell, nobody
from kalvi.tabular.table_model import TableModel

FEWEST = 2
"""A matrix has so many rows and columns at least."""
BLOCK = 2**22
"""Entries predicted at once."""
DRAWN, DRAWN_FACTORS = 200, 4
"""Points of a curve and factors that are told for drawing."""
ORDER = "order"


class Axis(NamedTuple):
    """What one side of the matrix is along: "order", "unordered", "numbers" or "dates"."""

    kind: str
    names: tuple[str, ...]
    least: str = ""
    most: str = ""

    def about(self) -> dict[str, str]:
        """The axis in plain JSON."""
        return {"kind": self.kind, "least": self.least, "most": self.most}


class MatrixFields(NamedTuple):
    """What is saved: a factorised matrix, and what it came from."""

    model: str
    estimator: BinaryFactorization
    rows: Axis
    cols: Axis
    observed: int
    ones: int
    seconds: float
    files: tuple[str, ...]
    run: str = ""


class MatrixModel(TableModel, MatrixFields):
    """A binary matrix as smooth factors of its rows and columns."""

    __slots__ = ()

    def predict_proba(self) -> np.ndarray:
        """The probability that each entry of the matrix is 1."""
        return self.estimator.predict_proba()

    def predict_table(self) -> pa.Table:
        """The columns that `kalvi predict` writes: the names of the rows, and a column for each column."""
        return pa.concat_tables([piece.table for piece in self.predictions(None)])

    def __repr__(self) -> str:
        shape = f"{len(self.rows.names):,} × {len(self.cols.names):,} matrix"
        factors = counted(self.estimator.n_factors_, "factor")
        return f"<kalvi binary matrix: {factors} of a {shape}, {self.observed:,} entries observed>"

    def streams(self) -> bool:
        return False

    def merges(self) -> bool:
        return False

    def open_to_predict(
        self,
        data: tuple[str, ...] | pa.Table,
        format: str | None = None,
        types: dict[str, str] | None = None,
        keep: tuple[str, ...] = (),
    ) -> Source | None:
        if data:
            raise ValueError(
                "a model of kalvi silk takes no DATA: it predicts the entries of its own matrix."
            )
        return None

    def predictions(
        self,
        source: Source | None,
        *,
        keep: tuple[str, ...] = (),
        level: float = 0.95,
        tell: Tell = nobody,
    ) -> Iterator[PredictedPiece]:
        """Probabilities that entries are 1, a line for each row of the matrix."""
        if keep:
            raise ValueError(
                "--keep is for columns of DATA, which a model of kalvi silk does not take."
            )
        names = ["row", *self.cols.names]
        n, size = len(self.rows.names), max(BLOCK // len(self.cols.names), 1)
        for first in range(0, n, size):
            last = min(first + size, n)
            p = self.estimator.predict_proba(rows=slice(first, last))
            columns = [pa.array(self.rows.names[first:last], pa.string()), *map(pa.array, p.T)]
            tell(last, last / n)
            outcome = Outcome(last, (), {}, 0, None, "log_loss")
            yield PredictedPiece(pa.Table.from_arrays(columns, names=names), outcome)

    def factor_table(self, side: str) -> pa.Table:
        """The factors of the rows (side "row") or columns ("col") by name, with standard deviations."""
        axis, mean, std = self._side(side)
        columns: dict[str, Any] = {side: pa.array(axis.names, pa.string())}
        columns |= {f"factor_{k + 1}": mean[:, k] for k in range(mean.shape[1])}
        return pa.table(columns | {f"sd_{k + 1}": std[:, k] for k in range(std.shape[1])})

    def describe(self, name: str, *, diagnose: bool = False) -> dict[str, Any]:
        estimator = self.estimator
        return {
            "kalvi": __version__,
            "name": name,
            "model": self.model,
            "rows": len(self.rows.names),
            "cols": len(self.cols.names),
            "observed": self.observed,
            "ones": self.ones,
            "n_factors": estimator.n_factors_,
            "factors": factors(estimator),
            "row_axis": self.rows.about(),
            "col_axis": self.cols.about(),
            "bound": estimator.elbo_,
            "bound_per_entry": estimator.elbo_ / self.observed,
            "history": _thinned(np.asarray(estimator.elbo_history_, float)).tolist(),
            "row_factors": self._drawn_side("row"),
            "col_factors": self._drawn_side("col"),
            "sweeps": estimator.n_sweeps_,
            "converged": estimator.converged_,
            "seconds": round(self.seconds, 3),
            "files": [{"path": Path(file).name or "-"} for file in self.files],
            "settings": {
                name: value
                for name, value in estimator.get_params().items()
                if name not in ("row_locations", "col_locations", "verbose") and value is not None
            },
            "warnings": self._warnings(),
        }

    def rules(self) -> Rules:
        estimator, sides = self.estimator, (self.rows, self.cols)
        shape = tuple(len(side.names) for side in sides)
        yield "the model", self.model == "silk"
        yield (
            "the sides",
            all(side.kind in (ORDER, UNORDERED, "numbers", "dates") for side in sides),
        )
        yield "the sides", min(shape) >= FEWEST and len(set(self.cols.names)) == shape[1]
        found = (estimator.row_factors_.shape, estimator.col_factors_.shape)
        yield "the sides", found == tuple((n, estimator.n_factors_) for n in shape)
        yield "the entries", 0 <= self.ones <= self.observed <= shape[0] * shape[1]
        yield "the entries", self.observed > 0
        yield "the time", bool(np.isfinite(self.seconds)) and self.seconds >= 0

    def _side(self, side: str) -> tuple[Axis, np.ndarray, np.ndarray]:
        """One side of the matrix: where it is, the means of its factors and their deviations."""
        estimator = self.estimator
        if side == "row":
            return self.rows, estimator.row_factors_, estimator.row_stds_
        return self.cols, estimator.col_factors_, estimator.col_stds_

    def _drawn_side(self, side: str) -> dict[str, Any]:
        """The strongest factors along one side, for drawing: where, mean and deviation."""
        axis, mean, std = self._side(side)
        given = self.estimator.row_locations if side == "row" else self.estimator.col_locations
        located = axis.kind in ("numbers", "dates") and given is not None
        where = np.asarray(given, float) if located else np.arange(len(mean), dtype=float)
        if axis.kind == UNORDERED:  # those that say most
            order = np.argsort(-np.abs(mean).max(axis=1), kind="stable")[:DRAWN]
        else:
            order = _thinned(np.argsort(where, kind="stable"))
        return {
            "kind": axis.kind,
            "names": [axis.names[i] for i in order],
            "position": where[order].tolist(),
            "mean": mean[order, :DRAWN_FACTORS].T.tolist(),
            "std": std[order, :DRAWN_FACTORS].T.tolist(),
        }

    def _warnings(self) -> list[str]:
        """What a person should look into."""
        found = []
        if not self.estimator.converged_:
            found.append(
                f"the bound still rose after {self.estimator.n_sweeps_} sweeps; "
                "raise --set max_sweeps=... or --set tol=..."
            )
        if self.ones in (0, self.observed):
            only = "1" if self.ones else "0"
            found.append(f"all observed entries are {only}: the model is surer than it should be.")
        return found


class Located(NamedTuple):
    """One side of a matrix, and the estimator's parameter for it."""

    axis: Axis
    locations: Any


def located(
    side: str, n: int, names: np.ndarray | None, given: str | None, unordered: bool
) -> Located:
    """The locations of rows or columns: from a file, or from names that are numbers or dates.

    Without locations, the order in the file stands for them.
    """
    texts = tuple(f"{side}_{i + 1}" for i in range(n)) if names is None else _texts(names)
    if unordered:
        if given is not None:
            raise ValueError(f"the {side}s have locations or are unordered; choose one of the two.")
        return Located(Axis(UNORDERED, texts), UNORDERED)
    if given not in (None, ORDER):
        return _along(texts, _from_file(side, texts, str(given)), str(given))
    if given is None and names is not None and _is_located(names):
        return _along(texts, names, side)
    return Located(Axis(ORDER, texts), None)


def fitted(
    matrix: Matrix,
    rows: Located,
    cols: Located,
    parameters: dict[str, Any],
    *,
    files: Sequence[str],
    verbose: bool,
) -> MatrixModel:
    """The fitted model of a matrix that was read from these files."""
    named = ", ".join(files)
    if min(matrix.entries.shape) < FEWEST:
        raise BadData(
            f"{named}: has {matrix.entries.shape[0]} rows and {matrix.entries.shape[1]} columns; "
            f"factors need {FEWEST} of each at least."
        )
    where = {"row_locations": rows.locations, "col_locations": cols.locations}
    estimator = new_estimator(
        BinaryFactorization,
        {"random_state": 0, **parameters},
        unstored=None,
        verbose=verbose,
        **where,
    )
    began = time.monotonic()
    seen, ones = matrix.entries >= 0, matrix.entries == 1
    if not seen.any():
        raise BadData(f"{named}: all entries are missing.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it
        estimator.fit(ones, mask=seen)
    estimator.set_params(verbose=False)
    counts = int(seen.sum()), int(ones.sum())
    seconds = time.monotonic() - began
    names = tuple(Path(file).name or file for file in files)
    return MatrixModel("silk", estimator, rows.axis, cols.axis, *counts, seconds, names)


def factors(estimator: BinaryFactorization) -> list[dict[str, Any]]:
    """For each factor: its share of the logits, and its correlation lengths."""
    with matching_precision(estimator.dtype):
        size = np.asarray(run.call(contributions, estimator.posterior_))
    rows, cols = estimator.smoothness_
    return [
        {
            "name": f"factor_{k + 1}",
            "share": float(size[k] / size.sum()),
            "row_length": float(rows[k]),
            "col_length": float(cols[k]),
        }
        for k in range(len(size))
    ]


def _thinned(values: np.ndarray) -> np.ndarray:
    """The values, thinned evenly to as many as are drawn; both ends stay."""
    if len(values) <= DRAWN:
        return values
    return values[np.linspace(0, len(values) - 1, DRAWN).astype(int)]


def _along(texts: tuple[str, ...], values: np.ndarray, what: str) -> Located:
    """A side along numbers or dates."""
    found = locations_as_numbers(f"the locations of {what}", values)
    order = np.argsort(found, kind="stable")
    ends = _texts(values[order[[0, -1]]])
    return Located(Axis("dates" if _is_dates(values) else "numbers", texts, *ends), found)


def _from_file(side: str, texts: tuple[str, ...], path: str) -> np.ndarray:
    """Locations out of a file: in the order of the matrix, or beside names."""
    source = open_data(path, on_invalid=lambda name: "keep")
    try:
        table = pa.concat_tables(piece.table for piece in source.pieces(2**13))
    finally:
        source.close()
    where = Path(path).name
    columns = [column.to_numpy() for column in table.columns]
    if len(columns) == 1 and table.num_rows == len(texts):
        return columns[0]
    if len(columns) != 2:
        raise BadData(
            f"{where}: locations are one column of {len(texts)} lines, or names and locations; got "
            f"{len(columns)} columns of {table.num_rows} lines."
        )
    index = {name: i for i, name in enumerate(_texts(columns[0]))}
    absent = [text for text in texts if text not in index]
    if absent:
        raise BadData(f"{where}: has no location of {side} '{absent[0][:40]}'.")
    return columns[1][[index[text] for text in texts]]


def _is_located(names: np.ndarray) -> bool:
    """Whether names are numbers or dates."""
    try:
        locations_as_numbers("names", names)
    except ValueError:
        return False
    return True


def _is_dates(values: np.ndarray) -> bool:
    if values.dtype.kind in "mM":
        return True
    try:
        values.astype(float)
    except (TypeError, ValueError):
        return True
    return False


def _texts(names: np.ndarray) -> tuple[str, ...]:
    """Names as text: whole numbers without a point, dates without a time where none has one."""
    if names.dtype.kind == "M":
        days = names.astype("datetime64[D]")
        names = days if np.array_equal(days, names) else names.astype("datetime64[s]")
        return tuple(np.datetime_as_string(names).tolist())
    return tuple(label(name) for name in names.tolist())
