"""Figures from plain arrays: the only files that import matplotlib.

Every `panel` returns a Figure; called with `axes=` it draws there instead of on a new one, and
`compose` puts panels together. `save` writes a figure at once or not at all, and closes it.
"""

from kalvi.plots.house import (
    CLASSES,
    COLOURS,
    DASHES,
    DENSITY,
    DIVERGING,
    FAINT,
    HOUSE,
    INK,
    MARKS,
    QUIET,
    RAMP,
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
    bands,
    coefficients,
    ellipses,
    kl_curves,
    lines,
    probability_map,
    reliability,
    scatter,
    surface,
    table,
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
    "MARKS",
    "QUIET",
    "RAMP",
    "Figure",
    "Panel",
    "bands",
    "coefficients",
    "compose",
    "ellipses",
    "image",
    "kl_curves",
    "lines",
    "panel",
    "paths",
    "probability_map",
    "reliability",
    "save",
    "scatter",
    "style",
    "surface",
    "table",
    "trace",
]
