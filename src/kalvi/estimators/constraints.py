"""Constraints on the parameters of estimators: a table for each estimator, and one check for all."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np


class Constraint(NamedTuple):
    """The valid values of a parameter: a phrase that follows "must be", and a test of a value.

    If the test raises TypeError or ValueError, the value is not allowed.
    """

    needed: str
    allows: Callable[[Any], Any]
    remedy: str = ""


def check_parameters(given: Mapping[str, Any], constraints: Mapping[str, Constraint]) -> None:
    """Raise an error about the first parameter that violates its constraint."""
    for name, constraint in constraints.items():
        try:
            allowed = bool(constraint.allows(given[name]))
        except (TypeError, ValueError):
            allowed = False
        if not allowed:
            remedy = f" {constraint.remedy}" if constraint.remedy else ""
            raise ValueError(f"{name} must be {constraint.needed}; got {given[name]!r}.{remedy}")


def check_unchanged(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse changes of parameters on which the state of the fit depends."""
    for name, value in now.items():
        if name in before and value != before[name]:
            raise ValueError(
                f"{name} was {before[name]!r} when this model was fitted and is {value!r} now; "
                "call fit to start again, or set it back."
            )


def one_of(choices: Iterable[Any], *, quoted: bool = False) -> Constraint:
    """One of these values."""
    allowed = list(choices)
    names = ", ".join(repr(choice) if quoted else str(choice) for choice in allowed)
    return Constraint(
        f"one of {names}", lambda value: isinstance(value, Hashable) and value in allowed
    )


def integer(least: int) -> Constraint:
    """A whole number, `least` or more."""
    needed = "a positive integer" if least == 1 else f"an integer, {least} or more"
    return Constraint(needed, lambda value: is_integer(value) and value >= least)


def number(needed: str, allows: Callable[[float], bool]) -> Constraint:
    """A real number that passes a test; `needed` describes it."""
    return Constraint(
        needed,
        lambda value: (
            isinstance(value, Real) and not isinstance(value, bool) and allows(float(value))
        ),
    )


def auto(constraint: Constraint) -> Constraint:
    """A constraint that also allows the word "auto"."""
    needed, allows, remedy = constraint
    return Constraint(
        f"'auto' or {needed}", lambda v: v == "auto" if isinstance(v, str) else allows(v), remedy
    )


def optional(constraint: Constraint) -> Constraint:
    """A constraint that also allows None."""
    needed, allows, remedy = constraint
    return Constraint(f"None or {needed}", lambda v: v is None or allows(v), remedy)


def is_integer(value: Any) -> bool:
    """Whether a value is a whole number; True and False do not count."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


POSITIVE = number("a positive number", lambda value: 0 < value < np.inf)
NON_NEGATIVE = number("a non-negative number", lambda value: 0 <= value < np.inf)
FLAG = Constraint("True or False", lambda value: isinstance(value, bool | np.bool_))
DTYPE = Constraint(
    "'float32' or 'float64'",
    one_of(("float32", "float64", np.float32, np.float64)).allows,
)
