"""What the models of the commands do in Python: predictions for frames, a summary, a short name.

A frame is a table of pandas, polars or Arrow, a dict of columns, a list of dicts, or the path of a file. It
is read as `kalvi predict` reads files: an entry that does not fit its column is refused with its place, and
so is an absent column, unless missing values are imputed. Absent columns that are imputed, and levels that
the model has never seen, are warned of.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kalvi.columns.targets import Classes
from kalvi.estimators.input_checks import refuse_lazy
from kalvi.readers.errors import BadData
from kalvi.tabular import predict as predicting
from kalvi.tabular.summary import diagnosed, summary
from kalvi.tabular.summary_text import NAMES, Summary, counted
from kalvi.tabular.valid import guarded

WHOSE = "this model"
MOST_NAMED = 6
"""So many classes are named in one line."""


def predict(model: Any, frame: Any, return_std: bool) -> Any:
    """The likeliest class of each row, or the mean of y and, if asked, its deviation."""
    if isinstance(model.target, Classes):
        if return_std:
            raise ValueError(
                "classes have no standard deviation; predict_interval gives that of probabilities."
            )
        return model.classes_[np.argmax(predict_proba(model, frame), axis=1)]
    if not return_std:
        return _joined(_expected(model, x) for x in inputs(model, frame))
    table = prediction_table(model, frame, 0.95)
    return table["mean"].to_numpy(), table["sd"].to_numpy()


def predict_proba(model: Any, frame: Any) -> np.ndarray:
    """The probability of each class for each row."""
    if not isinstance(model.target, Classes):
        raise AttributeError(f"'{model.target.name}' is a number; use predict, not predict_proba.")
    return _joined(_expected(model, x) for x in inputs(model, frame))


def predict_interval(model: Any, frame: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper ends; of classes, a column for each."""
    table = prediction_table(model, frame, level)
    if not isinstance(model.target, Classes):
        return table["lower"].to_numpy(), table["upper"].to_numpy()
    if f"lower_{model.target.labels[0]}" not in table.column_names:
        raise ValueError("a Gaussian process of several classes has no intervals.")
    lower, upper = (
        np.column_stack([table[f"{end}_{text}"].to_numpy() for text in model.target.labels])
        for end in ("lower", "upper")
    )
    return lower, upper


def prediction_table(model: Any, frame: Any, level: float) -> pa.Table:
    """The columns that `kalvi predict` writes."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1; got {level!r}.")
    source = _opened(model, frame)
    try:
        with guarded(WHOSE):
            pieces = list(predicting.predictions(model, source, level=level))
            _warn(pieces[-1].outcome)
            return pa.concat_tables([piece.table for piece in pieces])
    finally:
        source.close()


def inputs(model: Any, frame: Any) -> Iterator[Any]:
    """The rows of a frame as the numbers that the model's estimator takes, piece by piece."""
    source = _opened(model, frame)
    known = source.schema.names
    absent = tuple(name for name in model.encoder.columns() if name not in known)
    unseen: dict[str, dict[str, int]] = {}
    try:
        with guarded(WHOSE):
            for piece in source.pieces(predicting.PIECE):
                x, new = model.inputs(piece.table, piece.place)
                unseen = predicting.added(unseen, new)
                yield x
        _warn(predicting.Outcome(0, (), unseen, 0, None, "", absent))
    finally:
        source.close()


def _warn(outcome: predicting.Outcome) -> None:
    for said in outcome.surprises():
        warnings.warn(f"{said}.", UserWarning, stacklevel=4)


def summarised(model: Any, diagnose: bool) -> Summary:
    """What `kalvi inspect` says of a model."""
    with guarded(WHOSE):
        return Summary(summary(model, "model", diagnosed(model) if diagnose else None))


def transform(model: Any, frame: Any) -> np.ndarray:
    """The expected factors of each row."""
    return _joined(model.estimator.transform(x) for x in inputs(model, frame))


def score_samples(model: Any, frame: Any) -> np.ndarray:
    """The log density of each row."""
    return _joined(model.estimator.score_samples(x) for x in inputs(model, frame))


def table_repr(model: Any) -> str:
    """A model of a table in one line."""
    columns = counted(len(model.encoder.columns()), "column")
    known = f"{columns}, {counted(model.record.rows, 'row')}"
    if isinstance(model.target, Classes):
        shown, more = model.target.labels[:MOST_NAMED], len(model.target.labels) > MOST_NAMED
        known += f", classes {'/'.join(shown)}{'/...' if more else ''}"
    return f"<kalvi {NAMES[model.model]} of {model.target.name}: {known}>"


def factor_repr(model: Any) -> str:
    """A factor analysis in one line."""
    columns = counted(len(model.encoder.columns()), "column")
    factors = counted(model.choices.components, "factor")
    return f"<kalvi factor analysis: {factors} of {columns}, {counted(model.record.rows, 'row')}>"


def matrix_repr(model: Any) -> str:
    """A factorised matrix in one line."""
    shape = f"{len(model.rows.names):,} × {len(model.cols.names):,} matrix"
    factors = counted(model.estimator.n_factors_, "factor")
    return f"<kalvi binary matrix: {factors} of a {shape}, {model.observed:,} entries observed>"


def _expected(model: Any, x: Any) -> np.ndarray:
    return model.kind.expected(model.estimator, model.target, x)


def _joined(parts: Iterator[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts))


def table_of(frame: Any) -> pa.Table:
    """A frame as a table of Arrow."""
    refuse_lazy(frame=frame)
    try:
        table = _converted(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadData(f"the table: has columns that cannot be read ({_short(error)}).") from error
    if table is None:
        raise TypeError(
            "rows to predict are a pandas, polars or Arrow table, a dict of columns, a list of dicts, or "
            f"the path of a file; got {type(frame).__name__}."
        )
    if not table.num_rows:
        raise ValueError("the table has no rows to predict.")
    return table


def _opened(model: Any, frame: Any) -> Any:
    named = isinstance(frame, str | os.PathLike)
    return predicting.opened(model, (os.fspath(frame),) if named else table_of(frame), None)


def _converted(frame: Any) -> pa.Table | None:
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return pa.table({str(name): _column(name, column) for name, column in frame.items()})
    if isinstance(frame, Sequence) and all(isinstance(row, Mapping) for row in frame):
        names = list(dict.fromkeys(str(name) for row in frame for name in row))
        return pa.table({name: [row.get(name) for row in frame] for name in names})
    kind = type(frame).__module__.partition(".")[0]
    if kind == "pandas" and type(frame).__name__ == "DataFrame":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "polars" and type(frame).__name__ == "DataFrame":
        return frame.to_arrow()  # pyright: ignore[reportAttributeAccessIssue]
    return None


def _column(name: Any, column: Any) -> Any:
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise TypeError(
            f"a dict of columns holds a list of values for each; '{name}' is {column!r}. "
            "Give one row as a list of one dict."
        )
    return column


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
