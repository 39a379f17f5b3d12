"""The interface of renderers, which turn plain data about a model into lines of text."""

from abc import ABC, abstractmethod
from typing import Any

from kalvi.readers.source import Source
from kalvi.tabular.record import Record
from kalvi.tabular.renderers.text import Paint


class Renderer(ABC):
    """Makes the text about one kind of model."""

    @abstractmethod
    def column_lines(self, outline: dict[str, Any], source: Source) -> list[str]:
        """Lines before a pass: the types found in the first rows, and how each column is used."""

    @abstractmethod
    def progress(self, record: Record) -> str:
        """Text beside the progress bar during a pass: how good predictions are so far."""

    @abstractmethod
    def fitted_lines(self, summary: dict[str, Any]) -> list[str]:
        """A few lines after a pass: what was learned."""

    @abstractmethod
    def summary_lines(self, summary: dict[str, Any], most: int, paint: Paint) -> list[str]:
        """All lines about a model, with at most `most` effects; `paint` colours the verdict on a fit."""
