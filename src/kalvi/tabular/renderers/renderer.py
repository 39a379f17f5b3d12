"""What a renderer says of a model; it is given plain data and makes lines of text."""

from abc import ABC, abstractmethod
from typing import Any

from kalvi.readers.source import Source
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import Paint


class Renderer(ABC):
    """The words for one kind of model."""

    @abstractmethod
    def column_lines(self, outline: dict[str, Any], source: Source) -> list[str]:
        """Before a pass: the types that were found in the first rows, and what is made of them."""

    @abstractmethod
    def progress(self, record: Record) -> str:
        """During a pass: how good predictions are so far, beside the progress bar."""

    @abstractmethod
    def fitted_lines(self, summary: dict[str, Any]) -> list[str]:
        """After a pass: what was learned, in a line or a few."""

    @abstractmethod
    def summary_lines(self, summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
        """All about a model; `most` effects are listed, and `paint` colours the verdict of a fit."""
