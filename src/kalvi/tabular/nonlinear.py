"""What Gaussian processes and networks of a table share: rows of a fixed width, and no merging."""

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from kalvi.columns.targets import Target
from kalvi.tabular.choices import any_target
from kalvi.tabular.rows import Rows
from kalvi.tabular.supervised import SupervisedModel


class NonlinearModel(SupervisedModel):
    """A model without coefficients: of classes for labels, of numbers otherwise."""

    __slots__ = ()

    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """What the fitted estimator is made of, in plain JSON."""

    @classmethod
    def choose_target(cls, name: str, column: pa.ChunkedArray, classes: tuple[str, ...]) -> Target:
        return any_target(name, column, classes)

    @classmethod
    def widens(cls) -> bool:
        return False

    def widen(self, width: int) -> None:
        raise TypeError(f"the rows of a model of {self.model} have a fixed width")

    def merges(self) -> bool:
        return False

    def revisits(self, n_rows: int) -> bool:
        return False

    def climbed(self, pieces: list[Rows]) -> "NonlinearModel":
        raise TypeError(f"a model of {self.model} has no further passes over streamed rows")

    def has_diagnosis(self) -> bool:
        return False

    def diagnosed(self, draws: int = 1000) -> dict[str, Any] | None:
        return None

    def specifics(self) -> dict[str, Any]:
        return {
            "passes": int(getattr(self.estimator, "n_passes_", 1)) if self.streams() else None,
            "parameters": self.n_parameters(),
            "shape": self.shape() if self.record.rows else None,
        }
