"""What the parameters of `BinaryFactorization` may be."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kalvi.estimators.binary_fits import FAMILIES, SOLVERS, Settings
from kalvi.estimators.binary_places import TIES, Axis
from kalvi.estimators.binary_tables import UNSTORED
from kalvi.rules.silk import Observed, Table

MOST = 10
"""max_factors=None begins with this many, or with all that the matrix can have."""


def settings(given: Mapping[str, Any]) -> Settings:
    """How the fit is made; refuses parameters that mean nothing, with what was needed."""
    for name, allowed in (
        ("posterior", tuple(FAMILIES)),
        ("solver", tuple(SOLVERS)),
        ("ties", TIES),
        ("unstored", UNSTORED),
        ("dtype", ("float64", "float32")),
    ):
        value = _name(given[name])
        if not any(value == option for option in allowed):
            listed = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {listed}; got {given[name]!r}.")
    sweeps = _count("max_sweeps", given["max_sweeps"], "")
    tol = given["tol"]
    if not isinstance(tol, Real) or not 0 <= float(tol) < np.inf:
        raise ValueError(f"tol must be a non-negative number; got {tol!r}.")
    dtype = _name(given["dtype"])
    piece = _piece(given["batch_size"])
    if piece is not None and is_auto(given):
        raise ValueError(
            "n_factors='auto' compares bounds of whole sweeps; with batch_size give n_factors a number."
        )
    return Settings(given["posterior"], given["solver"], sweeps, float(tol), dtype, piece)


def most_factors(given: Mapping[str, Any], shape: tuple[int, int]) -> int:
    """How many factors a fit begins with."""
    name, least = "max_factors" if is_auto(given) else "n_factors", min(shape)
    if given["max_factors"] is None and name == "max_factors":
        return min(MOST, least)
    value = _count(name, given[name], "None or " if name == "max_factors" else "'auto' or ")
    if value > least:
        raise ValueError(
            f"{name}={value} exceeds the smaller side of a matrix of shape {shape}; "
            f"choose {name} ≤ {least}."
        )
    return value


def check_piece(how: Settings, observed: Observed, n_factors: int) -> None:
    """Refuse pieces of what is no table, and such as have no room for the factors."""
    if how.piece is None:
        return
    if min(how.piece) < n_factors:
        raise ValueError(
            f"batch_size must be at least n_factors={n_factors} on both sides, as the first factors come "
            f"from one piece; got {min(how.piece)}."
        )
    if not isinstance(observed, Table):
        raise ValueError(
            "batch_size needs a matrix that is kept as a table; of X few entries are observed and they "
            "are listed: a sweep costs no more than those. Leave batch_size at None."
        )


def started(
    start: Any, axes: tuple[Axis, Axis], n_factors: int, how: Settings
) -> tuple[Array, Array]:
    """A first guess of the factors, sorted as the places are."""
    shapes = tuple((side.n, n_factors) for side in axes)
    try:
        both = tuple(np.asarray(part, float) for part in start)
    except (TypeError, ValueError):
        both = ()
    if tuple(part.shape for part in both) != shapes or not all(
        np.all(np.isfinite(part)) for part in both
    ):
        got = ", ".join(str(part.shape) for part in both) or type(start).__name__
        raise ValueError(
            f"start must hold two arrays of finite numbers of shapes {shapes[0]} and {shapes[1]}, factors "
            f"of the rows and of the columns; got {got}."
        )
    u, v = (
        part if side.order is None else part[side.order]
        for part, side in zip(both, axes, strict=True)
    )
    return jnp.asarray(u, how.dtype), jnp.asarray(v, how.dtype)


def is_auto(given: Mapping[str, Any]) -> bool:
    """Whether the number of factors is sought."""
    return isinstance(given["n_factors"], str) and given["n_factors"] == "auto"


def _piece(batch_size: Any) -> tuple[int, int] | None:
    """Rows and columns of a stochastic step; None for whole sweeps."""
    if batch_size is None:
        return None
    both = batch_size if isinstance(batch_size, tuple | list) else (batch_size, batch_size)
    if len(both) != 2:
        raise ValueError(
            f"batch_size must be None, an integer, or a pair of them; got {batch_size!r}."
        )
    rows, cols = (_count("batch_size", value, "None or ") for value in both)
    return rows, cols


def _name(value: Any) -> Any:
    """float64 and float32 by whatever name; anything else as it is."""
    return np.dtype(value).name if value in (np.float64, np.float32) else value


def _count(name: str, value: Any, otherwise: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be {otherwise}a positive integer; got {value!r}.")
    return int(value)
