"""Checks of the rows given to estimators, and of their attributes when they come from a file."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data


def checked_table(model: Any, *arrays: Any, **how: Any) -> Any:
    """X, or X and y, checked by scikit-learn; the error about NaN or infinity also says where it is."""
    named = dict(zip(("X", "y"), arrays, strict=False))
    try:
        return validate_data(model, **named, **how)
    except (TypeError, ValueError) as error:
        refuse_lazy(**named)
        if "contains NaN" not in str(error) and "contains infinity" not in str(error):
            raise
        places = [_first_bad(name, array) for name, array in named.items()]
        found = next((place for place in places if place), str(error))
        raise ValueError(f"{found} Drop or impute such rows first.") from None


def need_no_check(model: Any, x: Any, y: Any = None, *, dtype: Any) -> bool:
    """Whether scikit-learn's checks would return rows for a fitted model unchanged.

    The checks take longer than learning from one row, or predicting it.
    """
    ready = (
        type(x) is np.ndarray
        and x.ndim == 2
        and x.dtype == dtype
        and len(x) > 0
        and x.shape[1] == model.n_features_in_
        and "feature_names_in_" not in vars(model)
        and bool(np.isfinite(x).all())
    )
    if y is None or not ready:
        return ready
    numbers = type(y) is np.ndarray and y.dtype.kind in "iufb" and y.shape == x.shape[:1]
    return numbers and bool(np.isfinite(y).all())


def refuse_lazy(**tables: Any) -> None:
    """Refuse tables whose rows have not been computed yet, such as a polars LazyFrame."""
    for name, table in tables.items():
        if callable(getattr(table, "collect", None)) and not hasattr(table, "__array__"):
            raise TypeError(
                f"{name} is a {type(table).__name__}, whose rows are not computed yet; give "
                f"{name}.collect()."
            )


def checked_weights(sample_weight: Any, x: Any) -> np.ndarray:
    """One weight for each row, none of them negative."""
    if sample_weight is None:
        return np.ones(x.shape[0])
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
    bad = np.flatnonzero(weight < 0)
    if bad.size:
        raise ValueError(
            f"sample_weight must be non-negative; row {bad[0]} has {weight[bad[0]]:g}. "
            "Give rows to ignore the weight 0."
        )
    return weight


def first_labels(model: Any, y: np.ndarray, classes: Any = None, remedy: str = "") -> np.ndarray:
    """The labels of a new classifier: those in `classes` if it is given, otherwise those in y."""
    check_classification_targets(y)
    found = np.unique(y if classes is None else classes)
    if len(found) < 2:
        raise ValueError(
            f"{type(model).__name__} needs two classes or more; got 1 class: {found.tolist()}.{remedy}"
        )
    return found


def check_same_labels(model: Any, classes: Any) -> None:
    """Refuse given labels that differ from those of the first call."""
    if classes is not None and not np.array_equal(np.unique(classes), model.classes_):
        raise ValueError(
            f"classes={list(classes)} differ from those of the first call, {model.classes_.tolist()}."
        )


def require_consistent(consistent: bool, model: Any, attributes: str) -> None:
    """Refuse attributes that no fit can have, such as those of a changed file."""
    if not consistent:
        raise ValueError(
            f"this {type(model).__name__} has attributes that contradict each other: {attributes}"
        )


def check_feature_names(model: Any) -> None:
    """Refuse a number of features, or names of features, that no fit can have."""
    n, names = model.__dict__.get("n_features_in_"), model.__dict__.get("feature_names_in_")
    require_consistent(isinstance(n, int | np.integer) and bool(n >= 0), model, "n_features_in_")
    require_consistent(names is None or bool(len(names) <= n), model, "feature_names_in_")


def seed_of(random_state: Any) -> int:
    """A seed, from any random state that scikit-learn takes."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def _first_bad(name: str, array: Any) -> str | None:
    """A sentence about the position of the first NaN or infinity in an array."""
    try:
        entries = sp.coo_array(array if sp.issparse(array) else np.asarray(array, float))
    except (TypeError, ValueError):
        return None
    bad = np.flatnonzero(~np.isfinite(entries.data))
    if not bad.size:
        return None
    place = [int(axis[bad[0]]) for axis in entries.coords]
    value = "NaN" if np.isnan(entries.data[bad[0]]) else "infinity (inf)"
    where = f"row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")
    return f"Input {name} contains {value} in {where} ({bad.size} such values in all)."
