"""A table in memory, read by the rules of files."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kalvi.readers.columnar import BATCH, Columnar, check_schema


class Held:
    """A table in place of a file."""

    path = name = "the table"
    size = None

    def __init__(self, table: pa.Table):
        self.table = table

    def check_unchanged(self) -> None:
        """A table of Arrow never changes."""

    def position(self) -> int | None:
        """Bytes that were read: it has none."""
        return None

    def fingerprint(self) -> dict[str, Any]:
        """What tells it from others: nothing."""
        return {"path": self.path}

    def close(self) -> None:
        """Nothing is open."""

    def end(self) -> None:
        """Nothing is open."""


class InMemory(Columnar):
    """Tables that declare the types of their columns."""

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
