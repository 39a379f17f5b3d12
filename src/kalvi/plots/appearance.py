"""The style of figures, their composition from panels, and writing them to files."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

INK, QUIET, FAINT = "#22262b", "#6b7178", "#d9dcdf"
PALE = "#a9cfe9"
COLOURS = {
    "implicit": "#0b5fa5",
    "explicit": "#5ab4e5",
    "EKF": "#d5581a",
    "QKF": "#b5539c",
    "accurate integrals": "#0e8a6a",
    "Laplace": "#c1272d",
    "best Gaussian": "#22262b",
}
"""Okabe–Ito hues, always the same for a method; they also differ in lightness."""
DASHES = {"Laplace": (4, 2), "best Gaussian": (1, 1.5), "accurate integrals": (6, 1.5, 1.5, 1.5)}
CLASSES = ("#d5581a", "#0b5fa5")
DENSITY = ("#f3f0e8", "#e6e0d0", "#d3cab2", "#b9ad8e")
DIVERGING = LinearSegmentedColormap.from_list(
    "classes", ["#d5581a", "#f0b48f", "#f7f5f0", "#93bfe0", "#0b5fa5"]
)
HOUSE = {
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.labelspacing": 0.3,
    "contour.negative_linestyle": "solid",
}

Number = float | int
Panel = Callable[..., Figure]


def style() -> AbstractContextManager[None]:
    """The settings of matplotlib for all figures, as a context."""
    return mpl.rc_context(HOUSE)  # type: ignore[arg-type]


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure to `path`, completely or not at all, and close it."""
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=170)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
        plt.close(figure)


def compose(
    panels: Sequence[Sequence[Panel | None]],
    *,
    title: str = "",
    size: tuple[Number, Number] | None = None,
) -> Figure:
    """A figure with rows of panels, which are functions that take `axes`; rows of equal length are
    aligned."""
    n_rows, n_columns = len(panels), max(map(len, panels))
    size = size or (4.2 * n_columns, 3.9 * n_rows)
    with style():
        figure = plt.figure(figsize=size)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
        even = all(len(row) == n_columns for row in panels)
        grid = figure.add_gridspec(n_rows, n_columns if even else 1)
        for i, row in enumerate(panels):
            cells = grid if even else grid[i].subgridspec(1, len(row))
            for j, draw in enumerate(row):
                if draw is not None:
                    draw(axes=figure.add_subplot(cells[i, j] if even else cells[j]))
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=INK)
    return figure


def panel(draw: Callable[..., None]) -> Callable[..., Figure]:
    """Make of a function that draws on axes one that makes its own figure unless it is given `axes`."""

    @wraps(draw)
    def drawn(*args, axes: Axes | None = None, **kwargs) -> Figure:
        with style():
            axes = plt.figure(figsize=(5.4, 4.4)).add_subplot() if axes is None else axes
            draw(axes, *args, **kwargs)
        figure = axes.get_figure(root=True)
        assert isinstance(figure, Figure)
        return figure

    return drawn
