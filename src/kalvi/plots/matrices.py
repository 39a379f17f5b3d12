"""Panels for factorisations of matrices: the matrix, factors along their locations, the bound."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from kalvi.plots.appearance import CLASSES, COLOURS, DIVERGING, FAINT, INK, QUIET, Number, panel

ORDER = (*CLASSES[::-1], COLOURS["accurate integrals"], COLOURS["QKF"])
"""Colours of factors; after the last they start again."""


@panel
def image(
    axes: Axes,
    values: np.ndarray,
    *,
    title: str = "",
    xlabel: str = "columns",
    ylabel: str = "rows",
    extent: tuple[Number, Number, Number, Number] | None = None,
    limits: tuple[Number, Number] = (0, 1),
) -> None:
    """A matrix of entries or probabilities, the first row on top; NaN is grey.

    `extent` is the first and last column and the last and first row, in units of the locations.
    """
    axes.set_facecolor(FAINT)
    look = {"cmap": DIVERGING, "vmin": limits[0], "vmax": limits[1], "interpolation": "nearest"}
    axes.imshow(values, aspect="auto", extent=extent, **look)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.spines[["left", "bottom"]].set_visible(False)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_locator(MaxNLocator(5, integer=extent is None))


@panel
def paths(
    axes: Axes,
    locations: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    *,
    truth: np.ndarray | None = None,
    seen: tuple[Number, Number] | None = None,
    title: str = "Factors, 95 % bands",
    xlabel: str = "location",
    ylabel: str = "factor",
) -> None:
    """Factors along their locations with 95 % bands, one below the other, each around its own zero.

    The locations may come in any order. `truth` is drawn in black; `seen` is the first and last observed
    location, and the background is grey beyond them.
    """
    order = np.argsort(locations, kind="stable")
    where, reach = np.asarray(locations)[order], 1.96 * std[order]
    tops, bottoms = (mean[order] + reach).max(axis=0), (mean[order] - reach).min(axis=0)
    drop = np.concatenate(
        [[0], np.cumsum(1.05 * (np.maximum(tops[1:], 0) - np.minimum(bottoms[:-1], 0)))]
    )
    for k, (shift, colour) in enumerate(zip(-drop, _cycled(len(drop)), strict=True)):
        centre = mean[order, k] + shift
        axes.axhline(shift, color=FAINT, lw=0.8, zorder=0)
        axes.fill_between(
            where, centre - reach[:, k], centre + reach[:, k], color=colour, alpha=0.22, lw=0
        )
        axes.plot(where, centre, color=colour, lw=1.6)
        if truth is not None:
            axes.plot(where, truth[order, k] + shift, color=INK, lw=0.9, dashes=(3, 1.5))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xlim=(where[0], where[-1]))
    axes.set_yticks(-drop, [str(k + 1) for k in range(len(drop))], color=INK)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for ends in [] if seen is None else [(where[0], seen[0]), (seen[1], where[-1])]:
        if ends[1] > ends[0]:
            axes.axvspan(*ends, color=FAINT, alpha=0.45, lw=0, zorder=-1)


@panel
def trace(
    axes: Axes,
    values: np.ndarray,
    *,
    title: str = "The bound, sweep by sweep",
    xlabel: str = "sweeps",
    ylabel: str = "nats below the last",
) -> None:
    """The distance of a rising sequence below its last value, on a logarithmic scale."""
    below = values[-1] - np.asarray(values)
    axes.plot(np.flatnonzero(below > 0), below[below > 0], color=CLASSES[1], lw=1.8)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale="log", xlim=(0, len(below) - 1))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(axis="y", color=FAINT, lw=0.6)
    last = f"last: {values[-1]:,.1f} nats".replace("-", "−")
    axes.text(0.97, 0.93, last, transform=axes.transAxes, ha="right", color=QUIET, fontsize=10)


def _cycled(n: int) -> list[str]:
    return [ORDER[k % len(ORDER)] for k in range(n)]
