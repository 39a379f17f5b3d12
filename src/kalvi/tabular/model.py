"""A model of a table: how columns become numbers, what was learned from them, and what the pass said."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kalvi.columns.encoder import Encoder, EncoderSettings, is_chosen, kinds_of
from kalvi.columns.numbers import Place
from kalvi.columns.targets import Classes, Target, label
from kalvi.readers.files import BadData
from kalvi.readers.source import Source
from kalvi.tabular.kinds import KINDS, Kind, Prediction, likely_kind
from kalvi.tabular.progressive import ALL_ROWS, block_size, judged, padded, scored_rows
from kalvi.tabular.reached import measured, one_pass_error, reached
from kalvi.tabular.record import EXAMPLES, Record
from kalvi.tabular.rows import Rows, joined, weights

LEVEL = 0.95
"""Of the intervals of examples."""
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
    keep_rows: bool = False  # some rows stay in the model: examples, and a sample for the diagnosis
    diagnose: bool = False  # the diagnosis is made when all rows are learned

    @property
    def advice(self) -> str:
        """What a user can do about such entries."""
        return (
            "have such entries counted as missing (--missing impute, or --skip-unlabelled for the target), "
            "or read the column otherwise (--as NAME=category, --drop NAME)"
        )

    def strays(self, name: str) -> str:
        """What becomes of entries of a column that are not of its kind: `readers.layout.ReadOptions`."""
        if name == self.target:
            return "missing" if self.skip_unlabelled else "refuse"
        if name != self.weight and not is_chosen(name, self.features, self.drop):
            return "keep"
        return "missing" if self.missing == "impute" and name != self.weight else "refuse"


class TableModel(NamedTuple):
    """Encoder, target and estimator of a table, and the record of the pass."""

    model: str
    choices: Choices
    target: Target
    encoder: Encoder
    estimator: Any
    record: Record
    run: str = ""  # the number of the run that it came out of
    notation: dict[str, str] = {}  # noqa: RUF012 (columns written in other than the plain way)

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
        begun = cls(model, choices, target, encoder, estimator, Record.none())
        if choices.diagnose and not begun.has_diagnosis():
            raise ValueError(
                "--diagnose is for logistic, linear and poisson models that do not forget "
                "(forgetting=1, process_noise=0); leave it out."
            )
        return begun._replace(notation=source.words(begun.columns()))

    @staticmethod
    def _settings(choices: Choices, kind: Kind) -> EncoderSettings:
        impute = choices.missing == "impute"
        most = choices.max_width + (2**choices.hash_bits if choices.hash_bits else 0)
        return EncoderSettings(impute, choices.hash_bits, most, not kind.widens())

    def fresh(self, *, keep_rows: bool = False, diagnose: bool = False) -> "TableModel":
        """The same columns, units and settings before the first row."""
        estimator = self.kind.estimator(self.target, self.encoder.width, self.choices.parameters)
        choices = self.choices._replace(keep_rows=keep_rows, diagnose=diagnose)
        return self._replace(
            choices=choices,
            encoder=self.encoder.forgetful(),
            estimator=estimator,
            record=Record.none(),
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
        """After a piece: block by block predicted, then learned."""
        if self._begun() and rows.x.shape[1] > self.estimator.n_features_in_:
            self._check_growth(rows.x.shape[1])
            self.estimator.widen(rows.x.shape[1])
        model, first, n = self, 0, len(rows.y)
        while first < n:
            size = block_size(model.record.rows, self.kind.first_rows(), n - first)
            model = model._learned_block(rows.part(first, first + size))
            first += size
        record = model.record
        if self._samples():
            sample = record.sample.add((rows.x, rows.y, rows.weight), start)
            record = record._replace(sample=sample)
        return model._replace(encoder=rows.encoder, record=record)

    def _learned_block(self, rows: Rows) -> "TableModel":
        """After a block of rows that is predicted first, and a point of the learning curve."""
        if not np.any(rows.weight > 0):
            return self
        record = self._predicted(rows) if self._begun() else self.record
        self._partial_fit(rows)
        record = record.learned(self.target, rows.y, rows.weight)
        after = self._replace(record=record)
        evidence = after.evidence()
        if evidence is None:
            return after
        curve = record.curve.add(record.weight, evidence)
        return after._replace(record=record._replace(curve=curve))

    def _samples(self) -> bool:
        """Whether rows are drawn for the diagnosis."""
        return (self.choices.keep_rows or self.choices.diagnose) and self.has_diagnosis()

    def has_diagnosis(self) -> bool:
        """Whether its Gaussian can be compared with a posterior: not that of a model that forgets."""
        return self.kind.widens() and _keeps_all(self.estimator)

    def finished(self) -> "TableModel":
        """When all rows are learned: with the diagnosis if asked for, without rows unless they stay."""
        found = self.diagnosed() if self.choices.diagnose else None
        record = self.record._replace(diagnosis=found)
        return self._replace(record=record if self.choices.keep_rows else record.without_rows())

    def diagnosed(self, draws: int = 1000) -> dict[str, Any] | None:
        """How far the Gaussian is from the posterior of the sample's rows; None without a sample."""
        sample = self.record.sample
        if not self.has_diagnosis() or sample.x is None or not len(sample.y):
            return None
        x = sample.x.copy()
        x.resize(x.shape[0], self.estimator.n_features_in_)
        found = self.estimator.diagnose(
            x, sample.y, sample_weight=sample.weight, n_draws=draws, random_state=0
        )
        how, error = reached(self), None
        if how is not None and how["how"] == "one pass":
            error = one_pass_error(self.estimator, (x, sample.y, sample.weight))
        return {
            "shift": float(found.shift),
            "one_pass": error and error | {"text": measured(error)},
            "pareto_k": float(found.pareto_k),
            "verdict": str(found.verdict),
            "draws": int(found.n_draws),
            "rows": int(found.n_rows),
            "ess": float(found.ess),
        }

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
        record = self.record.learned(self.target, y, weight)
        if self._samples():
            record = record._replace(sample=record.sample.add((x, y, weight), 0))
        some = np.arange(min(len(y), ALL_ROWS))
        found = judged(self, x[some], y[some])
        record = record.predicted(self.target, found, y[some], some)
        return self._replace(record=record._replace(in_sample=True, losses=None))

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

    def prediction(self, x: Any, level: float) -> Prediction:
        """What is said of rows of numbers, with intervals of this level."""
        return self.kind.predict(self.estimator, self.target, x, level)

    @property
    def classes_(self) -> np.ndarray:
        """The labels of the classes, in the order of the columns of `predict_proba`."""
        if not isinstance(self.target, Classes):
            raise AttributeError(f"'{self.target.name}' is a number and has no classes_.")
        return self.target.values()

    def predict(self, frame: Any, return_std: bool = False) -> Any:
        """The likeliest class of each row of a frame; of a number its mean and, if asked, its deviation."""
        return _in_python().predict(self, frame, return_std)

    def predict_proba(self, frame: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`, for each row of a frame."""
        return _in_python().predict_proba(self, frame)

    def predict_interval(self, frame: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the intervals that `kalvi predict` writes; of classes, a column for each."""
        return _in_python().predict_interval(self, frame, level)

    def predict_table(self, frame: Any, level: float = 0.95) -> pa.Table:
        """The columns that `kalvi predict` writes for the rows of a frame."""
        return _in_python().prediction_table(self, frame, level)

    def summary(self, diagnose: bool = False) -> dict[str, Any]:
        """What `kalvi inspect` says: a dict that prints as its text."""
        return _in_python().summarised(self, diagnose)

    def __repr__(self) -> str:
        return _in_python().table_repr(self)

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
        x, y, weight = padded(x, rows.y, rows.weight)
        self.estimator.partial_fit(x, y, sample_weight=weight, **extra)

    def _predicted(self, rows: Rows) -> Record:
        """The record with predictions of rows that are still to be learned."""
        learned = self.record.rows
        inputs = self.encoder.numbers.width + len(self.encoder.groups)
        which = scored_rows(learned, rows.weight, inputs)
        if not len(which):
            return self.record
        found = judged(self, rows.x[which], rows.y[which])
        record = self.record.predicted(self.target, found, rows.y[which], learned + which)
        if not self.choices.keep_rows:
            return record
        return record._replace(examples=self._examples(rows, which))

    def _examples(self, rows: Rows, which: np.ndarray) -> tuple[dict, ...]:
        """Some rows with what was predicted for them and what came."""
        which = which[np.linspace(0, len(which) - 1, min(EXAMPLES, len(which))).astype(int)]
        made = self.prediction(rows.x[which], LEVEL)
        shown = rows.table.take(which).select(list(self.encoder.columns())[:EXAMPLES])
        observed = rows.table[self.target.name].take(which).to_pylist()
        return tuple(
            {
                "row": {k: _shown(v) for k, v in row.items()},
                "observed": label(seen),
                **said(made, i, self.target),
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


def _in_python() -> Any:
    from kalvi.tabular import in_python  # which needs this module

    return in_python


def said(made: Prediction, i: int, target: Target) -> dict[str, Any]:
    """A prediction in numbers, and of which class they are: the second of two, the likeliest of several."""
    found: dict[str, Any] = {}
    which: Any = i
    if isinstance(target, Classes):
        k = 1 if made.mean.shape[1] == 2 else int(np.argmax(made.mean[i]))
        which, found = (i, k), {"class": target.labels[k]}
    found["predicted"] = float(made.mean[which])
    if made.spread is None:
        return found
    end = i if made.spread.lower.ndim == 1 else which
    return found | {
        "lower": float(made.spread.lower[end]),
        "upper": float(made.spread.upper[end]),
    }


def _keeps_all(estimator: Any) -> bool:
    return estimator.forgetting == 1 and estimator.process_noise == 0


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:60]
