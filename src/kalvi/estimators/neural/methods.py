"""The methods of the neural estimators by name: how a network gets its posterior."""

from collections.abc import Callable
from typing import NamedTuple

from kalvi.estimators.neural.problem import LearnedNetwork, Problem
from kalvi.estimators.neural.streaming import fit_lrvga
from kalvi.estimators.neural.swag import fit_multiswag, fit_swag
from kalvi.estimators.neural.vifa import fit_vifa


class Method(NamedTuple):
    """How a method learns, from nothing or after what was learned before, and what is special about it."""

    learn: Callable[[Problem, LearnedNetwork | None], LearnedNetwork]
    collects: bool = (
        False  # iterates, of which it keeps a low rank; predictions then are made from draws
    )
    streams: bool = False  # can go on with further rows


METHODS = {
    "vifa": Method(fit_vifa),
    "swag": Method(fit_swag, collects=True),
    "multiswag": Method(fit_multiswag, collects=True),
    "lrvga": Method(fit_lrvga, streams=True),
}
