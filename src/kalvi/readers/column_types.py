"""The types that columns have after reading, and the conversion from the types that files declare.

A column is a number (float64; NaN counts as missing), a flag (bool), text (string), a time (timestamp in
microseconds; UTC if the file names a zone), a vector (fixed_size_list of float64), a sparse row (list of
index and value) or named numbers (list of name and value).
"""
# pyarrow.compute makes its functions at run time
# pyright: reportAttributeAccessIssue=false

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from kalvi.readers.errors import BadData, counted, list_names

NUMBER = pa.float64()
FLAG = pa.bool_()
TEXT = pa.string()
TIME = pa.timestamp("us")
ZONED = pa.timestamp("us", tz="UTC")
SPARSE = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))
NAMED = pa.list_(pa.struct([("name", pa.string()), ("value", pa.float64())]))

YEARS = (-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The beginning of the year 1 and the end of 9999, in microseconds from 1970; Python has no other dates."""


def vector(width: int) -> pa.DataType:
    """The type of a column with `width` numbers in each row."""
    return pa.list_(pa.float64(), width)


def describe_type(column_type: pa.DataType) -> str:
    """A type as a phrase, such as "a number"."""
    if pa.types.is_fixed_size_list(column_type):
        return f"a vector of {counted(column_type.list_size, 'number')}"
    words = {NUMBER: "a number", FLAG: "true or false", TEXT: "text", TIME: "a time"}
    words |= {SPARSE: "a sparse row", NAMED: "named numbers"}
    return words.get(column_type, str(column_type))


def type_after_reading(declared: pa.DataType) -> pa.DataType | None:
    """The type as which a column of the declared type is read; None if it cannot be read."""
    types = pa.types
    if types.is_dictionary(declared):
        return type_after_reading(declared.value_type)
    if _is_number(declared) or types.is_null(declared):
        return NUMBER
    if types.is_boolean(declared):
        return FLAG
    if is_text(declared):
        return TEXT
    if types.is_timestamp(declared) or types.is_date(declared):
        return TIME
    return _list_type(declared)


def _list_type(declared: pa.DataType) -> pa.DataType | None:
    """The type as which a column of lists is read; list(float64) stands for vectors of unknown width."""
    types = pa.types
    if types.is_fixed_size_list(declared) and _is_number(declared.value_type):
        return vector(declared.list_size)
    if not (types.is_list(declared) or types.is_large_list(declared)):
        return None
    entry = declared.value_type
    if _is_number(entry):
        return pa.list_(pa.float64())
    pair = types.is_struct(entry) and [entry.field(i).name for i in range(entry.num_fields)]
    if pair not in (["index", "value"], ["name", "value"]) or not _is_number(entry.field(1).type):
        return None
    if is_text(entry.field(0).type):
        return NAMED if pair[0] == "name" else None
    return SPARSE if pair[0] == "index" and _is_number(entry.field(0).type) else None


def _is_number(declared: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(declared) or types.is_floating(declared) or types.is_decimal(declared)


def check_names(names: Iterable[str], where: str) -> list[str]:
    """The names of a file's columns; an empty name, or one that comes twice, is refused."""
    names = list(names)
    for i, name in enumerate(names):
        if not name.strip():
            raise BadData(f"{where}: column {i + 1} has no name; give it one in the header.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadData(
            f"{where}: column {list_names(twice)} appears more than once; rename one of them."
        )
    return names


def is_text(declared: pa.DataType) -> bool:
    """Whether a column of the declared type holds text."""
    types = pa.types
    return (
        types.is_string(declared)
        or types.is_large_string(declared)
        or types.is_string_view(declared)
    )


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without dictionary encoding."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def cast(column: pa.ChunkedArray, column_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column that is not text; raises an exception if an entry has no value of the type."""
    if pa.types.is_fixed_size_list(column_type) or column_type in (SPARSE, NAMED):
        return _cast_lists(column, column_type)
    if column_type == NUMBER:
        return _without_nan(_numbers(column))
    if column_type == TIME:
        return _times(column)
    if column.type == column_type:
        return column
    if column_type == FLAG and not (
        pa.types.is_boolean(column.type) or pa.types.is_null(column.type)
    ):
        raise ValueError("not true or false")
    return column.cast(column_type)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers and flags as float64."""
    if column.type == NUMBER:
        return column
    if not (_is_number(column.type) or column.type in (FLAG, pa.null())):
        raise ValueError("not a number")
    return column.cast(NUMBER, safe=False)  # a whole number beyond 2⁵³ is rounded


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times and dates in microseconds; nanoseconds are cut off."""
    if not (type_after_reading(column.type) == TIME or pa.types.is_null(column.type)):
        raise ValueError("not a time")
    column = column.cast(TIME, safe=False)
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    if len(column) > column.null_count and not YEARS[0] <= ends["min"] <= ends["max"] < YEARS[1]:
        raise ValueError("outside the calendar")
    return column


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    nan = pc.is_nan(column)
    if not pc.any(nan).as_py():
        return column
    return pc.if_else(nan, pa.scalar(None, NUMBER), column)


def _cast_lists(column: pa.ChunkedArray, column_type: pa.DataType) -> pa.ChunkedArray:
    """Convert vectors or sparse rows; no entry of a list may be missing."""
    if column.type == column_type:
        pass
    elif pa.types.is_null(column.type) or type_after_reading(column.type) is not None:
        column = column.cast(column_type)
    else:
        raise ValueError("not a list of numbers")
    flat = pc.list_flatten(column)
    paired = column_type in (SPARSE, NAMED)
    parts = [flat, *(pc.struct_field(flat, i) for i in (0, 1))] if paired else [flat]
    if any(part.null_count for part in parts):
        raise ValueError("a missing entry in a list")
    return column
