"""Text about models, as the commands and `summary()` print it.

A renderer turns plain data into lines of text; each kind of model has one. It decides nothing and prints
nothing.
"""

from typing import Any

from kalvi.tabular.renderers.binary_matrix import MatrixRenderer
from kalvi.tabular.renderers.factor_analysis import FactorRenderer
from kalvi.tabular.renderers.supervised import SupervisedRenderer

SUPERVISED = SupervisedRenderer()
RENDERERS: dict[str, Any] = {"factor": FactorRenderer(), "silk": MatrixRenderer()}


def renderer_of(model: str) -> Any:
    """The renderer for a kind of model, by its name; that of a matrix knows no passes."""
    return RENDERERS.get(model, SUPERVISED)


class Summary(dict[str, Any]):
    """The description of a model, as a dict that prints like `kalvi inspect`."""

    def __str__(self) -> str:
        return "\n".join(renderer_of(self["model"]).summary_lines(self, 15, str))

    __repr__ = __str__
