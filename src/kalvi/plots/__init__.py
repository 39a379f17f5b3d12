"""Figures from plain arrays; only these files import matplotlib.

Every `panel` returns a Figure. Called with `axes=` it draws on them instead, and `compose` arranges panels
in one figure. `save` writes a figure completely or not at all, and closes it.
"""

from kalvi.plots.appearance import (
    CLASSES,
    COLOURS,
    DASHES,
    DENSITY,
    DIVERGING,
    FAINT,
    HOUSE,
    INK,
    QUIET,
    Figure,
    Panel,
    compose,
    panel,
    save,
    style,
)
from kalvi.plots.matrices import image, paths, trace
from kalvi.plots.panels import (
    LEVELS,
    coefficients,
    ellipses,
    learned_settings,
    lines,
    reliability,
    scatter,
)

__all__ = [
    "CLASSES",
    "COLOURS",
    "DASHES",
    "DENSITY",
    "DIVERGING",
    "FAINT",
    "HOUSE",
    "INK",
    "LEVELS",
    "QUIET",
    "Figure",
    "Panel",
    "coefficients",
    "compose",
    "ellipses",
    "image",
    "learned_settings",
    "lines",
    "panel",
    "paths",
    "reliability",
    "save",
    "scatter",
    "style",
    "trace",
]
