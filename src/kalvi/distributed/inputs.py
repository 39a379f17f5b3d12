"""Dask collections as lists of pieces; each piece is a list of batches on the worker that holds it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from kalvi.distributed.passes import unpack_rows


class DaskPieces(NamedTuple):
    """A collection in pieces, each computed on the worker that needs it."""

    pieces: list[Any]  # delayed lists of batches (X, y) or (X, y, sample_weight)
    labels: list[Any]  # delayed labels of each piece
    width: int | None  # number of features, if known before rows are read


def dask() -> Any:
    """The module `dask`, an optional dependency."""
    try:
        import dask.array
    except ImportError as error:
        raise ImportError("kalvi.distributed.fit needs Dask: pip install 'kalvi[dask]'.") from error
    return dask


def read_collection(x: Any, y: Any, weight: Any, to_rows: Callable | None) -> DaskPieces:
    """The pieces of a Dask array, data frame or bag."""
    if not dask().is_dask_collection(x):
        raise TypeError(
            f"X must be a Dask array, data frame or bag; got {type(x).__name__}. Convert it "
            "(dask.array.from_array(X, chunks=(100_000, -1))), or use the model's partial_fit."
        )
    if isinstance(x, dask().array.Array):
        return _of_array(x, y, weight, to_rows)
    from dask import bag, dataframe

    if isinstance(x, bag.Bag):
        return _of_bag(x, y, weight, to_rows)
    if isinstance(x, dataframe.DataFrame):
        return _of_frame(x, y, weight, to_rows)
    raise TypeError(f"X must be a Dask array, data frame or bag; got {type(x).__name__}.")


def _of_array(x: Any, y: Any, weight: Any, to_rows: Callable | None) -> DaskPieces:
    _refuse_to_rows(to_rows)
    if x.ndim != 2 or np.isnan(x.shape[1]):
        raise ValueError(
            f"X needs rows and a known number of columns; got shape {x.shape}. "
            "Compute its chunk sizes first: X.compute_chunk_sizes()."
        )
    if x.numblocks[1] != 1:
        raise ValueError(
            f"every chunk of X needs all {x.shape[1]} columns; got {x.numblocks[1]} chunks of them. "
            "Use X.rechunk({1: -1})."
        )
    if y is None:
        raise ValueError("y is missing: give a Dask or NumPy array of one target a row.")
    targets = _in_chunks_of("y", y, x)
    weights = None if weight is None else _in_chunks_of("sample_weight", weight, x)
    return _zipped(x.to_delayed().ravel().tolist(), targets, weights, x.shape[1])


def _in_chunks_of(name: str, column: Any, x: Any) -> list[Any]:
    """A column, cut into the same chunks as the rows of x."""
    array = dask().array
    known = not any(np.isnan(size) for size in x.chunks[0])
    if not isinstance(column, array.Array):
        column = np.asarray(column)
        if not known:
            raise ValueError(
                f"{name} is not a Dask array and the lengths of the chunks of X are not known; "
                "use X.compute_chunk_sizes()."
            )
    if column.ndim != 1:
        raise ValueError(f"{name} needs one number a row; got shape {column.shape}.")
    lengths_known = not np.isnan(column.shape[0])
    if known and lengths_known:
        if column.shape[0] != x.shape[0]:
            raise ValueError(f"X has {x.shape[0]} rows and {name} has {column.shape[0]}.")
        if isinstance(column, array.Array):
            column = column.rechunk((x.chunks[0],))
        else:
            column = array.from_array(column, chunks=(x.chunks[0],))
    elif column.numblocks[0] != x.numblocks[0]:
        raise ValueError(
            f"X has {x.numblocks[0]} chunks of rows and {name} has {column.numblocks[0]}, of unknown "
            "lengths; use compute_chunk_sizes() on both."
        )
    return column.to_delayed().tolist()


def _of_frame(x: Any, y: Any, weight: Any, to_rows: Callable | None) -> DaskPieces:
    """The pieces of a data frame; targets and weights are columns of it, by name, or separate columns."""
    _refuse_to_rows(to_rows)
    if y is None:
        raise ValueError(f"y is missing: name the target, one of {', '.join(map(str, x.columns))}.")
    names = [name for name in (y, weight) if _is_name(name)]
    if missing := [name for name in names if name not in x.columns]:
        raise ValueError(f"no column {missing[0]!r}; there are {', '.join(map(str, x.columns))}.")
    columns = [x[name] if _is_name(name) else name for name in (y, weight)]
    for name, column in zip(("y", "sample_weight"), columns, strict=True):
        if column is not None and getattr(column, "npartitions", None) != x.npartitions:
            raise ValueError(
                f"{name} must be the name of a column, or a column in the {x.npartitions} partitions of X."
            )
    rows = x.drop(columns=names) if names else x
    targets, weights = (None if c is None else c.to_delayed() for c in columns)
    return _zipped(rows.to_delayed(), targets, weights, len(rows.columns))


def _is_name(given: Any) -> bool:
    """Whether a value is the name of a column; a name may be a number."""
    return given is not None and not dask().is_dask_collection(given) and np.ndim(given) == 0


def _of_bag(x: Any, y: Any, weight: Any, to_rows: Callable | None) -> DaskPieces:
    if y is not None or weight is not None:
        raise ValueError(
            "a bag holds batches (X, y) or (X, y, sample_weight), or records that to_rows= turns into one; "
            "leave out y and sample_weight."
        )
    delayed = dask().delayed
    return _labelled([delayed(_batches)(part, to_rows) for part in x.to_delayed()])


def _refuse_to_rows(to_rows: Callable | None) -> None:
    if to_rows is not None:
        raise ValueError("to_rows= is for the records of a bag; leave it out for other data.")


def _zipped(rows: list[Any], targets: Any, weights: list[Any] | None, width: int) -> DaskPieces:
    delayed = dask().delayed
    columns = [rows, targets] + ([] if weights is None else [weights])
    return _labelled([delayed(_batch)(*parts) for parts in zip(*columns, strict=True)], width)


def _labelled(pieces: list[Any], width: int | None = None) -> DaskPieces:
    labels = dask().delayed(_labels)
    return DaskPieces(
        pieces, [labels(piece, i, len(pieces)) for i, piece in enumerate(pieces)], width
    )


def _batch(*columns: Any) -> list[tuple]:
    return [columns]


def _batches(records: Any, to_rows: Callable | None) -> list[Any]:
    records = list(records)
    if to_rows is None:
        return records
    return [to_rows(records)] if records else []


def _labels(batches: list[Any], number: int, of: int) -> np.ndarray:
    with naming_piece(number, of):
        targets = [unpack_rows(rows)[1] for rows in batches]
        for y in targets:
            check_complete(y)
        return np.unique(np.concatenate([np.asarray(y) for y in targets] or [np.zeros(0)]))


def check_complete(y: Any) -> None:
    """Refuse missing targets, which cannot be compared with text labels."""
    values = np.ravel(np.asarray(y))
    if values.dtype.kind == "O":
        missing = np.array(
            [v is None or type(v).__name__ == "NAType" or v != v for v in values], bool
        )
    else:
        missing = values != values
    if missing.any():
        raise ValueError(
            f"Input y contains NaN or None in row {np.argmax(missing)} "
            f"({missing.sum()} such rows in all). Drop such rows first."
        )


@contextmanager
def naming_piece(number: int, of: int) -> Iterator[None]:
    """Add the number of the piece to an error about its rows."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"piece {number} of {of}, counted from 0: {error}") from error
