"""What the parameters of `BinaryFactorization` may be."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from kalvi.estimators.binary_fits import FAMILIES, SOLVERS, Settings
from kalvi.estimators.binary_places import TIES
from kalvi.estimators.binary_tables import UNSTORED

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
    return Settings(given["posterior"], given["solver"], sweeps, float(tol), dtype)


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


def is_auto(given: Mapping[str, Any]) -> bool:
    """Whether the number of factors is sought."""
    return isinstance(given["n_factors"], str) and given["n_factors"] == "auto"


def _name(value: Any) -> Any:
    """float64 and float32 by whatever name; anything else as it is."""
    return np.dtype(value).name if value in (np.float64, np.float32) else value


def _count(name: str, value: Any, otherwise: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be {otherwise}a positive integer; got {value!r}.")
    return int(value)
