"""What the commands need of a model: of any, and of one that learns rows as they come."""

from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from kalvi.columns.encoder import Encoder
from kalvi.columns.numbers import Place
from kalvi.tabular.record import Record


@runtime_checkable
class Model(Protocol):
    """A model in a file of its own, a named tuple; `summary` and `predict` dispatch on its class."""

    @property
    def model(self) -> str: ...

    @property
    def run(self) -> str: ...

    def streams(self) -> bool:
        """Whether rows are learned as they come."""
        ...

    def merges(self) -> bool:
        """Whether models of shards can become one."""
        ...

    def _replace(self, **changes: Any) -> Any: ...


@runtime_checkable
class Learner(Model, Protocol):
    """A model of the rows of a stream, for the loop in `learn`."""

    @property
    def choices(self) -> Any: ...

    @property
    def encoder(self) -> Encoder: ...

    @property
    def estimator(self) -> Any: ...

    @property
    def record(self) -> Record: ...

    @property
    def notation(self) -> dict[str, str]:
        """The words of columns that are written in other than the plain way."""
        ...

    def read(self, table: pa.Table, place: Place, encoder: Encoder) -> Any:
        """A piece of the stream as numbers; what it cannot be is refused with its place."""
        ...

    def learned(self, rows: Any, start: int) -> Any:
        """The model after a piece that comes after `start` rows of the stream."""
        ...

    def revisits(self, n_rows: int) -> bool:
        """Whether so many rows, once they are streamed, are gone over again to the optimum."""
        ...

    def climbed(self, pieces: list[Any]) -> Any:
        """The model after the streamed rows are gone over again, to the optimum."""
        ...

    def fitted(self, pieces: list[Any]) -> Any:
        """The model of all rows at once."""
        ...

    def finished(self) -> Any:
        """The model when all rows are learned, without the rows that only the run needed."""
        ...

    def types(self) -> dict[str, str]:
        """How the columns beside those of the encoder must be read: "number" or "category"."""
        ...

    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it knows."""
        ...
