"""A table in memory, read like a file."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kalvi.readers.columnar import BATCH, ColumnarReader, check_schema


class TableInput:
    """A table in place of a file."""

    path = name = "the table"
    size = None

    def __init__(self, table: pa.Table):
        self.table = table

    def check_unchanged(self) -> None:
        """Pass: a table of Arrow never changes."""

    def position(self) -> int | None:
        """None: there are no bytes to count."""
        return None

    def fingerprint(self) -> dict[str, Any]:
        """No more than a path: nothing tells one table from another."""
        return {"path": self.path}

    def close(self) -> None:
        """Pass: nothing is open."""

    def end(self) -> None:
        """Pass: nothing is open."""


class TableReader(ColumnarReader):
    """Reads a `TableInput`."""

    def declared(self, source: Any) -> pa.Schema:
        return check_schema(source.table.schema, source)

    def n_rows(self, source: Any) -> int | None:
        return source.table.num_rows

    def batches(
        self, source: Any, columns: list[str], *, skip: int, last: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        start = skip
        for batch in source.table.select(columns)[skip:].to_batches(BATCH):
            yield start, batch
            start += batch.num_rows
