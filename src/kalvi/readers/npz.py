"""NumPy's archives of arrays: a vector is a column, a matrix is a column of vectors.

All arrays must have the same number of rows. A sparse matrix in SciPy's layout (`scipy.sparse.save_npz`:
data, indices, indptr, shape, format) is the sparse column x, beside any other arrays. Arrays are read a few
rows at a time; only those in Fortran's order, and the row pointers of a sparse matrix, are held in memory.
Objects are never unpickled.
"""

import math
import warnings
import zipfile
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa

from kalvi.readers.column_types import (
    FLAG,
    NUMBER,
    SPARSE,
    TEXT,
    TIME,
    check_names,
    vector,
)
from kalvi.readers.errors import BadData, as_bad_data, shorten
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.reader import Reader, Tables
from kalvi.readers.text_blocks import BLOCK

SPARSE_PARTS = frozenset({"data", "indices", "indptr", "shape", "format"})
OTHER_PARTS = frozenset({"_is_array"})
"""Further arrays that SciPy stores."""
X = "x"
"""The name of the column that holds a sparse matrix."""


class Npz(Reader):
    """Reads archives of arrays."""

    def infer(self, inputs: Sequence[Input], options: ReadOptions) -> ColumnLayout:
        with _Archive(inputs[0]) as archive:
            fields = [c.field(n) for n, c in archive.columns.items() if n not in options.drop]
            rows = min(options.rows, archive.n_rows)
            with as_bad_data(f"{inputs[0].name}, after row 0", "is damaged"):
                text = {
                    field.name: pa.chunked_array([archive.columns[field.name].take(rows)])
                    for field in fields
                    if field.type == TEXT
                }
        return infer_layout(pa.schema(fields), text, options, inputs[0].name)

    def n_rows(self, source: Input) -> int | None:
        with _Archive(source) as archive:
            return archive.n_rows

    def parsed(self, source: Input, layout: ColumnLayout, *, skip: int, last: bool) -> Tables:
        with _Archive(source) as archive:
            layout.check(list(archive.columns), source.name)
            columns = {name: archive.columns[name] for name in layout.schema.names}
            size = max(1, BLOCK // max(1, sum(column.row_bytes for column in columns.values())))
            for start in range(0, archive.n_rows, size):
                n = min(size, archive.n_rows - start)
                with as_bad_data(f"{source.name}, after row {start:,}", "is damaged"):
                    table = pa.table({name: column.take(n) for name, column in columns.items()})
                    table.validate(full=True)
                yield start, table


class _Archive:
    """An open archive, and its columns."""

    def __init__(self, source: Input):
        with as_bad_data(source.name, "is not an archive of NumPy arrays"):
            self._zip = zipfile.ZipFile(source.seekable())
            arrays = {n.removesuffix(".npy"): n for n in self._zip.namelist() if n.endswith(".npy")}
            check_names(arrays, source.name)
        if not arrays:
            raise BadData(f"{source.name}: holds no arrays; a spreadsheet must be saved as CSV.")
        self.columns: dict[str, _Dense | _Sparse] = {}
        sparse = set(arrays) >= SPARSE_PARTS
        for name, member in arrays.items():
            with as_bad_data(f"{source.name}, array {shorten(name)}", "cannot be read"):
                if not (sparse and name in SPARSE_PARTS | OTHER_PARTS):
                    self.columns[name] = _Dense(_Member(self._zip, member))
        if sparse:
            with as_bad_data(source.name, "is not a whole sparse matrix"):
                if X in self.columns:
                    raise ValueError("beside an array x")
                parts = {name: _Member(self._zip, arrays[name]) for name in SPARSE_PARTS}
                self.columns[X] = _Sparse(parts)
        self.n_rows = self._rows(source.name)

    def _rows(self, name: str) -> int:
        (first, rows), *others = [(key, column.n_rows) for key, column in self.columns.items()]
        for other, length in others:
            if length != rows:
                raise BadData(
                    f"{name}: array {shorten(other)} has {length:,} rows and {shorten(first)} {rows:,}; "
                    "all must have the same number."
                )
        return rows

    def __enter__(self) -> "_Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()


class _Member:
    """One array of an archive, whose entries are read in order."""

    def __init__(self, archive: zipfile.ZipFile, name: str):
        size = archive.getinfo(name).file_size
        self._file: IO[bytes] = archive.open(name)
        version = np.lib.format.read_magic(self._file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        header = read.get(version, np.lib.format.read_array_header_2_0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that Python 2 wrote
            self.shape, self._fortran, self.dtype = header(self._file)
        start = self._file.tell()
        if self.dtype.hasobject:
            raise ValueError("it holds pickled objects, which are not read")
        if self.dtype.itemsize == 0 or 0 in self.shape[1:]:
            raise ValueError("its entries have no size")
        if min(self.shape, default=0) < 0 or self.count * self.dtype.itemsize > size - start:
            raise ValueError(
                f"it ends too early, or its shape {self.shape} is not that of its entries"
            )
        self._whole = self._matrix() if self._fortran and len(self.shape) == 2 else None
        self._at = 0

    @property
    def count(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    def take(self, n: int) -> np.ndarray:
        """The next n entries along the first axis."""
        if self._whole is not None:
            self._at += n
            return self._whole[self._at - n : self._at]
        row = math.prod(self.shape[1:])
        data = self._file.read(n * row * self.dtype.itemsize)
        if len(data) < n * row * self.dtype.itemsize:
            raise ValueError("it ends too early")
        return np.frombuffer(data, self.dtype, n * row).reshape(n, *self.shape[1:])

    def all(self) -> np.ndarray:
        """All entries, as a vector."""
        data = self._file.read(self.count * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype, self.count)

    def _matrix(self) -> np.ndarray:
        return self.all().reshape(self.shape[::-1]).T


class _Dense:
    """A vector, or a matrix as a column of vectors."""

    def __init__(self, member: _Member):
        if len(member.shape) not in (1, 2):
            raise ValueError(f"it has {len(member.shape)} axes; a column has 1, one of vectors 2")
        self._kind = {"b": FLAG, "M": TIME, "U": TEXT, "S": TEXT} | dict.fromkeys("iuf", NUMBER)
        if member.dtype.kind not in self._kind or (
            len(member.shape) == 2 and member.dtype.kind in "MUS"
        ):
            raise ValueError(f"its type {member.dtype} cannot be used")
        self._member, self.n_rows = member, member.shape[0]
        self.row_bytes = max(1, math.prod(member.shape[1:])) * max(8, member.dtype.itemsize)

    def field(self, name: str) -> pa.Field:
        """The name and the type of the column."""
        shape, kind = self._member.shape, self._kind[self._member.dtype.kind]
        return pa.field(name, vector(shape[1]) if len(shape) == 2 else kind)

    def take(self, n: int) -> pa.Array:
        """The next n rows."""
        values = self._member.take(n)
        if values.ndim == 2:
            flat = pa.array(values.astype(np.float64).ravel())
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        if values.dtype.kind in "iuf":
            return pa.array(values.astype(np.float64))
        if values.dtype.kind == "M":
            return pa.array(values.astype("datetime64[us]"))
        if values.dtype.kind == "S":
            return pa.array([value.decode("utf-8") for value in values.tolist()], TEXT)
        return pa.array(values.tolist(), TEXT if values.dtype.kind == "U" else FLAG)


class _Sparse:
    """A matrix in compressed rows."""

    def __init__(self, parts: dict[str, _Member]):
        layout, shape = parts["format"].all(), parts["shape"].all()
        if layout.astype("S").tolist() != [b"csr"]:
            raise ValueError("it is not in compressed rows; save it .tocsr()")
        self._starts = parts["indptr"].all().astype(np.int64)
        self.n_rows, self._width = int(shape[0]), int(shape[1])
        total = parts["data"].count
        ends = (
            len(self._starts) == self.n_rows + 1
            and self._starts[0] == 0
            and self._starts[-1] == total
        )
        if not ends or (np.diff(self._starts) < 0).any() or parts["indices"].count != total:
            raise ValueError("its row pointers are not those of its entries")
        self._data, self._indices, self._at = parts["data"], parts["indices"], 0
        self.row_bytes = 16 * max(1, int(np.diff(self._starts).max(initial=1)))

    def field(self, name: str) -> pa.Field:
        return pa.field(name, SPARSE, metadata={"width": str(self._width)})

    def take(self, n: int) -> pa.Array:
        starts = self._starts[self._at : self._at + n + 1]
        self._at += n
        count = int(starts[-1] - starts[0])
        index = self._indices.take(count).astype(np.int64)
        if count and not (index.min() >= 0 and index.max() < self._width):
            raise ValueError(f"an index outside the {self._width:,} columns")
        pair: list[Any] = [pa.array(index), pa.array(self._data.take(count).astype(np.float64))]
        struct = pa.StructArray.from_arrays(pair, fields=list(SPARSE.value_type))
        return pa.ListArray.from_arrays(
            pa.array(starts - starts[0], pa.int32()), struct, type=SPARSE
        )
