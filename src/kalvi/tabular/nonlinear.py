"""The common part of Gaussian processes and neural networks of a table."""

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from kalvi.columns.targets import Classes, Target
from kalvi.tabular.choices import any_target
from kalvi.tabular.progressive import ALL_ROWS
from kalvi.tabular.rows import Rows, dense, joined
from kalvi.tabular.supervised import SupervisedModel


class NonlinearModel(SupervisedModel):
    """A model without coefficients: it has a fixed number of features and cannot be merged."""

    __slots__ = ()

    widens = False

    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """A description of the fitted estimator, as plain JSON."""

    @classmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return any_target(name, column, classes)

    def widen(self, width: int) -> None:
        raise TypeError(f"the rows of a model of {self.model} have a fixed width")

    def revisits(self, n_rows: int) -> bool:
        return False

    def learn_together(self, pieces: list[Rows]) -> "NonlinearModel":
        """The model of all rows, learned together."""
        x, y, weight = joined(pieces, self.encoder.width)
        x = dense(x)
        self._check_classes(y)
        self.estimator.fit(x, y, sample_weight=weight)
        after = self._replace(record=self.record.learned(self.target, y, weight))
        some = np.arange(min(len(y), ALL_ROWS))
        record = after.score(x[some], y[some], some)
        return self._replace(record=record._replace(in_sample=True, losses=None))

    def drifts(self) -> bool:
        return False

    def has_diagnosis(self) -> bool:
        return False

    def diagnosed(self) -> dict[str, Any] | None:
        return None

    def specifics(self) -> dict[str, Any]:
        return {
            "passes": int(getattr(self.estimator, "n_passes_", 1)) if self.streams() else None,
            "parameters": self.n_parameters(),
            "shape": self.shape() if self.record.rows else None,
        }

    def _check_classes(self, y: np.ndarray) -> None:
        """Refuse rows that lack one of the classes."""
        if isinstance(self.target, Classes):
            lacking = set(range(len(self.target.labels))) - set(y.astype(int).tolist())
            if lacking:
                raise ValueError(f"no row has the class '{self.target.labels[lacking.pop()]}'.")
