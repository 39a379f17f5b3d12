"""Factor analysis of a table: its columns of numbers as a few factors and noise, in one pass.

A row z of the columns in their units is N(μ, F Fᵀ + diag ψ). A loading is the correlation of a column with
a factor, Fⱼₖ/√(Σⱼⱼ); the noise share of a column is ψⱼ/Σⱼⱼ, and what the factors hold of all columns is the
mean of the other shares. The factors are turned so that Fᵀ Ψ⁻¹ F is diagonal: given a row they are
independent, with standard deviations that are the same for all rows.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning

from kalvi import __version__
from kalvi.columns.encoder import Encoder, EncoderSettings, is_chosen, kinds_of
from kalvi.columns.numbers import Place
from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.numerics.precision import matching
from kalvi.readers.files import BadData
from kalvi.readers.source import Source
from kalvi.rules.factor_analysis.common import loading
from kalvi.streams import run
from kalvi.tabular import in_python
from kalvi.tabular.predict import Made, made
from kalvi.tabular.progressive import block_size, padded, scored_rows
from kalvi.tabular.record import Record
from kalvi.tabular.rows import Rows
from kalvi.tabular.summary import curve, file_names, summary
from kalvi.tabular.valid import (
    Rules,
    encoder_rules,
    estimator_rules,
    notation_rules,
    plain,
    record_rules,
    rules,
)

NUMERIC = ("number", "flag", "vector")
"""The kinds of columns that have factors."""
LISTED = 200
"""So many columns are listed of each factor."""
QUANTILES = (0.001, 0.01, 0.05, 0.5)
"""Of the log densities of the sample: what an outlier is."""
FIRST_ROWS = 64
"""Rows that are learned before any is judged."""
LARGEST = 1e100
"""Numbers beyond this cannot be squared in their own units."""


class FactorChoices(NamedTuple):
    """What a person decided about a factor analysis."""

    components: int
    method: str = "eigen"
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    missing: str = "error"
    raw: bool = False
    parameters: dict[str, Any] = {}  # noqa: RUF012 (of the estimator; never changed)

    @property
    def advice(self) -> str:
        """What a user can do about such entries."""
        return (
            "have them counted as missing (--missing impute), or leave the column out (--drop NAME)"
        )

    def strays(self, name: str) -> str:
        """What becomes of entries of a column that are not of its kind: `readers.layout.ReadOptions`."""
        if not is_chosen(name, self.features, self.drop):
            return "keep"
        return "missing" if self.missing == "impute" else "refuse"


class FactorModel(NamedTuple):
    """Encoder and estimator of a table, and the record of the pass."""

    model: str
    choices: FactorChoices
    encoder: Encoder
    estimator: FactorAnalysis
    record: Record
    left_out: tuple[tuple[str, str], ...]  # columns that are no numbers, and what they are
    run: str = ""  # the number of the run that it came out of
    notation: dict[str, str] = {}  # noqa: RUF012 (columns written in other than the plain way)

    @classmethod
    def begin(cls, source: Source, choices: FactorChoices) -> "FactorModel":
        """A model before its first row, with the units of the source's sample."""
        kinds = kinds_of(source.sample.schema, choices.features, choices.drop, set())
        for name in choices.features:
            if kinds.get(name, "number") not in NUMERIC:
                raise ValueError(f"'{name}' is a {kinds[name]}; factors need columns of numbers.")
        numeric = {name: kind for name, kind in kinds.items() if kind in NUMERIC}
        if not numeric:
            raise ValueError(
                f"{source.files[0]} has no columns of numbers among {', '.join(list(kinds)[:30])}."
            )
        left_out = tuple((name, kind) for name, kind in kinds.items() if name not in numeric)
        encoder = Encoder.begin(
            numeric, source.sample, EncoderSettings(choices.missing == "impute")
        )
        estimator = _estimator(choices)
        if choices.components > encoder.numbers.width:
            raise ValueError(
                f"{choices.components} factors of {encoder.numbers.width} columns of numbers are too "
                "many; choose fewer with --components."
            )
        begun = cls("factor", choices, encoder, estimator, Record.none(), left_out)
        return begun._replace(notation=source.words(begun.columns()))

    def transform(self, frame: Any) -> np.ndarray:
        """The expected factors of each row of a frame."""
        return in_python.transform(self, frame)

    def score_samples(self, frame: Any) -> np.ndarray:
        """The log density of each row of a frame."""
        return in_python.score_samples(self, frame)

    def predict_table(self, frame: Any) -> pa.Table:
        """The columns that `kalvi predict` writes for the rows of a frame."""
        return in_python.prediction_table(self, frame, 0.95)

    def summary(self) -> dict[str, Any]:
        """What `kalvi inspect` says: a dict that prints as its text."""
        return in_python.summarised(self, False)

    def __repr__(self) -> str:
        return in_python.factor_repr(self)

    def types(self) -> dict[str, str]:
        return {}

    def streams(self) -> bool:
        """Whether rows are learned as they come."""
        return self.choices.method != "batch_em"

    def revisits(self, n_rows: int) -> bool:
        """Rows that are streamed are seen once."""
        return False

    def climbed(self, pieces: list[Rows]) -> "FactorModel":
        raise TypeError("factors of a stream have no further passes")

    def merges(self) -> bool:
        """Factors of shards are not combined."""
        return False

    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it knows."""
        return self.encoder.columns()

    def names(self) -> list[str]:
        """What each number of a row is."""
        return self.encoder.numbers.slot_names()

    def read(self, table: pa.Table, place: Place, encoder: Encoder) -> Rows:
        """A piece of the stream as numbers; what it cannot be is refused with its place."""
        self._check_columns(table, place)
        _, encoder, unseen = encoded = encoder.encode(table, place, learn=True)
        x = self._numbers(encoded.x, encoder, table, place)
        n = table.num_rows
        return Rows(table, x, np.zeros(n), np.ones(n), encoder, unseen)

    def inputs(self, table: pa.Table, place: Place) -> tuple[np.ndarray, dict[str, dict[str, int]]]:
        """Rows of numbers to find the factors of; numbers have no levels that could be new."""
        self._check_columns(table, place)
        encoded = self.encoder.encode(table, place, learn=False)
        return self._numbers(encoded.x, self.encoder, table, place), {}

    def learned(self, rows: Rows, start: int) -> "FactorModel":
        """After a piece: block by block first the log densities of rows, then learn from them."""
        record, first, n = self.record, 0, len(rows.x)
        while first < n:
            size = block_size(record.rows, FIRST_ROWS, n - first)
            record = self._judged(record, rows.x[first : first + size])
            self.estimator.partial_fit(rows.x[first : first + size])
            record = record._replace(rows=record.rows + size, weight=record.weight + size)
            first += size
        sample = record.sample.add((rows.x, rows.y, rows.weight), start)
        return self._replace(encoder=rows.encoder, record=record._replace(sample=sample))

    def _judged(self, record: Record, x: np.ndarray) -> Record:
        """The record with the log densities of rows that are still to be learned."""
        which = scored_rows(record.rows, np.ones(len(x)), x.shape[1])
        if not len(which):
            return record
        x, _, _ = padded(x[which], which, which)
        before = record.curve.rows[-1:].sum(), record.curve.total[-1:].sum()
        found = len(which), self._density(x)[: len(which)].sum()
        added = (float(a + b) for a, b in zip(before, found, strict=True))
        return record._replace(curve=record.curve.add(*added))

    def _density(self, x: np.ndarray) -> np.ndarray:
        density = self.estimator.score_samples(x)
        if not np.all(np.isfinite(density)):
            raise ValueError(
                f"what {self.choices.method} has learned is no distribution any more: its steps are too "
                "long for these rows. Leave out --set, or use --method eigen."
            )
        return density

    def fitted(self, pieces: list[Rows]) -> "FactorModel":
        """After all rows at once."""
        x = np.concatenate([piece.x for piece in pieces])
        rows = pieces[-1]._replace(x=x, y=np.zeros(len(x)), weight=np.ones(len(x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it
            self.estimator.fit(x)
        n, sample = len(x), self.record.sample.add((x, rows.y, rows.weight), 0)
        record = self.record._replace(rows=n, weight=float(n), sample=sample)
        return self._replace(encoder=rows.encoder, record=record)

    def finished(self) -> "FactorModel":
        """When all rows are learned: with the log densities of the sample, without its rows."""
        record = self.record._replace(densities=_densities(self))
        return self._replace(record=record.without_rows())

    def _numbers(
        self, x: np.ndarray, encoder: Encoder, table: pa.Table, place: Place
    ) -> np.ndarray:
        """The numbers in their units, or as they came; the centre of the first rows where missing."""
        numbers = encoder.numbers
        if not self.choices.raw:
            return x[:, : numbers.width]  # without the indicators of what was missing
        raw = numbers.raw(table, place)
        bad = np.argwhere(np.abs(raw) > LARGEST)
        if bad.size:
            row, slot = bad[0]
            raise BadData(
                f"{place(int(row))}: column '{self.names()[slot]}' is {raw[row, slot]:g}, too large "
                "for --raw; leave that out, or scale the column."
            )
        return np.where(np.isnan(raw), np.nan_to_num(numbers.centre), raw)

    def _check_columns(self, table: pa.Table, place: Place) -> None:
        for name in self.columns():
            if name not in table.column_names:
                raise BadData(f"{place(0)}: there is no column '{name}', which the model needs.")


def _estimator(choices: FactorChoices) -> FactorAnalysis:
    """The estimator before any row, its parameters checked."""
    own = {"method": choices.method, "random_state": 0} | choices.parameters
    try:
        return FactorAnalysis(choices.components, **own)
    except TypeError:
        known = sorted(set(FactorAnalysis().get_params()) - {"n_components", "verbose"})
        unknown = ", ".join(sorted(set(choices.parameters) - set(known)))
        raise ValueError(
            f"a factor analysis has no parameter {unknown}; it has {', '.join(known)}."
        ) from None


@rules.register(FactorModel)
def _rules(model: FactorModel) -> Rules:
    """What must hold of a model out of a file."""
    choices, encoder, known = model.choices, model.encoder, vars(model.estimator)
    yield "the model", model.model == "factor"
    yield "the settings", plain(choices.parameters) and choices.missing in ("error", "impute")
    yield "the method", choices.method == known["method"]
    yield "the factors", choices.components == known["n_components"] >= 1
    yield from estimator_rules(model.estimator)
    yield from encoder_rules(encoder)
    yield from notation_rules(model)
    width, rows = encoder.numbers.width, model.record.rows
    yield "the columns", not encoder.groups and choices.components <= width
    yield from record_rules(model.record, width)
    yield "the rows", bool(rows) == ("n_features_in_" in known)
    yield "the width", not rows or known["n_features_in_"] == width


@made.register(FactorModel)
def _made(model: FactorModel, table: pa.Table, place: Place, level: float) -> Made:
    """The expected factors of each row, and its log density."""
    x, _ = model.inputs(table, place)
    scores, density = model.estimator.transform(x), model.estimator.score_samples(x)
    columns = {f"factor_{k + 1}": scores[:, k] for k in range(scores.shape[1])}
    found = pa.table(columns | {"log_density": density})
    return Made(found, {}, len(x), float(density.sum()), "mean_log_density")


@summary.register(FactorModel)
def _summary(model: FactorModel, name: str, diagnosis: Any = None) -> dict[str, Any]:
    """All that a person may want to know of a factor analysis."""
    record, fitted = model.record, model.record.rows > 0
    seen = record.curve
    return {
        "kalvi": __version__,
        "name": name,
        "model": model.model,
        "components": model.choices.components,
        "method": model.choices.method,
        "rows": record.rows,
        "seconds": round(record.seconds, 3),
        "parameters": model.encoder.numbers.width * (model.choices.components + 2),
        "log_density": float(seen.total[-1] / seen.rows[-1]) if len(seen.rows) else None,
        "sample": (record.densities or _densities(model)) if fitted else None,
        "explained": float(1 - _shares(model).noise.mean()) if fitted else None,
        "factors": factors(model) if fitted else [],
        "noise": noise(model) if fitted else [],
        "files": file_names(record),
        "settings": _settings(model),
        "columns": model.encoder.described(),
        "left_out": dict(model.left_out),
        "curve": curve(record),
        "warnings": _warnings(model),
    }


class Shares(NamedTuple):
    """Correlations of the columns with the factors, and the share of noise in each column."""

    loadings: np.ndarray
    noise: np.ndarray


def _shares(model: FactorModel) -> Shares:
    factor, diag = model.estimator.components_.T, model.estimator.noise_variance_
    variance = np.sum(factor**2, axis=1) + diag
    return Shares(factor / np.sqrt(variance)[:, None], diag / variance)


def factors(model: FactorModel) -> list[dict[str, Any]]:
    """For each factor: its share of the variance, the deviation of its scores, the strongest columns."""
    loadings, names = _shares(model).loadings, model.names()
    found = []
    for k, std in enumerate(score_stds(model.estimator)):
        order = np.argsort(-np.abs(loadings[:, k]), kind="stable")[:LISTED]
        found.append(
            {
                "name": f"factor_{k + 1}",
                "share": float(np.mean(loadings[:, k] ** 2)),
                "sd": float(std),
                "loadings": [[names[j], float(loadings[j, k])] for j in order],
            }
        )
    return found


def noise(model: FactorModel) -> list[list[Any]]:
    """The share of each column that no factor explains, the largest first."""
    share, names = _shares(model).noise, model.names()
    order = np.argsort(-share, kind="stable")
    return [[names[j], float(share[j])] for j in order[:LISTED]]


def score_stds(estimator: FactorAnalysis) -> np.ndarray:
    """Standard deviations of the factors given a row, whichever it is."""
    spread = estimator.gaussian_.covariance
    with matching(estimator.dtype):
        _, cov = run.call(loading, spread.factor, spread.diag, spread.factor.T[:1])
    return np.sqrt(np.diag(np.asarray(cov)))


def _densities(model: FactorModel) -> dict[str, Any] | None:
    """Log densities of the sample's rows under the model that has learned from them, if it has a sample."""
    if model.record.sample.x is None:
        return None
    rows = model.record.sample.x.toarray()
    density = model.estimator.score_samples(rows)
    found = np.quantile(density, QUANTILES)
    return {
        "rows": len(rows),
        "log_density": float(density.mean()),
        "quantiles": [[p, float(q)] for p, q in zip(QUANTILES, found, strict=True)],
    }


def _settings(model: FactorModel) -> dict[str, Any]:
    choices = model.choices._asdict()
    parameters = choices.pop("parameters")
    return {k: v for k, v in choices.items() if v not in (None, (), False)} | parameters


def _warnings(model: FactorModel) -> list[str]:
    """What a person should look into."""
    still = [
        column["name"]
        for column in model.encoder.described()
        if model.record.rows and column["kind"] == "number" and not column.get("std", 0.0)
    ]
    found = [f"'{name}' never varies; leave it out with --drop {name}." for name in still]
    estimator = model.estimator
    if not model.streams() and model.record.rows and estimator.n_iter_ >= estimator.max_iter:
        found.append(
            f"the likelihood had not converged after {estimator.n_iter_} passes; "
            "raise --set max_iter=..."
        )
    return found
