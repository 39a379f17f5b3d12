"""How the target is read when nobody says it: as labels, or as numbers."""

import pyarrow as pa

from kalvi.columns.targets import MOST_CLASSES, Classes, Numbers, Target, distinct


def likely_model(column: pa.ChunkedArray) -> str:
    """The model of a target nobody said anything about: logistic for labels and for two numbers."""
    numeric = pa.types.is_floating(column.type)
    return "linear" if numeric and len(distinct(column)) > 2 else "logistic"


def any_target(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
    """Classes if they are named or look like it, numbers otherwise."""
    if classes or likely_model(column) == "logistic":
        return labels_of(name, column, classes)
    return Numbers(name)


def labels_of(name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Classes:
    """The classes as given, or those of the first rows."""
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
    """Refuse a target that is not numbers."""
    if not (pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise ValueError(
            f"the target '{name}' is {column.type}, not numbers; use --model logistic for labels."
        )
