"""A binary matrix from a file, factorised with factors that are smooth along its rows and columns.

Rows and columns have locations: their names, if these are numbers or dates; the entries of a file of
locations, if one is given; otherwise their positions in the file.
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
from kalvi.tabular.predictions import DEFAULTS, PredictedPiece, PredictionOutcome, PredictOptions
from kalvi.tabular.table_model import TableModel

FEWEST = 2
"""The fewest rows or columns of a matrix."""
BLOCK = 2**22
"""The number of entries that are predicted at once."""
DRAWN, DRAWN_FACTORS = 200, 4
"""The most points of a curve, and the most factors, in the data for the figures of a report."""
ORDER = "order"


class Axis(NamedTuple):
    """The rows or the columns of a matrix: their names, and the kind and range of their locations.

    The kind is "numbers", "dates", "order" (positions in the file) or "unordered".
    """

    kind: str
    names: tuple[str, ...]
    least: str = ""
    most: str = ""

    def about(self) -> dict[str, str]:
        """The kind and range of the locations, as plain JSON."""
        return {"kind": self.kind, "least": self.least, "most": self.most}


class MatrixFields(NamedTuple):
    """The fields that are saved: the estimator, the two axes, counts of entries, and the files."""

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
    """A binary matrix, factorised."""

    __slots__ = ()

    def predict_proba(self) -> np.ndarray:
        """The probability that each entry of the matrix is 1."""
        return self.estimator.predict_proba()

    def predict_table(self) -> pa.Table:
        """The table that `kalvi predict` writes: the names of the rows, then a column for each column."""
        return pa.concat_tables([piece.table for piece in self.predictions(None)])

    def __repr__(self) -> str:
        shape = f"{len(self.rows.names):,} × {len(self.cols.names):,} matrix"
        factors = counted(self.estimator.n_factors_, "factor")
        return f"<kalvi binary matrix: {factors} of a {shape}, {self.observed:,} entries observed>"

    def open_to_predict(
        self, data: tuple[str, ...] | pa.Table, how: PredictOptions = DEFAULTS
    ) -> Source | None:
        if data:
            raise ValueError(
                "a model of kalvi silk takes no DATA: it predicts the entries of its own matrix."
            )
        return None

    def predictions(
        self, source: Source | None, how: PredictOptions = DEFAULTS
    ) -> Iterator[PredictedPiece]:
        """The probability that each entry is 1, as tables with one line for each row of the matrix."""
        if how.keep:
            raise ValueError(
                "--keep is for columns of DATA, which a model of kalvi silk does not take."
            )
        names = ["row", *self.cols.names]
        n, size = len(self.rows.names), max(BLOCK // len(self.cols.names), 1)
        for first in range(0, n, size):
            last = min(first + size, n)
            p = self.estimator.predict_proba(rows=slice(first, last))
            columns = [pa.array(self.rows.names[first:last], pa.string()), *map(pa.array, p.T)]
            how.tell(last, last / n)
            outcome = PredictionOutcome(last, (), {}, 0, None, "log_loss")
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
            "factors": describe_factors(estimator),
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
        """The axis of one side, and the means and standard deviations of its factors."""
        estimator = self.estimator
        if side == "row":
            return self.rows, estimator.row_factors_, estimator.row_stds_
        return self.cols, estimator.col_factors_, estimator.col_stds_

    def _drawn_side(self, side: str) -> dict[str, Any]:
        """The strongest factors along one side, for drawing: locations, means and standard deviations."""
        axis, mean, std = self._side(side)
        given = self.estimator.row_locations if side == "row" else self.estimator.col_locations
        located = axis.kind in ("numbers", "dates") and given is not None
        where = np.asarray(given, float) if located else np.arange(len(mean), dtype=float)
        if axis.kind == UNORDERED:  # those with the largest factors
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
        """Warnings about the fit, as sentences."""
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


class MatrixSide(NamedTuple):
    """The axis of one side of a matrix, and its locations as the estimator takes them."""

    axis: Axis
    locations: Any


def locate_side(
    side: str, n: int, names: np.ndarray | None, given: str | None, unordered: bool
) -> MatrixSide:
    """Find the locations of n rows or columns: in the file `given`, in their names, or in their order."""
    texts = tuple(f"{side}_{i + 1}" for i in range(n)) if names is None else _texts(names)
    if unordered:
        if given is not None:
            raise ValueError(f"the {side}s have locations or are unordered; choose one of the two.")
        return MatrixSide(Axis(UNORDERED, texts), UNORDERED)
    if given not in (None, ORDER):
        return _side_along(texts, _read_locations(side, texts, str(given)), str(given))
    if given is None and names is not None and _are_locations(names):
        return _side_along(texts, names, side)
    return MatrixSide(Axis(ORDER, texts), None)


def fit_matrix(
    matrix: Matrix,
    rows: MatrixSide,
    cols: MatrixSide,
    parameters: dict[str, Any],
    *,
    files: Sequence[str],
    verbose: bool,
) -> MatrixModel:
    """Fit a matrix that was read from these files."""
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


def describe_factors(estimator: BinaryFactorization) -> list[dict[str, Any]]:
    """For each factor, its share of the logits' mean square, and its correlation lengths."""
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
    """At most `DRAWN` of the values, evenly spaced, including the first and the last."""
    if len(values) <= DRAWN:
        return values
    return values[np.linspace(0, len(values) - 1, DRAWN).astype(int)]


def _side_along(texts: tuple[str, ...], values: np.ndarray, what: str) -> MatrixSide:
    """A side whose locations are numbers or dates."""
    found = locations_as_numbers(f"the locations of {what}", values)
    order = np.argsort(found, kind="stable")
    ends = _texts(values[order[[0, -1]]])
    return MatrixSide(Axis("dates" if _are_dates(values) else "numbers", texts, *ends), found)


def _read_locations(side: str, texts: tuple[str, ...], path: str) -> np.ndarray:
    """Read a file of locations: one column in the order of the matrix, or names and locations."""
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


def _are_locations(names: np.ndarray) -> bool:
    """Whether names are numbers or dates."""
    try:
        locations_as_numbers("names", names)
    except ValueError:
        return False
    return True


def _are_dates(values: np.ndarray) -> bool:
    if values.dtype.kind in "mM":
        return True
    try:
        values.astype(float)
    except (TypeError, ValueError):
        return True
    return False


def _texts(names: np.ndarray) -> tuple[str, ...]:
    """Names as text: whole numbers without a decimal point, dates without a time unless one has a time."""
    if names.dtype.kind == "M":
        days = names.astype("datetime64[D]")
        names = days if np.array_equal(days, names) else names.astype("datetime64[s]")
        return tuple(np.datetime_as_string(names).tolist())
    return tuple(label(name) for name in names.tolist())
