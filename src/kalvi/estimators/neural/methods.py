"""The methods of the neural estimators by name, by which a network gets its posterior."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kalvi.estimators.neural.problem import LearnedNetwork, NetworkProblem
from kalvi.estimators.neural.streaming import fit_lrvga
from kalvi.estimators.neural.swag import fit_multiswag, fit_swag
from kalvi.estimators.neural.vifa import fit_vifa


class NetworkMethod(NamedTuple):
    """The function by which a method learns, from nothing or after an earlier fit, and its properties."""

    learn: Callable[[NetworkProblem, LearnedNetwork | None], LearnedNetwork]
    collects: bool = (
        False  # iterates, of which it keeps a low rank; predictions then are made from draws
    )
    streams: bool = False  # can continue with further rows


METHODS = {
    "vifa": NetworkMethod(fit_vifa),
    "swag": NetworkMethod(fit_swag, collects=True),
    "multiswag": NetworkMethod(fit_multiswag, collects=True),
    "fa": NetworkMethod(partial(fit_swag, kind="fa"), collects=True),
    "multifa": NetworkMethod(partial(fit_multiswag, kind="fa"), collects=True),
    "lrvga": NetworkMethod(fit_lrvga, streams=True),
}
