"""The bound of a table as a function of hyperparameters: the interface of exact and sparse fits for a
search."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters

GAP, SEARCHED_GAP = 1e-8, 1e-4
"""The gap at which an ascent of the bound stops, in nats: in the end, and during the search."""
NOWHERE = 1e12
"""The value for the search if the bound does not exist, in nats below zero."""


class TrainingRows(NamedTuple):
    """The checked rows of a table and their weights."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Problem(ABC):
    """The bound of a table as a function of hyperparameters; each ascent starts where the last ended."""

    @abstractmethod
    def evaluate(self, hyper: Hyperparameters, gap: float) -> tuple[float, np.ndarray]:
        """The optimal bound, accurate to `gap` nats, and its gradient."""

    @abstractmethod
    def value(self, hyper: Hyperparameters) -> float:
        """The optimal bound without its gradient, as accurate as a search needs it."""

    @abstractmethod
    def fit(self, hyper: Hyperparameters) -> Any:
        """The optimum at given hyperparameters."""
