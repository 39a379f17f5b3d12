"""A model of a table: how columns become numbers, what was learned from them, and what the pass said."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from kalvi.columns.encoder import Encoder, Settings, kinds_of
from kalvi.columns.numbers import Place
from kalvi.columns.targets import Classes, Target, label, numbers
from kalvi.readers import BadData, Source
from kalvi.tabular.kinds import KINDS, Kind, Prediction, likely_kind
from kalvi.tabular.record import (
    EXAMPLES,
    Record,
    checked,
    checked_rows,
)

MOST_FULL = 2048
"""A full covariance that nobody asked for grows to so many places at most."""


class Choices(NamedTuple):
    """What a person decided about a model of a table."""

    target: str
    model: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None
    classes: tuple[str, ...] = ()
    missing: str = "error"
    skip_unlabelled: bool = False
    hash_bits: int | None = None
    max_width: int = 2**20
    parameters: dict[str, Any] = {}  # noqa: RUF012 (of the estimator; never changed)


class Rows(NamedTuple):
    """A piece of the stream as numbers, and the encoder after it."""

    table: pa.Table
    x: Any
    y: np.ndarray
    weight: np.ndarray
    encoder: Encoder
    unseen: dict[str, dict[str, int]]


class TableModel(NamedTuple):
    """Encoder, target and estimator of a table, and the record of the pass."""

    model: str
    choices: Choices
    target: Target
    encoder: Encoder
    estimator: Any
    record: Record
    run: str = ""  # the number of the run that it came out of

    @classmethod
    def begin(cls, source: Source, choices: Choices) -> "TableModel":
        """A model before its first row, with types, units and levels from the source's sample."""
        sample = source.sample
        for role, name in (("target", choices.target), ("weight", choices.weight)):
            if name is not None and name not in sample.column_names:
                raise ValueError(
                    f"{source.files[0]} has no column '{name}' for the {role}; "
                    f"it has {', '.join(sample.column_names[:30])}."
                )
        model = choices.model or likely_kind(sample[choices.target])
        kind = KINDS[model]
        target = kind.target(choices.target, sample[choices.target], choices.classes)
        taken = {choices.target, *([choices.weight] if choices.weight else [])}
        kinds = kinds_of(sample.schema, choices.features, choices.drop, taken)
        encoder = Encoder.begin(
            kinds, sample, cls._settings(choices, kind), lambda i: f"{source.name}, row {i + 1}"
        )
        estimator = kind.estimator(target, encoder.width, choices.parameters)
        return cls(model, choices, target, encoder, estimator, Record.none())

    @staticmethod
    def _settings(choices: Choices, kind: Kind) -> Settings:
        impute = choices.missing == "impute"
        most = choices.max_width + (2**choices.hash_bits if choices.hash_bits else 0)
        return Settings(impute, choices.hash_bits, most, not kind.widens())

    def fresh(self) -> "TableModel":
        """The same columns, units and settings before the first row."""
        estimator = self.kind.estimator(self.target, self.encoder.width, self.choices.parameters)
        return self._replace(
            encoder=self.encoder.forgetful(), estimator=estimator, record=Record.none()
        )

    @property
    def kind(self) -> Kind:
        return KINDS[self.model]

    def types(self) -> dict[str, str]:
        """How the columns beside the inputs must be read."""
        found = {self.choices.weight: "number"} if self.choices.weight else {}
        kind = self.target.type()
        return found if kind is None else found | {self.target.name: kind}

    def streams(self) -> bool:
        """Whether rows are learned as they come."""
        return self.kind.streams(self.choices.parameters)

    def merges(self) -> bool:
        """Whether models of shards can become one."""
        return self.kind.widens() and self.record.rows > 0

    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it knows."""
        weight = (self.choices.weight,) if self.choices.weight else ()
        return (*self.encoder.columns(), self.target.name, *weight)

    def read(self, table: pa.Table, place: Place, encoder: Encoder) -> Rows:
        """A piece of the stream as numbers; what it cannot be is refused with its place."""
        self._check_columns(table, place)
        y, there = self.target.read(table, place, skip=self.choices.skip_unlabelled)
        weight = weights(table, place, self.choices.weight) * there
        x, encoder, unseen = encoder.encode(table, place, learn=True)
        return Rows(table, x, y, weight, encoder, unseen)

    def inputs(self, table: pa.Table, place: Place) -> tuple[Any, dict[str, dict[str, int]]]:
        """Rows of x for predictions, and levels that are new."""
        table = self._completed(table, place)
        x, _, unseen = self.encoder.encode(table, place, learn=False)
        return x, unseen

    def learned(self, rows: Rows, start: int) -> "TableModel":
        """After a piece: first predict some of its rows, then learn from all of them."""
        record, estimator = self._predicted(rows), self.estimator
        if self._begun() and rows.x.shape[1] > estimator.n_features_in_:
            self._check_growth(rows.x.shape[1])
            estimator.widen(rows.x.shape[1])
        if np.any(rows.weight > 0):
            self._partial_fit(rows)
        record = record._replace(
            rows=record.rows + int(np.sum(rows.weight > 0)),
            weight=record.weight + float(rows.weight.sum()),
            sample=record.sample.add((rows.x, rows.y, rows.weight), start),
        )
        after = self._replace(encoder=rows.encoder, record=record)
        evidence = after.evidence() if self._begun() else None
        if evidence is None:
            return after
        return after._replace(
            record=record._replace(curve=record.curve.add(record.weight, evidence))
        )

    def revisits(self, n_rows: int) -> bool:
        """Whether so many rows, once they are streamed, are gone over again to the optimum."""
        if not (self.kind.widens() and self._begun()):
            return False
        return self.estimator.revisits(n_rows, self.encoder.width)

    def climbed(self, pieces: list[Rows]) -> "TableModel":
        """After the rows that were streamed are gone over again, to the optimum of the bound.

        The record stays that of the stream: its predictions were made before their rows were learned.
        """
        x, y, weight = joined(pieces, self.encoder.width)
        self.estimator.climb_to_optimum(x, y, sample_weight=weight)
        return self

    def fitted(self, pieces: list[Rows]) -> "TableModel":
        """After all rows at once."""
        x, y, weight = joined(pieces, self.encoder.width)
        x = x if self.kind.widens() or isinstance(x, np.ndarray) else x.toarray()
        self._check_classes(y)
        self.estimator.fit(x, y, sample_weight=weight)
        record = self.record._replace(
            rows=len(y),
            weight=float(weight.sum()),
            sample=self.record.sample.add((x, y, weight), 0),
        )
        return self._replace(record=record)

    def evidence(self) -> float | None:
        """The progressive log evidence of the rows as they came, where the estimator has it."""
        curve = self.record.curve
        if len(curve.total) and hasattr(self.estimator, "elbo_"):
            return float(curve.total[-1])  # of the stream, whatever the passes after it changed
        found = getattr(self.estimator, "log_evidence_", None)
        return None if found is None else found - self.unit_log_density()

    def unit_log_density(self) -> float:
        """What log densities of the rows change by where the target is standardised."""
        zero, one = self.target.restored(np.array([0.0, 1.0]))
        return self.record.weight * float(np.log(one - zero))

    def predict(self, x: Any, level: float) -> Prediction:
        return self.kind.predict(self.estimator, self.target, x, level)

    def _begun(self) -> bool:
        return hasattr(self.estimator, "n_features_in_")

    def _check_growth(self, width: int) -> None:
        """Refuse a full covariance that nobody asked for to become too large."""
        asked = "rank" in self.choices.parameters or self.estimator.rank is not None
        if width > MOST_FULL and not asked:
            raise ValueError(
                f"new levels have widened the rows to {width} places, too many for a full covariance; "
                "give a rank (--rank 20), or hash the levels (--hash-bits 12)."
            )

    def _check_classes(self, y: np.ndarray) -> None:
        """Refuse rows that lack a class: a model of all rows at once cannot know it."""
        if isinstance(self.target, Classes):
            lacking = set(range(len(self.target.labels))) - set(y.astype(int).tolist())
            if lacking:
                raise ValueError(f"no row has the class '{self.target.labels[lacking.pop()]}'.")

    def _partial_fit(self, rows: Rows) -> None:
        x = rows.x if self.kind.widens() or isinstance(rows.x, np.ndarray) else rows.x.toarray()
        extra = {}
        if isinstance(self.target, Classes):
            extra["classes"] = np.arange(len(self.target.labels))
        self.estimator.partial_fit(x, rows.y, sample_weight=rows.weight, **extra)

    def _predicted(self, rows: Rows) -> Record:
        """Some rows predicted before they are learned."""
        which = checked_rows(rows.weight)
        if not self._begun() or not len(which):
            return self.record
        x = rows.x[which][:, : self.estimator.n_features_in_]
        checks, made = checked(
            self.record.checks, self.kind, self.estimator, self.target, x, rows.y[which]
        )
        return self.record._replace(checks=checks, examples=self._examples(rows, which, made))

    def _examples(self, rows: Rows, which: np.ndarray, made: Prediction) -> tuple[dict, ...]:
        shown = rows.table.take(which[:EXAMPLES]).select(list(self.encoder.columns())[:EXAMPLES])
        observed = rows.table[self.target.name].take(which[:EXAMPLES]).to_pylist()
        return tuple(
            {
                "row": {k: _shown(v) for k, v in row.items()},
                "observed": label(seen),
                **said(made, i),
            }
            for i, (row, seen) in enumerate(zip(shown.to_pylist(), observed, strict=True))
        )

    def _check_columns(self, table: pa.Table, place: Place) -> None:
        for name in (*self.encoder.columns(), self.target.name):
            if name not in table.column_names:
                raise BadData(f"{place(0)}: there is no column '{name}', which the model needs.")

    def _completed(self, table: pa.Table, place: Place) -> pa.Table:
        """The table with columns it lacks as missing, where missing values are imputed."""
        for name in self.encoder.columns():
            if name in table.column_names:
                continue
            if self.choices.missing != "impute":
                raise BadData(
                    f"{place(0)}: there is no column '{name}', which the model needs; only a model fitted "
                    "with --missing impute can do without."
                )
            table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
        return table


def weights(table: pa.Table, place: Place, name: str | None) -> np.ndarray:
    """The weight of each row: 1, or a column of them."""
    if name is None:
        return np.ones(table.num_rows)
    if name not in table.column_names or not pa.types.is_floating(table[name].type):
        raise BadData(f"{place(0)}: the weight '{name}' must be a column of numbers.")
    weight = numbers(table[name])
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise BadData(
            f"{place(row)}: the weight '{name}' is {weight[row]:g}; weights must be 0 or more."
        )
    return weight


def said(made: Prediction, i: int) -> dict[str, Any]:
    """A prediction in numbers: of the second class of two, of the likeliest of several."""
    if made.mean.ndim == 1:
        which: Any = i
    else:
        which = (i, 1 if made.mean.shape[1] == 2 else int(np.argmax(made.mean[i])))
    found = {"predicted": float(made.mean[which])}
    if made.spread is None:
        return found
    end = i if made.spread.lower.ndim == 1 else which
    return found | {
        "lower": float(made.spread.lower[end]),
        "upper": float(made.spread.upper[end]),
    }


def joined(pieces: list[Rows], width: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """x, y and the weights of the rows of several pieces that have a weight; `pieces` is emptied."""
    y = np.concatenate([piece.y for piece in pieces])
    weight = np.concatenate([piece.weight for piece in pieces])
    if any(sp.issparse(piece.x) for piece in pieces):
        x: Any = sp.csr_array(sp.vstack([_csr(p.x, width) for p in pieces], format="csr"))
    else:
        x = np.zeros((len(y), width))
        for piece, end in zip(pieces, np.cumsum([len(p.y) for p in pieces]), strict=True):
            x[end - len(piece.y) : end, : piece.x.shape[1]] = piece.x
    pieces.clear()  # all rows are in memory twice by now
    some = weight > 0
    return (x, y, weight) if some.all() else (x[some], y[some], weight[some])


def _csr(x: Any, width: int) -> sp.csr_array:
    rows: Any = sp.csr_array(x)
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:60]
