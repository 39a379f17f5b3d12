"""Binary matrices as users have them: dense with NaN or masks, sparse, data frames; read by rows.

The result has one byte for each entry, or is a list of the observed entries if these are few. No further
matrix of numbers is made on the way.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int, Int8
from scipy.special import betaln

from kalvi.estimators.binary_factorization.locations import SortedAxis
from kalvi.estimators.input_checks import refuse_lazy
from kalvi.rules.silk import Entries, Observed, Table, list_entries

BLOCK = 2**20
"""The number of entries that are read at once."""
FEW = 0.15
"""If a smaller share of a matrix is observed, it becomes a list of entries, which is faster up to a fifth
on a CPU, and smaller up to a tenth."""
UNSTORED = (None, "zero", "missing")

Axes = tuple[SortedAxis, SortedAxis]
"""The locations of the rows and the columns of a matrix."""


class ReadEntries(NamedTuple):
    """The observed entries in the order of the locations, and the total weights of all entries and of the
    ones."""

    observed: Observed
    total: float
    ones: float

    def constant_evidence(self) -> float:
        """The log evidence of a model with one unknown probability for all entries."""
        return float(betaln(self.ones + 1, self.total - self.ones + 1))


class _Whole(NamedTuple):
    """Signs and weights of all entries, in the user's order; both are 0 for entries that were not
    observed."""

    sign: Int8[np.ndarray, "r c"]
    weight: Float[np.ndarray, "r c"] | None

    def as_table(self, axes: Axes) -> Table:
        def ordered(a: np.ndarray) -> np.ndarray:
            rows, cols = axes[0].order, axes[1].order
            a = a if rows is None else a[rows]
            return a if cols is None else a[:, cols]

        return Table.of(ordered(self.sign), None if self.weight is None else ordered(self.weight))

    def as_list(self, axes: Axes) -> Entries:
        row, col = np.nonzero(self.sign)
        weight = None if self.weight is None else self.weight[row, col]
        return _Listed(row, col, self.sign[row, col], weight, self.sign.shape).as_list(axes)


class _Listed(NamedTuple):
    """Signs and weights of the observed entries, in the user's order."""

    row: Int[np.ndarray, " e"]
    col: Int[np.ndarray, " e"]
    sign: Int8[np.ndarray, " e"]
    weight: Float[np.ndarray, " e"] | None
    shape: tuple[int, int]

    def as_table(self, axes: Axes) -> Table:
        def filled(values: np.ndarray) -> np.ndarray:
            whole = np.zeros(self.shape, values.dtype)
            whole[self.row, self.col] = values
            return whole

        weight = None if self.weight is None else filled(self.weight)
        return _Whole(filled(self.sign), weight).as_table(axes)

    def as_list(self, axes: Axes) -> Entries:
        row, col = axes[0].sort(self.row), axes[1].sort(self.col)
        return list_entries(row, col, self.sign, self.weight, self.shape)


def read_entries(
    X: Any, mask: Any, weight: Any, unstored: str | None, axes: Axes, dtype: Any
) -> ReadEntries:
    """The observed entries of a matrix of known shape."""
    shape = (axes[0].n, axes[1].n)
    for name, given in (("mask", mask), ("weight", weight)):
        if given is not None and np.shape(given) != shape:
            raise ValueError(f"{name} must have the shape of X, {shape}; got {np.shape(given)}.")
    X, mask, weight = (_canonical(a) if sp.issparse(a) else a for a in (X, mask, weight))
    dtype = np.dtype(dtype)
    if sp.issparse(X) and _is_list(X, unstored):
        found = _read_stored(X, mask, weight, dtype)
        seen = len(found.sign)
    else:
        found = _read_whole(X, mask, weight, shape, dtype)
        seen = int(np.count_nonzero(found.sign))
    if not seen:
        raise ValueError(
            f"X must have at least one observed entry; all {shape[0] * shape[1]} are missing, "
            "masked or of weight 0."
        )
    if found.weight is None:
        sums = seen, (seen + found.sign.sum(dtype=np.int64)) / 2
    else:
        sums = found.weight.sum(dtype=float), found.weight.sum(where=found.sign > 0, dtype=float)
    few = seen < FEW * shape[0] * shape[1]
    return ReadEntries(found.as_list(axes) if few else found.as_table(axes), *map(float, sums))


def shape_of(X: Any) -> tuple[int, int]:
    """The shape of a matrix; anything else is refused."""
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(
            f"X must be a matrix, an array of two dimensions; got shape {shape}. Reshape your data: "
            "X.reshape(-1, 1) is one column, X.reshape(1, -1) one row."
        )
    for count, kind in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {kind}(s) (shape={shape}) while a minimum of 1 is required."
            )
    return shape


def array_like(X: Any) -> Any:
    """Sparse matrices, data frames and arrays unchanged, anything else as an array."""
    refuse_lazy(X=X)
    if sp.issparse(X) or isinstance(X, np.ndarray) or hasattr(X, "iloc"):
        return X
    return np.asarray(X)


def _is_list(X: Any, unstored: str | None) -> bool:
    """Whether the entries that a sparse matrix does not store are missing."""
    if unstored is None and np.any(X.data == 0):
        raise ValueError(
            "X is sparse and stores zeros as well as ones, so that what it does not store may be zero "
            "or missing; say unstored='zero' or unstored='missing'."
        )
    return unstored == "missing"


def _canonical(a: Any) -> sp.csr_array:
    """Sparse rows in which every entry is stored once."""
    found = sp.csr_array(a)
    if not found.has_canonical_format:
        found = found.copy()
        found.sum_duplicates()
    return found


def _read_whole(X: Any, mask: Any, weight: Any, shape: tuple[int, int], dtype: np.dtype) -> _Whole:
    """The observed entries, read some rows at a time."""
    signs = np.zeros(shape, np.int8)
    weights = None if weight is None else np.zeros(shape, dtype)
    for first, last in _blocks(*shape):
        values, seen = _values(_rows(X, first, last))
        if mask is not None:
            seen &= _mask(_rows(mask, first, last))
        if weights is not None:
            weights[first:last] = _weights(_rows(weight, first, last), first, dtype)
            seen &= weights[first:last] > 0
        signs[first:last] = _signs(values, seen, first)
    return _Whole(signs, weights)


def _read_stored(X: sp.csr_array, mask: Any, weight: Any, dtype: np.dtype) -> _Listed:
    """The observed entries among those that a sparse matrix stores."""
    stored = X.tocoo()
    (row, col), (values, seen) = stored.coords, _values(stored.data)
    if mask is not None:
        seen &= _mask(_at(mask, row, col))
    weights = None if weight is None else _weights(_at(weight, row, col), None, dtype)
    if weights is not None:
        seen &= weights > 0
    signs = _signs(values, seen, None, (row, col))[seen]
    kept = None if weights is None else weights[seen]
    return _Listed(row[seen].astype(int), col[seen].astype(int), signs, kept, shape_of(X))


def _blocks(n: int, width: int) -> Iterator[tuple[int, int]]:
    size = max(BLOCK // width, 1)
    return ((first, min(first + size, n)) for first in range(0, n, size))


def _rows(a: Any, first: int, last: int) -> np.ndarray:
    """Some rows of an array, a data frame or a sparse matrix, in the same type."""
    if hasattr(a, "iloc"):
        return np.asarray(a.iloc[first:last])
    part = a[first:last]
    return part.toarray() if sp.issparse(part) else np.ma.asanyarray(part)


def _at(a: Any, row: np.ndarray, col: np.ndarray) -> np.ndarray:
    found: Any = (a if sp.issparse(a) else np.asarray(a))[row, col]
    return np.asarray(found.toarray() if sp.issparse(found) else found).ravel()


def _values(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, and a mask of those that are not missing."""
    hidden = np.ma.getmaskarray(block)
    values = np.ma.getdata(block)
    if values.dtype == object:
        values, hidden = _plain(values, hidden)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: the entries of X must be 0, 1 or NaN.")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the entries of X must be 0, 1 or NaN; got {values.dtype}.")
    return values, ~(hidden | (values != values))  # NaN differs from itself


def _plain(values: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Objects as numbers; None and pandas.NA are missing."""
    gone = np.array([v is None or type(v).__name__ == "NAType" for v in values.flat], bool)
    hidden = hidden | gone.reshape(values.shape)
    try:
        return np.where(hidden, np.nan, values).astype(float), hidden
    except (TypeError, ValueError) as error:
        raise type(error)(f"the entries of X must be 0, 1 or NaN; {error}.") from None


def _signs(
    values: np.ndarray, seen: np.ndarray, first: int | None, at: tuple | None = None
) -> Int8[np.ndarray, "..."]:
    """1 for ones, −1 for zeros, 0 for entries that were not observed; anything else is refused."""
    one = values == 1
    bad = seen & ~(one | (values == 0))
    if np.any(bad):
        where = np.argwhere(bad)[0]
        value = values[tuple(where)]
        row, col = (
            (where[0] + first, where[1]) if at is None else (at[0][where[0]], at[1][where[0]])
        )
        raise ValueError(
            f"the entries of X must be 0, 1 or NaN (missing); row {row}, column {col} is {value}. "
            "Compare with a threshold first, or hide such entries by mask."
        )
    return np.where(seen, 2 * one.astype(np.int8) - np.int8(1), np.int8(0)).astype(np.int8)


def _mask(block: np.ndarray) -> np.ndarray:
    """The mask of observed entries: true, or not zero."""
    values = np.ma.filled(block, False)
    if values.dtype.kind not in "biuf" or np.any(values != values):
        raise ValueError(
            "mask must be true where an entry was observed and false elsewhere; it holds something else."
        )
    return values.astype(bool)


def _weights(block: np.ndarray, first: int | None, dtype: np.dtype) -> np.ndarray:
    """Weights in the precision of the fit; masked entries have weight 0."""
    with np.errstate(over="ignore"):
        values = np.asarray(np.ma.filled(np.ma.asanyarray(block), 0), float).astype(dtype)
    bad = ~(np.isfinite(values) & (values >= 0))
    if np.any(bad):
        where = np.argwhere(bad)[0]
        place = f"row {where[0] + first}, column {where[1]}" if first is not None else "an entry"
        raise ValueError(
            f"weight must be finite and not negative; {place} has {values[tuple(where)]} in "
            f"{np.dtype(dtype)}. Weight 0 leaves an entry out."
        )
    return values
