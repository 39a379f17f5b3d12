"""Panels of smooth binary factorisation: curves by method, rates, losses, points and paths with names."""

from collections.abc import Mapping, Sequence

import numpy as np

from kalvi import plots
from kalvi.plots import CLASSES, FAINT, INK, QUIET

METHOD_COLOURS = {
    "coupled": "#0b5fa5",
    "chains": "#5ab4e5",
    "mean field": "#d5581a",
    "no smoothness": "#b5539c",
    "Gibbs": "#22262b",
    "AutoNormal": "#0e8a6a",
    "truth": "#22262b",
    "smooth": "#0b5fa5",
}
"""One colour for each method in all figures."""


@plots.panel
def curves(
    axes,
    tracks: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    levels: Mapping[str, float] | None = None,
    logarithms: str = "",
    limits: tuple[float, float] | None = None,
) -> None:
    """Curves (x, y) named in the legend, in the colours of their methods; `logarithms` names the axes."""
    spare = iter((INK, *CLASSES, "#0e8a6a", "#b5539c", "#5ab4e5"))
    for name, (x, y) in tracks.items():
        colour = next((c for m, c in METHOD_COLOURS.items() if name.startswith(m)), None)
        look = {"color": colour or next(spare), "label": name}
        axes.plot(x, y, "o-" if len(x) < 15 else "-", ms=4, lw=1.8, **look)
    for name, level in (levels or {}).items():
        axes.axhline(level, color=QUIET, lw=1, dashes=(2, 2))
        axes.annotate(name, (0.01, level), xycoords=("axes fraction", "data"), color=QUIET,
                      va="bottom", fontsize=9)  # fmt: skip
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.set_xscale("log" if "x" in logarithms else "linear")
    axes.set_yscale("log" if "y" in logarithms else "linear")
    if limits is not None:
        axes.set_ylim(limits)
    axes.grid(color=FAINT, lw=0.6)
    axes.legend(loc="best")


@plots.panel
def dots(
    axes,
    groups: Mapping[str, np.ndarray],
    *,
    truth: float,
    title: str = "",
    xlabel: str = "",
) -> None:
    """The values of every method on a line of its own, on a log scale, with the truth and a factor of 2."""
    axes.axvspan(truth / 2, truth * 2, color=FAINT, alpha=0.6, lw=0)
    axes.axvline(truth, color=INK, lw=1.2, dashes=(3, 1.5))
    for i, (name, values) in enumerate(groups.items()):
        colour = METHOD_COLOURS.get(name, QUIET)
        axes.plot(values, np.full(len(values), -i), "o", ms=7, mfc=colour, mec="white", alpha=0.85)
    axes.set_xscale("log")
    powers = truth * 2.0 ** np.arange(-4, 5)
    every = np.concatenate(list(groups.values()))
    powers = powers[(powers > every.min() / 2) & (powers < every.max() * 2)]
    axes.set_xticks(powers, [f"{p:.2g}" for p in powers])
    axes.minorticks_off()
    axes.set_yticks(-np.arange(len(groups)), list(groups), color=INK)
    axes.set(title=title, xlabel=xlabel, ylim=(-len(groups) + 0.4, 0.6))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@plots.panel
def spreads(axes, groups: Mapping[str, np.ndarray], *, title: str = "", xlabel: str = "") -> None:
    """The values of every method on a line of its own, and their mean in numbers."""
    for i, (name, values) in enumerate(groups.items()):
        colour, mean = METHOD_COLOURS.get(name, QUIET), float(np.mean(values))
        axes.plot(values, np.full(len(values), -i), "o", ms=6, mfc=colour, mec="white", alpha=0.8)
        axes.plot([mean, mean], [-i - 0.25, -i + 0.25], color=INK, lw=1.6)
        axes.annotate(f"{mean:.4f}", (mean, -i - 0.28), va="top", ha="center", fontsize=9)
    axes.set_yticks(-np.arange(len(groups)), list(groups), color=INK)
    axes.set(title=title, xlabel=xlabel, ylim=(-len(groups) + 0.3, 0.5))
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=FAINT, lw=0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@plots.panel
def scaled_image(axes, values: np.ndarray, *, limits: tuple[float, float], **look) -> None:
    """A matrix of numbers and the scale of its colours."""
    plots.image(values, axes=axes, limits=limits, **look)
    axes.figure.colorbar(axes.images[0], ax=axes, shrink=0.9)


@plots.panel
def bars(
    axes,
    values: Mapping[str, float],
    *,
    title: str = "",
    xlabel: str = "",
    low: float = 0.0,
) -> None:
    """One bar for each method with its number at the end."""
    names = list(values)
    colours = [METHOD_COLOURS.get(name, QUIET) for name in names]
    axes.barh(-np.arange(len(names)), list(values.values()), color=colours, height=0.6)
    for i, value in enumerate(values.values()):
        axes.annotate(f"{value:.4f}", (value, -i), (4, 0), textcoords="offset points",
                      va="center", fontsize=10)  # fmt: skip
    axes.set_yticks(-np.arange(len(names)), names, color=INK)
    reach = max(values.values())
    axes.set(title=title, xlabel=xlabel, xlim=(low, reach + 0.18 * (reach - low)))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@plots.panel
def named_points(
    axes,
    points: np.ndarray,
    names: Sequence[str],
    *,
    shown: Sequence[str] = (),
    classes: Sequence[int] | None = None,
    title: str = "",
    labels: tuple[str, str] = ("first factor", "second factor"),
) -> None:
    """Points of the plane, some of them with their names; classes are the two colours."""
    colours = QUIET if classes is None else [(*CLASSES, QUIET)[i] for i in classes]
    axes.scatter(*points.T, s=16, c=colours, alpha=0.75, linewidths=0)
    for name in shown:
        here = points[list(names).index(name)]
        axes.plot(*here, "o", ms=6, mfc="none", mec=INK, mew=1)
        look = {"textcoords": "offset points", "fontsize": 9, "color": INK}
        axes.annotate(name, here, (5, 4), **look)
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    axes.grid(color=FAINT, lw=0.5)


@plots.panel
def tracks(
    axes,
    paths: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    *,
    since: float,
    title: str = "",
    xlabel: str = "",
) -> None:
    """Named paths (x, mean, deviation) with 95 % bands on one scale; from `since` on part is hidden."""
    palette = (INK, *CLASSES, "#0e8a6a", "#c1272d", "#b5539c", "#5ab4e5", QUIET)
    first, last = min(p[0][0] for p in paths.values()), max(p[0][-1] for p in paths.values())
    axes.axvspan(since - 0.5, last + 0.5, color=FAINT, alpha=0.6, lw=0)
    for (x, mean, std), colour in zip(paths.values(), palette, strict=False):
        axes.fill_between(x, mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.15, lw=0)
        axes.plot(x, mean, color=colour, lw=1.6)
    low, high = axes.get_ylim()
    heights = _apart(np.array([mean[-1] for _, mean, _ in paths.values()]), 0.05 * (high - low))
    for name, height, colour in zip(paths, heights, palette, strict=False):
        axes.annotate(name, (last + 1, height), fontsize=9, color=colour, va="center")
    axes.set(title=title, xlabel=xlabel, xlim=(first, last + 0.3 * (last - first)))
    axes.set_xticks([x for x in axes.get_xticks() if first <= x <= last])  # names stand beyond
    axes.grid(axis="y", color=FAINT, lw=0.6)


def _apart(heights: np.ndarray, least: float) -> np.ndarray:
    """Heights moved up until no two are closer than `least`."""
    order = np.argsort(heights)
    moved = heights[order].copy()
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + least)
    found = np.empty_like(heights)
    found[order] = moved
    return found
