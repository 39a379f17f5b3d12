"""What the commands need of a model: of any, and of one that learns the rows of a stream.

Every kind of model has a class that implements one of these two, in a file of its name: `linear`,
`gaussian_process`, `neural`, `factor_analysis` and `binary_matrix`. A model is a named tuple, which is how
it is saved, and is never changed: what learns gives a new one.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kalvi.columns.encoder import Encoder
from kalvi.readers.files import RowLocator
from kalvi.readers.notation import WORDS
from kalvi.readers.source import Source, open_data
from kalvi.tabular import sources
from kalvi.tabular.frames import data_of
from kalvi.tabular.integrity import Rules, guarded
from kalvi.tabular.predictions import (
    PIECE,
    Outcome,
    PredictedPiece,
    RowPredictions,
    Tell,
    Unseen,
    add_counts,
    check_kept,
    join_columns,
    nobody,
)
from kalvi.tabular.record import Record
from kalvi.tabular.renderers import Summary
from kalvi.tabular.rows import Rows

ADVICE = "or say how this file writes it (--as 'NAME=number:1.234,5', --as 'NAME=time:%d/%m/%Y')"
"""What a user can do about an entry that is not of the kind of a model's column."""
WHOSE = "this model"


class TableModel(ABC):
    """A model of a table that can be saved in a file, predict and be described."""

    __slots__ = ()

    model: str  # what it is called: "logistic", "factor", ...
    run: str  # the number of the run that it came out of
    _replace: Callable[..., Any]

    @abstractmethod
    def streams(self) -> bool:
        """Whether rows are learned as they come."""

    @abstractmethod
    def merges(self) -> bool:
        """Whether models of shards can become one."""

    @abstractmethod
    def open_to_predict(
        self,
        data: tuple[str, ...] | pa.Table,
        format: str | None = None,
        types: dict[str, str] | None = None,
        keep: tuple[str, ...] = (),
    ) -> Source | None:
        """The rows to predict; None for a model that predicts what it was fitted to."""

    @abstractmethod
    def predictions(
        self,
        source: Source | None,
        *,
        keep: tuple[str, ...] = (),
        level: float = 0.95,
        tell: Tell = nobody,
    ) -> Iterator[PredictedPiece]:
        """Predictions piece by piece, with intervals of this level, beside the columns to keep."""

    @abstractmethod
    def describe(self, name: str, *, diagnose: bool = False) -> dict[str, Any]:
        """All that a person may want to know of the model, in plain JSON, under the name of its file."""

    @abstractmethod
    def rules(self) -> Rules:
        """What must hold of a model that came out of a file: pairs of what is checked and the outcome."""

    def summary(self, diagnose: bool = False) -> Summary:
        """What `kalvi inspect` says: a dict that prints as its text."""
        with guarded(WHOSE):
            return Summary(self.describe("model", diagnose=diagnose))


class RowModel(TableModel):
    """A model that learns the rows of a stream (`learn`) and predicts rows."""

    __slots__ = ()

    choices: Any
    encoder: Encoder
    estimator: Any
    record: Record
    notation: dict[str, str]  # columns that are written in other than the plain way

    @abstractmethod
    def read(self, table: pa.Table, locate: RowLocator, encoder: Encoder) -> Rows:
        """A piece of the stream as numbers; what it cannot be is refused with its place."""

    @abstractmethod
    def learned(self, rows: Rows, start: int) -> "RowModel":
        """The model after a piece that comes after `start` rows of the stream."""

    @abstractmethod
    def revisits(self, n_rows: int) -> bool:
        """Whether so many rows, once streamed, are passed over again up to the optimum."""

    @abstractmethod
    def learn_together(self, pieces: list[Rows]) -> "RowModel":
        """The model of all rows at once: after further passes over them, if they were streamed."""

    @abstractmethod
    def finished(self) -> "RowModel":
        """The model when all rows are learned, without the rows that only the run needed."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it knows."""

    @abstractmethod
    def types_beside_inputs(self) -> dict[str, str]:
        """How the columns beside those of the encoder must be read: "number" or "category"."""

    @abstractmethod
    def text_columns(self) -> tuple[str, ...]:
        """Columns that are read as text when rows are predicted, so that nothing in them ends the run."""

    @abstractmethod
    def outline(self) -> dict[str, Any]:
        """What is known before a pass, in plain JSON: the model, its rows so far and its columns."""

    @abstractmethod
    def inputs(self, table: pa.Table, locate: RowLocator) -> tuple[Any, Unseen]:
        """Rows of x for predictions, and levels that are new."""

    @abstractmethod
    def predicted(self, table: pa.Table, locate: RowLocator, level: float) -> RowPredictions:
        """What the model says of some rows."""

    def column_types(self) -> dict[str, str]:
        """How the columns of other files must be read: their words, as in `readers.notation`."""
        encoder = self.encoder
        kinds = {group.name: group.keys.kind for group in encoder.groups}
        kinds |= dict(zip(encoder.numbers.names, encoder.numbers.kinds, strict=True))
        known = {name: kind for name, kind in kinds.items() if kind in WORDS}
        return known | self.types_beside_inputs() | self.notation

    def on_invalid(self, name: str) -> str:
        """What becomes of entries of a column that are not of its kind, in files that the model reads."""
        return self.choices.on_invalid(name) if name in self.columns() else "keep"

    def open_rows(
        self,
        data: Sequence[str] | pa.Table,
        format: str | None = None,
        types: dict[str, str] | None = None,
    ) -> Source:
        """Files, or a table, with the columns of the model; absent ones are missed when rows are read.

        Columns that were dropped when it was fitted are not read, unless `types` names them.
        """
        types = types or {}
        return open_data(
            data if isinstance(data, pa.Table) else list(data),
            format=format,
            types={**self.column_types(), **types},
            sample_rows=sources.SAMPLED,
            drop=tuple(n for n in sources.plain_names(self.choices.drop) if n not in types),
            strict=False,
            on_invalid=self.on_invalid,
            advice=ADVICE,
        )

    def open_to_predict(
        self,
        data: tuple[str, ...] | pa.Table,
        format: str | None = None,
        types: dict[str, str] | None = None,
        keep: tuple[str, ...] = (),
    ) -> Source:
        """The rows to predict; columns that are only carried over are written as they came."""
        if not data:
            raise ValueError("give the rows to predict: a file, several, or - for standard input.")
        carried = (name for name in keep if name not in self.encoder.columns())
        text = dict.fromkeys((*carried, *self.text_columns()), "category")
        return self.open_rows(data, format, {**(types or {}), **text})

    def predictions(
        self,
        source: Source | None,
        *,
        keep: tuple[str, ...] = (),
        level: float = 0.95,
        tell: Tell = nobody,
    ) -> Iterator[PredictedPiece]:
        """Predictions piece by piece, beside the columns to keep."""
        assert source is not None  # `open_to_predict` gives one
        check_kept(source, keep)
        known = {*self.columns(), *keep}
        ignored = tuple(name for name in source.schema.names if name not in known)
        outcome, total = Outcome(0, ignored, {}, 0, None, "", self._absent(source)), 0.0
        for piece in source.pieces(PIECE):
            found = self.predicted(piece.table, piece.locate, level)
            total += found.total
            count = outcome.labelled + found.labelled
            outcome = outcome._replace(
                rows=outcome.rows + piece.table.num_rows,
                unseen=add_counts(outcome.unseen, found.unseen),
                labelled=count,
                score=total / count if count else None,
                measure=found.measure,
            )
            tell(outcome.rows, source.fraction())
            yield PredictedPiece(join_columns(piece.table.select(list(keep)), found.table), outcome)

    def predict_table(self, frame: Any, level: float = 0.95) -> pa.Table:
        """The columns that `kalvi predict` writes for the rows of a frame."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1; got {level!r}.")
        source = self.open_to_predict(data_of(frame))
        try:
            with guarded(WHOSE):
                pieces = list(self.predictions(source, level=level))
                _warn(pieces[-1].outcome, stacklevel=3)
                return pa.concat_tables([piece.table for piece in pieces])
        finally:
            source.close()

    def in_pieces(self, frame: Any, answer: Callable[[Any], np.ndarray]) -> np.ndarray:
        """What `answer` says of the numbers of each row of a frame."""
        source = self.open_to_predict(data_of(frame))
        parts, unseen = [], {}
        try:
            with guarded(WHOSE):
                for piece in source.pieces(PIECE):
                    x, new = self.inputs(piece.table, piece.locate)
                    unseen = add_counts(unseen, new)
                    parts.append(answer(x))
            _warn(Outcome(0, (), unseen, 0, None, "", self._absent(source)), stacklevel=4)
        finally:
            source.close()
        return np.concatenate(parts)

    def _absent(self, source: Source) -> tuple[str, ...]:
        """Columns of the model that the data lack."""
        return tuple(name for name in self.encoder.columns() if name not in source.schema.names)


def _warn(outcome: Outcome, stacklevel: int) -> None:
    for said in outcome.surprises():
        warnings.warn(f"{said}.", UserWarning, stacklevel=stacklevel)
