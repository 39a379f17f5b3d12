"""The parameters of `BinaryFactorization`: their valid values, and the settings that follow from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kalvi.estimators.binary_factorization.entries import UNSTORED, Axes
from kalvi.estimators.binary_factorization.locations import TIES
from kalvi.estimators.binary_factorization.sweeps import (
    BOUNDS,
    FAMILIES,
    SOLVERS,
    SweepSettings,
)
from kalvi.estimators.constraints import (
    DTYPE,
    NON_NEGATIVE,
    Constraint,
    auto,
    check_parameters,
    integer,
    one_of,
    optional,
)
from kalvi.rules.silk import Observed, Table

MOST_FACTORS = 10
"""max_factors=None begins with this many factors, or with all that the matrix can have."""


def _is_piece(value: Any) -> bool:
    both = value if isinstance(value, tuple | list) else (value, value)
    return len(both) == 2 and all(map(integer(1).allows, both))


CONSTRAINTS: dict[str, Constraint] = {
    "posterior": one_of(FAMILIES, quoted=True),
    "solver": one_of(SOLVERS, quoted=True),
    "bound": one_of(BOUNDS, quoted=True),
    "ties": one_of(TIES, quoted=True),
    "unstored": one_of(UNSTORED, quoted=True),
    "dtype": DTYPE,
    "max_sweeps": integer(1),
    "tol": NON_NEGATIVE,
    "n_factors": auto(integer(1)),
    "max_factors": optional(integer(1)),
    "batch_size": optional(Constraint("a positive integer or a pair of them", _is_piece)),
}


def make_settings(given: Mapping[str, Any]) -> SweepSettings:
    """The settings of the sweeps; invalid parameters are refused."""
    check_parameters(given, CONSTRAINTS)
    piece = given["batch_size"]
    if piece is not None and given["n_factors"] == "auto":
        raise ValueError(
            "n_factors='auto' compares bounds of whole sweeps; with batch_size give n_factors a number."
        )
    if piece is not None:
        rows, cols = piece if isinstance(piece, tuple | list) else (piece, piece)
        piece = int(rows), int(cols)
    return SweepSettings(
        posterior=given["posterior"],
        solver=given["solver"],
        max_sweeps=int(given["max_sweeps"]),
        tol=float(given["tol"]),
        dtype=np.dtype(given["dtype"]).name,
        piece=piece,
        bound=given["bound"],
    )


def first_n_factors(given: Mapping[str, Any], shape: tuple[int, int]) -> int:
    """The number of factors with which the fit of a matrix of this shape begins."""
    name, least = "max_factors" if given["n_factors"] == "auto" else "n_factors", min(shape)
    if given[name] is None:
        return min(MOST_FACTORS, least)
    if given[name] > least:
        raise ValueError(
            f"{name}={given[name]} exceeds the smaller side of a matrix of shape {shape}; "
            f"choose {name} ≤ {least}."
        )
    return int(given[name])


def check_piece(settings: SweepSettings, observed: Observed, n_factors: int) -> None:
    """Refuse pieces of a matrix that is not kept as a table, and pieces that are too small for the
    factors."""
    if settings.piece is None:
        return
    if min(settings.piece) < n_factors:
        raise ValueError(
            f"batch_size must be at least n_factors={n_factors} on both sides, as the first factors come "
            f"from one piece; got {min(settings.piece)}."
        )
    if not isinstance(observed, Table):
        raise ValueError(
            "batch_size needs a matrix with many observed entries; X has few, and a sweep over them is "
            "cheap. Leave batch_size at None."
        )


def sort_guess(start: Any, axes: Axes, n_factors: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A user's first guess of the factors of rows and columns, in the order of their locations."""
    shapes = tuple((side.n, n_factors) for side in axes)
    try:
        both = tuple(np.asarray(part, float) for part in start)
    except (TypeError, ValueError):
        both = ()
    finite = all(np.all(np.isfinite(part)) for part in both)
    if tuple(part.shape for part in both) != shapes or not finite:
        got = ", ".join(str(part.shape) for part in both) or type(start).__name__
        raise ValueError(
            f"start must hold two arrays of finite numbers of shapes {shapes[0]} and {shapes[1]}, factors "
            f"of the rows and of the columns; got {got}."
        )
    u, v = (
        part if side.order is None else part[side.order]
        for part, side in zip(both, axes, strict=True)
    )
    return u.astype(dtype), v.astype(dtype)
