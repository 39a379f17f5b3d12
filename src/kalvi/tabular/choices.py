"""The user's choices for a model with a target, and what is chosen where the user said nothing."""

from typing import Any, NamedTuple

import pyarrow as pa

from kalvi.columns.encoder import EncoderSettings, is_chosen
from kalvi.columns.targets import MOST_CLASSES, Classes, Numbers, Target, distinct


class Choices(NamedTuple):
    """The target, the columns to use, the treatment of missing values, and the estimator's parameters."""

    target: str
    model: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None
    time: str | None = None  # a column of times, by which coefficients drift
    classes: tuple[str, ...] = ()
    missing: str = "error"
    skip_unlabelled: bool = False
    hash_bits: int | None = None
    max_width: int = 2**20
    parameters: dict[str, Any] = {}  # noqa: RUF012 (of the estimator; never changed)
    keep_rows: bool = False  # keep some rows in the model: examples, and a sample for the diagnosis
    diagnose: bool = False  # make the diagnosis when all rows are learned

    @property
    def advice(self) -> str:
        """Advice for the user about entries that do not fit the type of their column."""
        return (
            "have such entries counted as missing (--missing impute, or --skip-unlabelled for the target), "
            "or read the column otherwise (--as NAME=category, --drop NAME)"
        )

    def on_invalid(self, name: str) -> str:
        """The treatment of entries that do not fit the type of a column: "keep", "missing" or "refuse"."""
        if name == self.target:
            return "missing" if self.skip_unlabelled else "refuse"
        beside = name in self.beside()
        if not beside and not is_chosen(name, self.features, self.drop):
            return "keep"
        return "missing" if self.missing == "impute" and not beside else "refuse"

    def beside(self) -> tuple[str, ...]:
        """The columns that say how rows count: their weights and times, where there are such."""
        return tuple(name for name in (self.weight, self.time) if name)

    def encoder_settings(self, *, widens: bool) -> EncoderSettings:
        """The settings of the encoder; `widens` says whether new levels may add features."""
        most = self.max_width + (2**self.hash_bits if self.hash_bits else 0)
        return EncoderSettings(self.missing == "impute", self.hash_bits, most, not widens)

    def stated(self) -> dict[str, Any]:
        """The choices that differ from the defaults, and the estimator's parameters."""
        chosen = self._asdict()
        parameters = chosen.pop("parameters")
        if chosen["max_width"] == Choices._field_defaults["max_width"]:
            del chosen["max_width"]
        own = {name: value for name, value in chosen.items() if value not in (None, (), False)}
        return own | parameters


def likely_model(column: pa.ChunkedArray) -> str:
    """The model to use if the user named none: logistic for labels and for two values, otherwise linear."""
    numeric = pa.types.is_floating(column.type)
    return "linear" if numeric and len(distinct(column)) > 2 else "logistic"


def any_target(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
    """A target of classes if the user named them or the column looks like labels, otherwise of numbers."""
    if classes or likely_model(column) == "logistic":
        return labels_of(name, column, classes)
    return Numbers(name)


def labels_of(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Classes:
    """A target with the classes that the user named, or with those of the first rows."""
    if pa.types.is_nested(column.type):
        raise ValueError(f"the target '{name}' is {column.type}; it must be labels or numbers.")
    if classes and ("" in classes or len(set(classes)) < len(classes)):
        raise ValueError(
            f"--classes must be different labels, none empty; got {','.join(classes)}."
        )
    found = tuple(classes) or tuple(distinct(column))
    if len(set(found)) < 2:
        held = f"only '{found[0]}'" if found else "nothing"
        raise ValueError(
            f"a classifier needs two classes or more; the first rows of '{name}' hold {held}. "
            "Shuffle the rows, or name all classes with --classes a,b"
            + (", or use --model linear." if pa.types.is_floating(column.type) else ".")
        )
    if len(found) > MOST_CLASSES:
        raise ValueError(
            f"'{name}' has {len(found)} different values in the first rows, too many for classes "
            f"(at most {MOST_CLASSES}); use --model linear, or another target."
        )
    return Classes(name, found, pa.types.is_string(column.type))


def check_numeric(name: str, column: pa.ChunkedArray) -> None:
    """Refuse a target column that does not hold numbers."""
    if not (pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise ValueError(
            f"the target '{name}' is {column.type}, not numbers; use --model logistic for labels."
        )


def new_estimator(cls: type, parameters: dict[str, Any], **fixed: Any) -> Any:
    """An estimator with the user's parameters beside the `fixed` ones; no others may be given."""
    known = set(cls().get_params()) - set(fixed)
    for name in parameters:
        if name not in known:
            raise ValueError(
                f"{cls.__name__} has no parameter '{name}'; it has {', '.join(sorted(known))}."
            )
    return cls(**parameters, **fixed)
