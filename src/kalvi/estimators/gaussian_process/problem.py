"""A table as a function of hyperparameters: what exact and sparse fits have in common for a search."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from kalvi.estimators.gaussian_process.hyperparameters import Hyperparameters

GAP, SEARCHED_GAP = 1e-8, 1e-4
"""Nats: where an ascent of the bound stops, in the end and while hyperparameters are sought."""
NOWHERE = 1e12
"""What the search is told where the bound does not exist, in nats below zero."""


class TrainingRows(NamedTuple):
    """The rows of a table, checked, and their weights."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Problem(ABC):
    """The bound of a table as a function of hyperparameters; each ascent starts where the last ended."""

    @abstractmethod
    def evaluate(self, hyper: Hyperparameters, gap: float) -> tuple[float, np.ndarray]:
        """The optimal bound, to within `gap` nats at least, and its gradient."""

    @abstractmethod
    def value(self, hyper: Hyperparameters) -> float:
        """The optimal bound alone, as precisely as a search needs it."""

    @abstractmethod
    def fit(self, hyper: Hyperparameters) -> Any:
        """The optimum at given hyperparameters."""
