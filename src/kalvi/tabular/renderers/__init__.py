"""Models in words: what the commands print, and what `summary()` prints in Python.

A renderer makes lines of text of plain data, one class for each kind of model; it decides nothing and
prints nothing.
"""

from typing import Any

from kalvi.tabular.renderers.binary_matrix import MatrixRenderer
from kalvi.tabular.renderers.factor_analysis import FactorRenderer
from kalvi.tabular.renderers.renderer import Renderer
from kalvi.tabular.renderers.supervised import SupervisedRenderer

SUPERVISED = SupervisedRenderer()
RENDERERS: dict[str, Renderer] = {"factor": FactorRenderer(), "silk": MatrixRenderer()}


def renderer_of(model: str) -> Renderer:
    """The renderer for a kind of model, by its name."""
    return RENDERERS.get(model, SUPERVISED)


class Summary(dict[str, Any]):
    """What a model is, as a dict; printed as `kalvi inspect` prints it."""

    def __str__(self) -> str:
        return "\n".join(renderer_of(self["model"]).summary_lines(self, 15, str))

    __repr__ = __str__
