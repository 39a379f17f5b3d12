"""Readers of formats that declare types: Parquet, Arrow's files (Feather) and streams, tables in memory."""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset as pads

from kalvi.readers.column_types import NUMBER, check_names, is_text, type_after_reading, vector
from kalvi.readers.errors import BadData, as_bad_data, shorten
from kalvi.readers.inference import infer_layout
from kalvi.readers.inputs import Input
from kalvi.readers.layout import ColumnLayout, ReadOptions
from kalvi.readers.reader import Reader, Tables, first_rows

Batches = Iterator[tuple[int, pa.RecordBatch]]
"""Record batches, each with the number of rows before it."""
BATCH = 2**16
"""The number of rows that are read from Parquet at once."""


class ColumnarReader(Reader):
    """Reads files that declare the types of their columns, or a table in memory (`TableInput`)."""

    schema: ClassVar[str] = "schema"
    """The attribute of an opened file that has the types of its columns."""

    @abc.abstractmethod
    def opened(self, source: Any, *, last: bool = False) -> Any:
        """The file as pyarrow opens it; `last` says that a pipe is read for the last time."""

    @abc.abstractmethod
    def batches(self, source: Any, columns: list[str], *, skip: int, last: bool) -> Batches:
        """The record batches; those within the first `skip` rows may be left out."""

    def declared(self, source: Any) -> pa.Schema:
        """The types that the file declares; refused unless each column has a name of its own."""
        schema: pa.Schema = getattr(self.opened(source), self.schema)
        with as_bad_data(source.name, "has columns whose names cannot be read"):
            check_names(schema.names, source.name)
        return schema

    def infer(self, inputs: Sequence[Any], options: ReadOptions) -> ColumnLayout:
        first = inputs[0]
        with as_bad_data(first.name, "has columns that cannot be read"):
            kept = [field for field in self.declared(first) if field.name not in options.drop]
            fields = [pa.field(field.name, self._kind(inputs, field)) for field in kept]
        written = [field.name for field in kept if is_text(field.type)]
        text = self._sample(inputs, written, options.rows) if written else {}
        return infer_layout(pa.schema(fields), text, options, first.name)

    def _sample(self, inputs: Sequence[Any], names: list[str], rows: int) -> dict[str, Any]:
        """The first rows of the columns that the file declares as text."""
        schema = pa.schema([(name, pa.string()) for name in names])
        every = (
            pa.Table.from_batches([batch]).cast(schema)
            for source in inputs
            if set(names) <= set(self.declared(source).names)
            for _, batch in self.batches(source, names, skip=0, last=False)
        )
        sample = first_rows(every, rows, schema)
        return {name: sample.column(name) for name in names}

    def _kind(self, inputs: Sequence[Any], field: pa.Field) -> pa.DataType:
        if pa.types.is_null(field.type):
            return field.type
        kind = type_after_reading(field.type)
        if kind is None:
            raise BadData(
                f"{inputs[0].name}: column {shorten(field.name)} is of type {shorten(field.type)}, "
                f"which cannot be used; leave it out (--drop {field.name})."
            )
        return self._width(inputs, field.name) if _lacks_width(kind) else kind

    def _width(self, inputs: Sequence[Any], name: str) -> pa.DataType:
        """The vector type of a column of lists, by the length of its first entry that is not missing."""
        for source in inputs:
            for _, batch in self.batches(source, [name], skip=0, last=False):
                lengths = pc.list_value_length(batch.column(name)).drop_null()
                if len(lengths):
                    return vector(lengths[0].as_py())
        return NUMBER

    def parsed(self, source: Any, layout: ColumnLayout, *, skip: int, last: bool) -> Tables:
        layout.check(self.declared(source).names, source.name)
        for start, batch in self.batches(source, layout.schema.names, skip=skip, last=last):
            yield start, pa.Table.from_batches([batch])


class Parquet(ColumnarReader):
    """Parquet files."""

    schema = "schema_arrow"

    def opened(self, source: Input, *, last: bool = False) -> pq.ParquetFile:
        with as_bad_data(source.name, "is not a whole Parquet file"):
            return pq.ParquetFile(source.seekable(), buffer_size=2**20, pre_buffer=False)

    def n_rows(self, source: Input) -> int | None:
        return self.opened(source).metadata.num_rows

    def batches(self, source: Input, columns: list[str], *, skip: int, last: bool) -> Batches:
        file, start, groups = self.opened(source), 0, []
        with as_bad_data(source.name, "is not a whole Parquet file"):
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        for i, size in enumerate(sizes):
            if not groups and start + size <= skip:
                start += size
            else:
                groups.append(i)
        parts = file.iter_batches(BATCH, row_groups=groups, columns=columns) if groups else iter(())
        return _counted(parts, source, start, "is damaged")


class ArrowFile(ColumnarReader):
    """Arrow's random-access files, which are also the second version of Feather."""

    def opened(self, source: Input, *, last: bool = False) -> Any:
        with as_bad_data(source.name, "is not a whole Arrow file"):
            return pa.ipc.open_file(source.seekable())

    def n_rows(self, source: Input) -> int | None:
        self.opened(source)
        with as_bad_data(source.name, "is not a whole Arrow file"):
            return pads.dataset(source.path, format="ipc").count_rows()

    def batches(self, source: Input, columns: list[str], *, skip: int, last: bool) -> Batches:
        file = self.opened(source)
        parts = (file.get_batch(i).select(columns) for i in range(file.num_record_batches))
        return _counted(parts, source, 0, "is damaged")


class ArrowStream(ColumnarReader):
    """Arrow's streams, which may be compressed."""

    def opened(self, source: Input, *, last: bool = False) -> Any:
        with as_bad_data(source.name, "is not an Arrow stream"):
            return pa.ipc.open_stream(source.open(last=last))

    def n_rows(self, source: Input) -> int | None:
        return None

    def batches(self, source: Input, columns: list[str], *, skip: int, last: bool) -> Batches:
        parts = (part.select(columns) for part in self.opened(source, last=last))
        return _counted(parts, source, 0, "is damaged or breaks off")


class TableInput:
    """A table in memory, with the interface of `Input`."""

    path = name = "the table"
    size = None

    def __init__(self, table: pa.Table):
        self.table = table

    def check_unchanged(self) -> None:
        """Do nothing: an Arrow table never changes."""

    def position(self) -> int | None:
        """None: there are no bytes to count."""
        return None

    def fingerprint(self) -> dict[str, Any]:
        """Only a path: tables are not recognised."""
        return {"path": self.path}

    def close(self) -> None:
        """Do nothing: no file is open."""

    def close_for_good(self) -> None:
        """Do nothing: no file is open."""


class TableReader(ColumnarReader):
    """Reads a `TableInput`."""

    def opened(self, source: Any, *, last: bool = False) -> pa.Table:
        return source.table

    def n_rows(self, source: Any) -> int | None:
        return source.table.num_rows

    def batches(self, source: Any, columns: list[str], *, skip: int, last: bool) -> Batches:
        start = skip
        for batch in source.table.select(columns)[skip:].to_batches(BATCH):
            yield start, batch
            start += batch.num_rows


def _lacks_width(kind: pa.DataType) -> bool:
    """Whether a type is that of vectors of unknown width."""
    return pa.types.is_list(kind) and kind.value_type == NUMBER


def _counted(parts: Iterator[pa.RecordBatch], source: Input, start: int, what: str) -> Batches:
    """Validate the batches, and count the rows before each."""
    while True:
        with as_bad_data(f"{source.name}, after row {start:,}", what):
            batch = next(parts, None)
            if batch is not None:
                batch.validate(full=True)
        if batch is None:
            return
        if batch.num_rows:
            yield start, batch
        start += batch.num_rows
