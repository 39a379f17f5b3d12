"""The interfaces of models of tables: `TableModel` for all, `RowModel` for those that learn from rows.

Every kind of model is a class that implements one of the two, in a file of its own: `linear`,
`gaussian_process`, `neural`, `factor_analysis` and `binary_matrix`. A model is a named tuple, so that it
can be saved, and is never changed: a method that learns returns a new one.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kalvi.columns.encoder import Encoder
from kalvi.readers.files import RowLocator
from kalvi.readers.notation import WORDS
from kalvi.readers.source import Source, open_data
from kalvi.tabular import sources
from kalvi.tabular.frames import data_of
from kalvi.tabular.integrity import Rules, errors_as_damage
from kalvi.tabular.predictions import (
    DEFAULTS,
    PIECE,
    PredictedPiece,
    PredictionOutcome,
    PredictOptions,
    RowPredictions,
    UnseenLevels,
    add_counts,
    check_kept,
    join_columns,
)
from kalvi.tabular.progressive import block_size
from kalvi.tabular.record import Record
from kalvi.tabular.renderers import Summary
from kalvi.tabular.rows import Rows

ADVICE = "or say how this file writes it (--as 'NAME=number:1.234,5', --as 'NAME=time:%d/%m/%Y')"
"""Advice for the user about an entry that does not fit the type of a model's column."""
THIS_MODEL = "this model"


class TableModel(ABC):
    """A model that can be saved, make predictions and describe itself."""

    __slots__ = ()

    model: str  # the name of its kind: "logistic", "factor", ...
    run: str  # the identifier of the run that made it
    _replace: Callable[..., Any]

    @abstractmethod
    def open_to_predict(
        self, data: tuple[str, ...] | pa.Table, how: PredictOptions = DEFAULTS
    ) -> Source | None:
        """Open the rows to predict; None for a model that predicts the entries it was fitted to."""

    @abstractmethod
    def predictions(
        self, source: Source | None, how: PredictOptions = DEFAULTS
    ) -> Iterator[PredictedPiece]:
        """Predictions piece by piece, with intervals of this level, after the columns to keep."""

    @abstractmethod
    def describe(self, name: str, *, diagnose: bool = False) -> dict[str, Any]:
        """Everything a user may want to know about the model, as plain JSON; `name` is that of its file."""

    @abstractmethod
    def rules(self) -> Rules:
        """Rules for a model from a file: pairs of what is checked and whether it is right."""

    def summary(self, diagnose: bool = False) -> Summary:
        """The output of `kalvi inspect`, as a dict that prints as text."""
        with errors_as_damage(THIS_MODEL):
            return Summary(self.describe("model", diagnose=diagnose))


class RowModel(TableModel):
    """A model that learns from rows and predicts rows; `learn.learn` makes the pass."""

    __slots__ = ()

    choices: Any
    encoder: Encoder
    estimator: Any
    record: Record
    notation: dict[str, str]  # by column, how entries are written, if not in the plain way
    first_rows: ClassVar[int]  # how many rows of a stream are learned before any is predicted

    @abstractmethod
    def streams(self) -> bool:
        """Whether rows are learned as they are read, not all together."""

    @abstractmethod
    def read(self, table: pa.Table, locate: RowLocator, encoder: Encoder) -> Rows:
        """A piece of the stream as numbers; an invalid entry is refused, and the error says where it is."""

    @abstractmethod
    def learned_block(self, rows: Rows) -> "RowModel":
        """The model after a few rows, which are predicted before they are learned."""

    @abstractmethod
    def samples(self) -> bool:
        """Whether a sample of the rows is drawn."""

    @abstractmethod
    def revisits(self, n_rows: int) -> bool:
        """Whether the model passes over so many rows again, after the stream, up to the optimum."""

    @abstractmethod
    def learn_together(self, pieces: list[Rows]) -> "RowModel":
        """The model of all rows together: by further passes over them, if they were streamed."""

    @abstractmethod
    def finished(self) -> "RowModel":
        """The model at the end of a run, without the rows that only the run needed."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of a table that the model reads."""

    @abstractmethod
    def types_beside_inputs(self) -> dict[str, str]:
        """The types of the columns other than the inputs: "number" or "category"."""

    @abstractmethod
    def text_columns(self) -> tuple[str, ...]:
        """Columns that are read as text for predictions, so that no entry of theirs can be invalid."""

    @abstractmethod
    def outline(self) -> dict[str, Any]:
        """A description before a pass, as plain JSON: the model, its rows so far and its columns."""

    @abstractmethod
    def inputs(self, table: pa.Table, locate: RowLocator) -> tuple[Any, UnseenLevels]:
        """The features of rows to predict, and levels that are new."""

    @abstractmethod
    def predicted(self, table: pa.Table, locate: RowLocator, level: float) -> RowPredictions:
        """Predictions of some rows."""

    def learned(self, rows: Rows, start: int) -> "RowModel":
        """The model after a piece that comes after `start` rows of the stream, block by block."""
        model, first, n = self, 0, len(rows.y)
        while first < n:
            size = block_size(model.record.rows, self.first_rows, n - first)
            model = model.learned_block(rows.part(first, first + size))
            first += size
        record = model.record
        if self.samples():
            sample = record.sample.add((rows.x, rows.y, rows.weight), start)
            record = record._replace(sample=sample)
        return model._replace(encoder=rows.encoder, record=record)

    def column_types(self) -> dict[str, str]:
        """The types and notations with which other files are read, as in `readers.notation`."""
        encoder = self.encoder
        kinds = {group.name: group.keys.kind for group in encoder.groups}
        kinds |= dict(zip(encoder.numbers.names, encoder.numbers.kinds, strict=True))
        known = {name: kind for name, kind in kinds.items() if kind in WORDS}
        return known | self.types_beside_inputs() | self.notation

    def on_invalid(self, name: str) -> str:
        """The treatment of entries that do not fit the type of a column: "keep", "missing" or "refuse"."""
        return self.choices.on_invalid(name) if name in self.columns() else "keep"

    def open_rows(
        self,
        data: Sequence[str] | pa.Table,
        format: str | None = None,
        types: dict[str, str] | None = None,
    ) -> Source:
        """Open files, or a table, with the columns of the model; `read` notices absent ones later.

        Columns that were dropped when the model was fitted are not read, unless `types` names them.
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
        self, data: tuple[str, ...] | pa.Table, how: PredictOptions = DEFAULTS
    ) -> Source:
        """Open the rows to predict; columns that are only carried over are written as they stand."""
        if not data:
            raise ValueError("give the rows to predict: a file, several, or - for standard input.")
        carried = (name for name in how.keep if name not in self.encoder.columns())
        text = dict.fromkeys((*carried, *self.text_columns()), "category")
        return self.open_rows(data, how.format, {**how.types, **text})

    def predictions(
        self, source: Source | None, how: PredictOptions = DEFAULTS
    ) -> Iterator[PredictedPiece]:
        """Predictions piece by piece, after the columns to keep."""
        assert source is not None  # `open_to_predict` gives one
        check_kept(source, how.keep)
        known = {*self.columns(), *how.keep}
        ignored = tuple(name for name in source.schema.names if name not in known)
        outcome, total = PredictionOutcome(0, ignored, {}, 0, None, "", self._absent(source)), 0.0
        for piece in source.pieces(PIECE):
            found = self.predicted(piece.table, piece.locate, how.level)
            total += found.total
            count = outcome.labelled + found.labelled
            outcome = outcome._replace(
                rows=outcome.rows + piece.table.num_rows,
                unseen=add_counts(outcome.unseen, found.unseen),
                labelled=count,
                score=total / count if count else None,
                measure=found.measure,
            )
            how.tell(outcome.rows, source.fraction())
            yield PredictedPiece(
                join_columns(piece.table.select(list(how.keep)), found.table), outcome
            )

    def predict_table(self, frame: Any, level: float = 0.95) -> pa.Table:
        """The table that `kalvi predict` writes for the rows of a frame."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1; got {level!r}.")
        source = self.open_to_predict(data_of(frame))
        try:
            with errors_as_damage(THIS_MODEL):
                pieces = list(self.predictions(source, PredictOptions(level=level)))
                _warn(pieces[-1].outcome, stacklevel=3)
                return pa.concat_tables([piece.table for piece in pieces])
        finally:
            source.close()

    def in_pieces(self, frame: Any, answer: Callable[[Any], np.ndarray]) -> np.ndarray:
        """The results of `answer` for the features of a frame's rows, computed in pieces."""
        source = self.open_to_predict(data_of(frame))
        parts, unseen = [], {}
        try:
            with errors_as_damage(THIS_MODEL):
                for piece in source.pieces(PIECE):
                    x, new = self.inputs(piece.table, piece.locate)
                    unseen = add_counts(unseen, new)
                    parts.append(answer(x))
            _warn(PredictionOutcome(0, (), unseen, 0, None, "", self._absent(source)), stacklevel=4)
        finally:
            source.close()
        return np.concatenate(parts)

    def _absent(self, source: Source) -> tuple[str, ...]:
        """Columns of the model that the data lack."""
        return tuple(name for name in self.encoder.columns() if name not in source.schema.names)


def _warn(outcome: PredictionOutcome, stacklevel: int) -> None:
    for said in outcome.surprises():
        warnings.warn(f"{said}.", UserWarning, stacklevel=stacklevel)
