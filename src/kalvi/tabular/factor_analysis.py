"""Factor analysis of a table: its columns of numbers explained by a few factors and noise, in one pass.

A row z of standardised numbers is N(μ, F Fᵀ + diag ψ) = N(μ, Σ). A loading is the correlation of a column
with a factor, Fⱼₖ/√(Σⱼⱼ). The noise share of a column is ψⱼ/Σⱼⱼ; the mean of 1 − ψⱼ/Σⱼⱼ is the share of the
variance that the factors explain. The factors are rotated so that Fᵀ Ψ⁻¹ F is diagonal: given a row they
are independent, with standard deviations that are the same for all rows.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning

from kalvi import __version__
from kalvi.columns.encoder import Encoder, EncoderSettings, is_chosen, kinds_of
from kalvi.estimators.factor_analysis import FactorAnalysis
from kalvi.numerics.precision import matching_precision
from kalvi.readers.errors import counted
from kalvi.readers.files import BadData, RowLocator
from kalvi.readers.source import Source
from kalvi.rules.factor_analysis.factor_model import hidden_moments
from kalvi.streams import run
from kalvi.tabular import integrity
from kalvi.tabular.choices import new_estimator
from kalvi.tabular.predictions import RowPredictions, UnseenLevels
from kalvi.tabular.progressive import padded, scored_rows
from kalvi.tabular.record import Record
from kalvi.tabular.rows import Rows, check_columns
from kalvi.tabular.summary import curve_summary, file_names
from kalvi.tabular.table_model import RowModel

NUMERIC = ("number", "flag", "vector")
"""The types of columns that a factor analysis takes."""
LISTED = 200
"""The most columns that are listed for each factor."""
QUANTILES = (0.001, 0.01, 0.05, 0.5)
"""Quantiles of the log densities of the sample, to tell which rows are outliers."""
LARGEST = 1e100
"""Larger numbers are refused if they are not standardised, because their squares might overflow."""


class FactorChoices(NamedTuple):
    """The user's choices for a factor analysis."""

    components: int
    method: str = "eigen"
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    missing: str = "error"
    raw: bool = False
    parameters: dict[str, Any] = {}  # noqa: RUF012 (of the estimator; never changed)

    @property
    def advice(self) -> str:
        """Advice for the user about entries that do not fit the type of their column."""
        return (
            "have them counted as missing (--missing impute), or leave the column out (--drop NAME)"
        )

    def on_invalid(self, name: str) -> str:
        """The treatment of entries that do not fit the type of a column: "keep", "missing" or "refuse"."""
        if not is_chosen(name, self.features, self.drop):
            return "keep"
        return "missing" if self.missing == "impute" else "refuse"


class FactorFields(NamedTuple):
    """The fields that are saved: encoder, estimator, and the record of the pass."""

    model: str
    choices: FactorChoices
    encoder: Encoder
    estimator: FactorAnalysis
    record: Record
    left_out: tuple[tuple[str, str], ...]  # the columns that hold no numbers, and their types
    run: str = ""
    notation: dict[str, str] = {}  # noqa: RUF012 (never changed)


class FactorModel(RowModel, FactorFields):
    """A factor analysis of the columns of numbers of a table."""

    __slots__ = ()

    first_rows = 64

    @classmethod
    def begin(cls, source: Source, choices: FactorChoices) -> "FactorModel":
        """A model before its first row; the units are those of the source's sample."""
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
        fixed = {"n_components": choices.components, "method": choices.method}
        estimator = new_estimator(
            FactorAnalysis, {"random_state": 0, **choices.parameters}, verbose=False, **fixed
        )
        if choices.components > encoder.numbers.width:
            raise ValueError(
                f"{choices.components} factors of {encoder.numbers.width} columns of numbers are too "
                "many; choose fewer with --components."
            )
        begun = cls("factor", choices, encoder, estimator, Record.none(), left_out)
        return begun._replace(notation=source.words(begun.columns()))

    def transform(self, frame: Any) -> np.ndarray:
        """The expected factors of each row of a frame."""
        return self.in_pieces(frame, self.estimator.transform)

    def score_samples(self, frame: Any) -> np.ndarray:
        """The log density of each row of a frame."""
        return self.in_pieces(frame, self.estimator.score_samples)

    def __repr__(self) -> str:
        columns = counted(len(self.encoder.columns()), "column")
        factors = counted(self.choices.components, "factor")
        rows = counted(self.record.rows, "row")
        return f"<kalvi factor analysis: {factors} of {columns}, {rows}>"

    def types_beside_inputs(self) -> dict[str, str]:
        return {}

    def text_columns(self) -> tuple[str, ...]:
        return ()

    def streams(self) -> bool:
        return self.choices.method != "batch_em"

    def revisits(self, n_rows: int) -> bool:
        return False

    def columns(self) -> tuple[str, ...]:
        return self.encoder.columns()

    def names(self) -> list[str]:
        """The name of each feature."""
        return self.encoder.numbers.slot_names()

    def read(self, table: pa.Table, locate: RowLocator, encoder: Encoder) -> Rows:
        check_columns(table, locate, self.columns())
        _, encoder, unseen = encoded = encoder.encode(table, locate, learn=True)
        x = self._numbers(encoded.x, encoder, table, locate)
        n = table.num_rows
        return Rows(table, x, np.zeros(n), np.ones(n), encoder, unseen)

    def inputs(self, table: pa.Table, locate: RowLocator) -> tuple[Any, UnseenLevels]:
        """The features of rows to predict; there are no levels that could be new."""
        check_columns(table, locate, self.columns())
        encoded = self.encoder.encode(table, locate, learn=False)
        return self._numbers(encoded.x, self.encoder, table, locate), {}

    def learned_block(self, rows: Rows) -> "FactorModel":
        """The model after a block of rows, which is scored before it is learned."""
        record, n = self._score_block(rows.x), len(rows.x)
        self.estimator.partial_fit(rows.x)
        return self._replace(record=record._replace(rows=record.rows + n, weight=record.weight + n))

    def samples(self) -> bool:
        return True

    def _score_block(self, x: np.ndarray) -> Record:
        """The record with the log densities of rows that have not been learned yet."""
        record = self.record
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

    def learn_together(self, pieces: list[Rows]) -> "FactorModel":
        """The model of all rows, learned together."""
        x = np.concatenate([piece.x for piece in pieces])
        rows = pieces[-1]._replace(x=x, y=np.zeros(len(x)), weight=np.ones(len(x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it
            self.estimator.fit(x)
        n, sample = len(x), self.record.sample.add((x, rows.y, rows.weight), 0)
        record = self.record._replace(rows=n, weight=float(n), sample=sample)
        return self._replace(encoder=rows.encoder, record=record)

    def finished(self) -> "FactorModel":
        """The model at the end of a run, with the log densities of the sample but without its rows."""
        record = self.record._replace(densities=self._densities())
        return self._replace(record=record.without_rows())

    def predicted(self, table: pa.Table, locate: RowLocator, level: float) -> RowPredictions:
        """The expected factors of each row, and its log density."""
        x, _ = self.inputs(table, locate)
        scores, density = self.estimator.transform(x), self.estimator.score_samples(x)
        columns = {f"factor_{k + 1}": scores[:, k] for k in range(scores.shape[1])}
        found = pa.table(columns | {"log_density": density})
        return RowPredictions(found, {}, len(x), float(density.sum()), "mean_log_density")

    def outline(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "rows": self.record.rows,
            "columns": self.encoder.describe(),
            "left_out": dict(self.left_out),
        }

    def describe(self, name: str, *, diagnose: bool = False) -> dict[str, Any]:
        record, learned = self.record, self.record.rows > 0
        seen = record.curve
        return {
            "kalvi": __version__,
            "name": name,
            **self.outline(),
            "components": self.choices.components,
            "method": self.choices.method,
            "seconds": round(record.seconds, 3),
            "parameters": self.encoder.numbers.width * (self.choices.components + 2),
            "log_density": float(seen.total[-1] / seen.rows[-1]) if len(seen.rows) else None,
            "sample": (record.densities or self._densities()) if learned else None,
            "explained": float(1 - _shares(self.estimator).noise.mean()) if learned else None,
            "factors": describe_factors(self.estimator, self.names()) if learned else [],
            "noise": describe_noise(self.estimator, self.names()) if learned else [],
            "files": file_names(record),
            "settings": self._settings(),
            "curve": curve_summary(record),
            "warnings": self._warnings(),
        }

    def rules(self) -> integrity.Rules:
        choices, encoder, known = self.choices, self.encoder, vars(self.estimator)
        yield "the model", self.model == "factor"
        right = integrity.is_json(choices.parameters) and choices.missing in ("error", "impute")
        yield "the settings", right
        yield "the method", choices.method == known["method"]
        yield "the factors", choices.components == known["n_components"] >= 1
        yield from integrity.estimator_rules(self.estimator)
        yield from integrity.encoder_rules(encoder)
        yield from integrity.notation_rules(self.notation, self.columns())
        width = encoder.numbers.width
        yield "the columns", not encoder.groups and choices.components <= width
        yield from integrity.record_rules(self.record, width)
        yield from integrity.fitted_rules(self.estimator, self.record.rows, width)

    def _densities(self) -> dict[str, Any] | None:
        """The log densities of the sample's rows under the fitted model; None without a sample."""
        if self.record.sample.x is None:
            return None
        rows = self.record.sample.x.toarray()
        density = self.estimator.score_samples(rows)
        found = np.quantile(density, QUANTILES)
        return {
            "rows": len(rows),
            "log_density": float(density.mean()),
            "quantiles": [[p, float(q)] for p, q in zip(QUANTILES, found, strict=True)],
        }

    def _settings(self) -> dict[str, Any]:
        choices = self.choices._asdict()
        parameters = choices.pop("parameters")
        return {k: v for k, v in choices.items() if v not in (None, (), False)} | parameters

    def _warnings(self) -> list[str]:
        """Warnings about the fit, as sentences."""
        learned, estimator = self.record.rows > 0, self.estimator
        still = [
            column["name"]
            for column in self.encoder.describe()
            if learned and column["kind"] == "number" and not column.get("std", 0.0)
        ]
        found = [f"'{name}' never varies; leave it out with --drop {name}." for name in still]
        if learned and not self.streams() and estimator.n_iter_ >= estimator.max_iter:
            found.append(
                f"the likelihood had not converged after {estimator.n_iter_} passes; "
                "raise --set max_iter=..."
            )
        return found

    def _numbers(
        self, x: np.ndarray, encoder: Encoder, table: pa.Table, locate: RowLocator
    ) -> np.ndarray:
        """The numbers, standardised unless the user wants them raw; the centre where one is missing."""
        numbers = encoder.numbers
        if not self.choices.raw:
            return x[:, : numbers.width]  # without the indicators of what was missing
        raw = numbers.raw(table, locate)
        bad = np.argwhere(np.abs(raw) > LARGEST)
        if bad.size:
            row, slot = bad[0]
            raise BadData(
                f"{locate(int(row))}: column '{self.names()[slot]}' is {raw[row, slot]:g}, too large "
                "for --raw; leave that out, or scale the column."
            )
        return np.where(np.isnan(raw), np.nan_to_num(numbers.centre), raw)


class Shares(NamedTuple):
    """The correlations of columns with factors, and the noise share of each column."""

    loadings: np.ndarray
    noise: np.ndarray


def _shares(estimator: FactorAnalysis) -> Shares:
    factor, diag = estimator.components_.T, estimator.noise_variance_
    variance = np.sum(factor**2, axis=1) + diag
    return Shares(factor / np.sqrt(variance)[:, None], diag / variance)


def describe_factors(estimator: FactorAnalysis, names: list[str]) -> list[dict[str, Any]]:
    """For each factor, its share of the variance, the deviation of its scores, and the largest loadings."""
    loadings = _shares(estimator).loadings
    found = []
    for k, std in enumerate(score_stds(estimator)):
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


def describe_noise(estimator: FactorAnalysis, names: list[str]) -> list[list[Any]]:
    """The noise share of each column, the largest first."""
    share = _shares(estimator).noise
    order = np.argsort(-share, kind="stable")
    return [[names[j], float(share[j])] for j in order[:LISTED]]


def score_stds(estimator: FactorAnalysis) -> np.ndarray:
    """Standard deviations of the factors given a row, the same for every row."""
    spread = estimator.gaussian_.covariance
    with matching_precision(estimator.dtype):
        _, cov = run.call(hidden_moments, spread.factor, spread.diag, spread.factor.T[:1])
    return np.sqrt(np.diag(np.asarray(cov)))
