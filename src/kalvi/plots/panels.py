"""Panels for posteriors and predictions."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from kalvi.plots.appearance import (
    CLASSES,
    COLOURS,
    DASHES,
    DENSITY,
    FAINT,
    INK,
    QUIET,
    panel,
)

LEVELS = np.array([0.99, 0.95, 0.8, 0.5])
"""Posterior mass inside the contours of `ellipses`."""

Gaussian = tuple[np.ndarray, np.ndarray]


@panel
def scatter(axes: Axes, x: np.ndarray, y: np.ndarray, *, title: str = "") -> None:
    """Two classes of points in the plane."""
    for label, colour, marker in zip((0, 1), CLASSES, "oD", strict=True):
        chosen = x[np.asarray(y) == label]
        look = {"c": colour, "marker": marker, "label": f"y = {label}"}
        axes.scatter(*chosen.T, s=20, alpha=0.75, linewidths=0, **look)
    axes.set(title=title, xlabel="x₁", ylabel="x₂")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best", handletextpad=0.1)


@panel
def ellipses(
    axes: Axes,
    grid: tuple[np.ndarray, np.ndarray, np.ndarray],
    gaussians: Mapping[str, Gaussian],
    *,
    history: Mapping[str, Sequence[Gaussian]] | None = None,
    title: str = "",
    colours: Mapping[str, str] | None = None,
) -> None:
    """95 % ellipses of 2-D Gaussians on a density (coordinates a, b and log density[b, a]).

    A note names Gaussians whose means are off the map. `history` adds faint earlier ellipses.
    """
    (a, b, _), colours = grid, COLOURS | dict(colours or {})
    _shade(axes, grid)
    for name, past in (history or {}).items():
        for age, gaussian in enumerate(reversed(past)):
            axes.add_patch(_ellipse(gaussian, name, colours, alpha=0.65 * 0.8**age, linewidth=0.9))
    away = []
    for name, gaussian in gaussians.items():
        inside = a[0] <= gaussian[0][0] <= a[-1] and b[0] <= gaussian[0][1] <= b[-1]
        axes.add_patch(_ellipse(gaussian, name, colours, linewidth=2.2))
        axes.plot(*gaussian[0], "o" if inside else "", ms=4, color=colours.get(name, INK))
        axes.plot([], [], color=colours.get(name, INK), dashes=DASHES.get(name, ()), label=name)
        if not inside:
            away.append(f"{name} is off the map, at ({gaussian[0][0]:.3g}, {gaussian[0][1]:.3g})")
    axes.set(xlim=(a[0], a[-1]), ylim=(b[0], b[-1]), title=title, xlabel="θ₁", ylabel="θ₂")
    if gaussians:
        axes.legend(loc="best")
    if away:
        text = "\n".join(away)
        axes.text(
            0.03, 0.03, text, transform=axes.transAxes, fontsize=9, bbox={"fc": "w", "ec": FAINT}
        )


@panel
def lines(
    axes: Axes,
    x: np.ndarray,
    curves: Mapping[str, np.ndarray],
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
) -> None:
    """Plain curves with a small legend, in the palette's order."""
    palette = [INK, CLASSES[1], CLASSES[0], COLOURS["QKF"], COLOURS["accurate integrals"]]
    for (name, values), colour in zip(curves.items(), palette, strict=False):
        axes.plot(x, values, color=colour, label=name, lw=2.6 if colour == INK else 1.8)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xlim=(x[0], x[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color=FAINT, lw=0.6)
    axes.legend(loc="best")


@panel
def reliability(
    axes: Axes,
    predicted: np.ndarray,
    observed: np.ndarray,
    count: np.ndarray,
    *,
    title: str = "Reliability",
) -> None:
    """Observed frequencies against predicted probabilities, with 95 % bars for the counts."""
    spread = 1.96 * np.sqrt(np.maximum(predicted * (1 - predicted), 1e-12) / count)
    axes.plot([0, 1], [0, 1], color=QUIET, lw=1)
    axes.errorbar(predicted, observed, spread, fmt="none", ecolor=CLASSES[1], elinewidth=1.4)
    axes.plot(predicted, observed, "o", ms=7, color=CLASSES[1], mec="white", mew=0.8)
    axes.set(title=title, xlabel="predicted probability", ylabel="observed frequency")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.text(0.97, 0.05, "on the line: calibrated", ha="right", color=QUIET, fontsize=10)


@panel
def coefficients(
    axes: Axes,
    names: Sequence[str],
    mean: np.ndarray,
    std: np.ndarray,
    *,
    title: str = "Coefficients, 95 % intervals",
) -> None:
    """Posterior means with 95 % intervals, the largest effects on top."""
    order = np.argsort(np.abs(mean))
    rows = np.arange(len(names))
    centre, reach = mean[order], 1.96 * std[order]
    colours = [CLASSES[1] if clear else QUIET for clear in np.abs(centre) > reach]
    axes.axvline(0, color=FAINT, lw=1.2)
    axes.hlines(rows, centre - reach, centre + reach, colors=colours, lw=2.2)
    axes.scatter(centre, rows, c=colours, s=34, zorder=3)
    axes.set_yticks(rows, [str(names[i]) for i in order], color=INK)
    axes.set(title=title)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@panel
def learned_settings(
    axes: Axes,
    rows: np.ndarray,
    drifts: np.ndarray,
    weights: np.ndarray,
    *,
    surprises: Sequence[int] = (),
    title: str = "How long a stream remembers",
) -> None:
    """The weight of each memory, stacked, against the rows learned, with a line at each surprise."""
    shades = [to_hex(colormaps["cividis"](share)) for share in np.linspace(0.95, 0.1, len(drifts))]
    axes.stackplot(rows, weights.T, labels=[memory_name(d) for d in drifts], colors=shades, lw=0)
    for row in surprises:
        axes.axvline(row, color=INK, lw=0.9, dashes=(2, 2))
    axes.set(title=title, xlabel="rows", ylabel="weight", ylim=(0, 1), xlim=(rows[0], rows[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="memory")


def memory_name(drift: float) -> str:
    """A memory in words, given the share of the past that a row keeps."""
    return "all rows" if drift >= 1 else f"{1 / (1 - drift):,.0f} rows"


def _ellipse(gaussian: Gaussian, name: str, colours: Mapping[str, str], **look) -> Ellipse:
    """The 95 % ellipse of a 2-D Gaussian."""
    mean, cov = gaussian
    spread, axes = np.linalg.eigh(cov)
    width, height = 2 * np.sqrt(5.991 * np.maximum(spread[::-1], 0))
    angle = float(np.degrees(np.arctan2(axes[1, 1], axes[0, 1])))
    dashes = (0, DASHES[name]) if name in DASHES else "-"
    look |= {"fill": False, "ec": colours.get(name, INK), "ls": dashes}
    return Ellipse((mean[0], mean[1]), width, height, angle=angle, **look)


def _shade(axes: Axes, grid: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Filled contours of a density that enclose the masses LEVELS."""
    a, b, log_density = grid
    ordered = np.sort(log_density.ravel())[::-1]
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    levels = ordered[np.searchsorted(mass / mass[-1], LEVELS)]
    axes.contourf(a, b, log_density, [*levels, ordered[0] + 1], colors=DENSITY)
    axes.contour(a, b, log_density, levels, colors="#8f8771", linewidths=0.5)
