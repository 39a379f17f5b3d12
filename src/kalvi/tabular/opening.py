"""Files opened for a model: columns that are left out are not read, so that nothing in them can matter."""

from collections.abc import Mapping, Sequence
from typing import Any

from kalvi.readers import BadData, Source, open_data

SAMPLED = 10_000
"""The first rows, by which types, units and levels are found."""
MARKS = "*?["


def opened(
    data: Any,
    *,
    format: str | None = None,
    types: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
) -> Source:
    """The source without the columns that `drop` names; patterns in it are left to the encoder."""
    names = exact(drop)
    if names:
        _check_names(data, format, names)
    return open_data(data, format=format, types=types, drop=names, sample_rows=SAMPLED)


def exact(patterns: Sequence[str]) -> tuple[str, ...]:
    """Those that are names."""
    return tuple(p for p in patterns if not any(mark in p for mark in MARKS))


def _check_names(data: Any, format: str | None, names: Sequence[str]) -> None:
    """Refuse a name that no column has, where the data can be looked at twice."""
    if "-" in (data if isinstance(data, list | tuple) else [data]):
        return
    try:
        source = open_data(data, format=format, sample_rows=1)
    except BadData:  # perhaps of a column that is left out; if not, it comes again
        return
    source.close()
    for name in names:
        if name not in source.schema.names:
            raise ValueError(
                f"no column is called '{name}'; there are {', '.join(source.schema.names[:30])}."
            )
