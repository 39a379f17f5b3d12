"""Panels that only the papers draw: divergences, tables, maps of the plane, brackets of a root."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from sklearn.isotonic import isotonic_regression

from kalvi.plots import CLASSES, COLOURS, DASHES, DIVERGING, FAINT, INK, panel
from kalvi.plots.appearance import Number

RAMP = ("#a9cfe9", "#7db8e0", "#5ab4e5", "#2f8fcb", "#0b5fa5", "#0a3f78", "#0e8a6a", "#22262b")
"""For methods that differ by a number, in its order."""
MARKS = ("#0b5fa5", "#c1272d")
FLATTENING = 5000.0
"""A curve that rises so many times above the median height of a panel's curves would flatten them."""


@panel
def kl_curves(
    axes: Axes,
    times: np.ndarray | Mapping[str, np.ndarray],
    curves: Mapping[str, np.ndarray],
    *,
    levels: Mapping[str, Number] | None = None,
    title: str = "",
    ylabel: str = "nats above the best Gaussian",
    colours: Mapping[str, str] | None = None,
    xscale: str = "linear",
    bars: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Divergences over observations on a logarithmic scale; `levels` are horizontal lines.

    Every curve may have `times` of its own, and `bars`, its standard errors; `colours` are for names that
    have none.
    """
    ends, colours = [], COLOURS | dict(colours or {})
    own = times if isinstance(times, Mapping) else dict.fromkeys(curves, times)
    shown = {name: own[name] > 0 if xscale == "log" else slice(None) for name in curves}
    last = max(own[name][-1] for name in curves)
    for name, values in curves.items():
        here, at = shown[name], own[name]
        look = {"color": colours.get(name, INK), "dashes": DASHES.get(name, ()), "label": name}
        axes.plot(at[here], values[here], **look)
        if at[-1] < last:  # as far as its name
            axes.hlines(values[-1], at[-1], last, look["color"], lw=0.8, linestyles=(0, (1, 3)))
        if bars and name in bars:
            error = {"ecolor": look["color"], "fmt": "none", "elinewidth": 1.2, "capsize": 2}
            axes.errorbar(at[here], values[here], bars[name][here], **error)
        ends.append((float(values[-1]), name))
    for name, value in (levels or {}).items():
        axes.axhline(value, color=colours.get(name, INK), dashes=DASHES.get(name, (4, 2)), lw=1.6)
        ends.append((value, name))
    axes.set(title=title, xlabel="observations", ylabel=ylabel, yscale="log", xscale=xscale)
    drawn = {name: own[name][shown[name]] for name in curves}
    axes.set_xlim(min(t[0] for t in drawn.values()), last)
    axes.grid(axis="y", color=FAINT, lw=0.6)
    if xscale == "log":
        _plain_decades(axes)
    visible = {name: curves[name][shown[name]] for name in curves}
    _limit_heights(axes, visible, [value for value, _ in ends])
    _label_ends(axes, ends, colours)


def _plain_decades(axes: Axes) -> None:
    """Labels of the horizontal axis that do not overlap, however few decades it spans."""
    low, high = axes.get_xlim()
    if high / low < 200:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _limit_heights(axes: Axes, curves: Mapping[str, np.ndarray], ends: Sequence[float]) -> None:
    """Room for all curves, but for one that would flatten the others: its height is written down."""
    drawn = np.concatenate([*curves.values(), ends])
    axes.set_ylim(bottom=drawn[drawn > 0].min() / 1.6)
    tops = {name: float(np.max(values)) for name, values in curves.items()}
    usual = FLATTENING * float(np.median(list(tops.values())))
    over = {name: top for name, top in tops.items() if top > usual}
    if over and len(tops) > 3:
        axes.set_ylim(top=usual / FLATTENING * 3)
        words = ", ".join(f"{name} reaches {top:.2g}" for name, top in over.items())
        look = {"transform": axes.transAxes, "fontsize": 9, "va": "top", "ha": "right"}
        axes.text(0.99, 0.99, words, color=INK, **look)


@panel
def table(axes: Axes, rows: Sequence[Mapping[str, str]], *, title: str = "") -> None:
    """Rows of words and numbers, under the names of their columns."""
    cells = [list(row.values()) for row in rows]
    heads = {"colLabels": list(rows[0]), "colLoc": "left"}
    drawn = axes.table(cells, **heads, loc="upper left", cellLoc="left", edges="B")
    drawn.auto_set_column_width(list(range(len(rows[0]))))
    drawn.set_fontsize(10)
    drawn.scale(1, 1.5)
    axes.set_axis_off()
    axes.set_title(title)


@panel
def probability_map(
    axes: Axes,
    a: np.ndarray,
    b: np.ndarray,
    probability: np.ndarray,
    *,
    points: tuple[np.ndarray, np.ndarray] | None = None,
    title: str = "",
) -> None:
    """Iso-probabilities of y = 1 over the plane (probability[b, a]), the decision line in ink."""
    axes.contourf(a, b, probability, levels=np.linspace(0, 1, 21), cmap=DIVERGING, alpha=0.85)
    named, widths = [0.05, 0.25, 0.5, 0.75, 0.95], [0.8, 0.8, 1.8, 0.8, 0.8]
    shown = axes.contour(a, b, probability, levels=named, colors=INK, linewidths=widths)
    axes.clabel(shown, fmt="%.2f", fontsize=9)
    if points is not None:
        colours = [CLASSES[int(label)] for label in points[1]]
        axes.scatter(*points[0].T, s=9, c=colours, edgecolors="white", linewidths=0.3)
    axes.set(title=title, xlabel="x₁", ylabel="x₂", xlim=(a[0], a[-1]), ylim=(b[0], b[-1]))


@panel
def surface(
    axes: Axes,
    a: np.ndarray,
    b: np.ndarray,
    values: np.ndarray,
    *,
    marks: Mapping[str, tuple[Number, Number]] | None = None,
    title: str = "",
    labels: tuple[str, str] = ("α", "ν"),
) -> None:
    """A function of the plane (values[b, a]) as filled contours, its zero line in ink, points named."""
    reach = float(np.abs(values).max())
    filled = axes.contourf(a, b, values, levels=np.linspace(-reach, reach, 25), cmap=DIVERGING)
    axes.contour(a, b, values, levels=[0.0], colors=INK, linewidths=1.6)
    bar = plt.colorbar(filled, ax=axes, shrink=0.85, ticks=MaxNLocator(5), pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    for (name, point), colour in zip((marks or {}).items(), MARKS, strict=False):
        axes.plot(*point, "o", ms=9, color=colour, mec="white", mew=1.2, clip_on=False, zorder=5)
        side = "right" if point[0] > (a[0] + a[-1]) / 2 else "left"
        offset = (-10 if side == "right" else 10, -16 if point[1] > (b[0] + b[-1]) / 2 else 8)
        look = {"textcoords": "offset points", "bbox": {"fc": "w", "ec": "none", "pad": 1.5}}
        _note(axes, name, point, colour, xytext=offset, ha=side, **look)
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])


@panel
def heights(
    axes: Axes,
    a: np.ndarray,
    b: np.ndarray,
    values: np.ndarray,
    bound: np.ndarray,
    *,
    marks: Mapping[str, tuple[Number, Number]] | None = None,
    title: str = "",
) -> None:
    """Contours of a function of the plane, and dashed those of its bound at the same heights."""
    levels = np.quantile(values, np.linspace(0.05, 0.95, 9))
    axes.contour(a, b, values, levels=levels, colors=COLOURS["explicit"], linewidths=1.4)
    axes.contour(
        a, b, bound, levels=levels, colors=COLOURS["QKF"], linewidths=1.4, linestyles="dashed"
    )
    for name, point in (marks or {}).items():
        axes.plot(*point, "o", ms=7, color=INK, mec="white", zorder=5)
        _note(axes, name, point, INK, xytext=(7, 6), textcoords="offset points")
    axes.set(title=title, xlabel="θ₁", ylabel="θ₂")


@panel
def bands(
    axes: Axes,
    steps: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    tracks: Mapping[str, np.ndarray],
    *,
    target: Number | None = None,
    title: str = "",
    xlabel: str = "iteration",
    ylabel: str = "",
    legend: bool = False,
) -> None:
    """A shrinking interval over steps with iterates inside it and the value sought."""
    axes.fill_between(
        steps, low, high, color=COLOURS["accurate integrals"], alpha=0.22, lw=0, label="bounds"
    )
    for (name, values), colour in zip(tracks.items(), CLASSES, strict=False):
        axes.plot(np.arange(len(values)), values, "o-", ms=3, lw=1.2, color=colour, label=name)
    if target is not None:
        axes.axhline(target, color=INK, lw=1, dashes=(1, 1.5), label="root")
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if legend:
        axes.legend(loc="upper right")


def _label_ends(axes: Axes, ends: list[tuple[float, str]], colours: Mapping[str, str]) -> None:
    """Names at the right edge, apart from each other and as near to their lines as that allows."""
    low, high = np.log10(axes.get_ylim())
    steps = 0.062 * (high - low) * np.arange(len(ends))
    ends = sorted(ends)
    wanted = np.array([np.log10(np.clip(value, 10**low, 10**high)) for value, _ in ends])
    places = isotonic_regression(wanted - steps, y_min=low, y_max=high - steps[-1]) + steps
    look = {"textcoords": ("axes fraction", "data"), "xycoords": ("axes fraction", "data")}
    for (value, name), place in zip(ends, places, strict=True):
        colour, at = colours.get(name, INK), (1.0, float(np.clip(value, 10**low, 10**high)))
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkA": 2, "shrinkB": 0}
        leader |= {"relpos": (0.0, 0.5)}
        _note(
            axes,
            name,
            at,
            colour,
            xytext=(1.035, 10**place),
            va="center",
            arrowprops=leader,
            **look,
        )


def _note(axes: Axes, text: str, at: Sequence[float] | np.ndarray, colour: str, **look) -> None:
    point = (float(at[0]), float(at[1]))
    axes.annotate(text, point, color=colour, fontweight="bold", annotation_clip=False, **look)
