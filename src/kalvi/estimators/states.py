"""What fitted streaming models are read from, and rows and states in parts."""

from typing import Any

import jax
import numpy as np


class Settled:
    """What a fitted model's results are read from, made when the first of them is asked for.

    `model` is the estimator as it was fitted: parameters set later are for the next call.
    """

    def __init__(self, model: Any):
        self.model: Any = object.__new__(type(model))
        self.model.__dict__.update(vars(model), _settled=self)
        self.value: Any = None


def weighty(x, y: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows that have a weight."""
    if np.all(weight > 0):
        return x, y, weight
    which = np.flatnonzero(weight > 0)
    return x[which], y[which], weight[which]


def put(state: Any, member: Any, index: int) -> Any:
    """The state of a grid with one member replaced."""
    return jax.tree.map(lambda many, one: many.at[index].set(one), state, member)
