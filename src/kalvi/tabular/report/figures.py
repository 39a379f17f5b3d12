"""Figures as SVG: curves, reliability, coverage, intervals, and the gauge of Pareto k.

Marks are placed in percent of a box of any width, and text beside it in pixels, so that a figure is legible
on a phone as on a wide screen. Curves are drawn in a box of 100 × 100 units that is stretched to the same
size, with strokes that are not stretched. Colours are those of the page.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from kalvi.tabular.report import formatting
from kalvi.tabular.report.axes import Number, Scale, counting, covering
from kalvi.tabular.report.rendering import Child, element, join

LEAST_DOT, MOST_DOT = 3.0, 8.0
GAUGE = Scale(0.0, 1.2)
CORRELATIONS = Scale(-1.0, 1.0)
USABLE, POOR = 0.5, 0.7
"""Pareto k up to which averages converge at the usual rate, and at all in practice."""


class Effect(NamedTuple):
    """A number with its interval; unknown parts are NaN."""

    mean: Number
    lower: Number
    upper: Number

    @property
    def side(self) -> str:
        """The sign of the effect: `up`, `down`, or `flat` if the interval contains zero."""
        if self.lower > 0 or (math.isnan(self.lower) and self.mean > 0):
            return "up"
        return "down" if self.upper < 0 or (math.isnan(self.upper) and self.mean < 0) else "flat"


def learning_curve(
    rows: Sequence[Number],
    series: Mapping[str, Sequence[Number]],
    what: str,
    against: str = "rows",
) -> Markup:
    """Curves against the number of rows, with the last point of each marked."""
    x = counting(rows)
    values = [v for curve in series.values() for v in curve if math.isfinite(v)]
    y = covering(_without_start(values))
    marks = []
    for i, (name, curve) in enumerate(series.items()):
        points = [(r, v) for r, v in zip(rows, curve, strict=False) if r > 0 or not x.log]
        ends = [p for p in points if math.isfinite(p[1])][-1:]
        marks += [_line(points, x, y, class_=f"line s{i}")]
        marks += [
            _dot(x.clipped(r), y.clipped(v), 4, f"dot s{i}", f"{name}: {formatting.number(v)}")
            for r, v in ends
        ]
    title = f"Learning curve: {what} against {against}"
    plot = _axes(title, x, y, *reversed(marks), titles=(against, what), class_="wide")
    above = max(values, default=y.low) > y.high
    note = "The first points lie above the frame."
    return join(plot, element("p", note, class_="note") if above else None)


def reliability(
    predicted: Sequence[Number],
    observed: Sequence[Number],
    counts: Sequence[Number],
    title: str,
    *,
    titles: tuple[str, str] = ("predicted", "observed"),
) -> Markup:
    """Observed against predicted frequency: a dot for each bin, its 95 % interval, and the line y = x."""
    bins = [
        b
        for b in zip(predicted, observed, counts, strict=False)
        if all(map(math.isfinite, b)) and b[2] > 0
    ]
    scale = _shares([v for p, o, _ in bins for v in (p, o)])
    most = max((n for *_, n in bins), default=1.0)
    marks = [_line([(scale.low, scale.low), (scale.high, scale.high)], scale, scale, "ideal")]
    for p, o, n in bins:
        marks.append(_upright(scale(p), map(scale.clipped, wilson(o, n)), "whisker"))
        radius = LEAST_DOT + (MOST_DOT - LEAST_DOT) * math.sqrt(n / most)
        shares = f"predicted {formatting.percent(p)}, observed {formatting.percent(o)}"
        hint = f"{formatting.count(n, 'row')}: {shares}"
        marks.append(_dot(scale.clipped(p), scale.clipped(o), radius, "dot s0 soft", hint))
    return _axes(title, scale, scale, *marks, titles=titles, percent=True, class_="square")


def coverage(level: Sequence[Number], observed: Sequence[Number], n: Number, title: str) -> Markup:
    """Observed against nominal coverage of intervals, with 95 % intervals and the line y = x."""
    pairs = [p for p in zip(level, observed, strict=False) if all(map(math.isfinite, p))]
    low = min((v for p in pairs for v in p), default=0.0)
    scale = Scale(max(0.0, math.floor(10 * low - 0.5) / 10), 1.0)
    marks = [_line([(scale.low, scale.low), (scale.high, scale.high)], scale, scale, "ideal")]
    for nominal, o in pairs:
        if n > 0:
            marks.append(_upright(scale(nominal), map(scale.clipped, wilson(o, n)), "whisker"))
        hint = f"{formatting.percent(nominal)} intervals held {formatting.percent(o)}"
        marks.append(_dot(scale.clipped(nominal), scale.clipped(o), 5, "dot s0", hint))
    return _axes(
        title, scale, scale, *marks, titles=("nominal", "observed"), percent=True, class_="square"
    )


def effect_scale(effects: Sequence[Effect]) -> Scale:
    """A common scale for effects: it covers zero, the means, and all but very wide intervals."""
    means = [abs(e.mean) for e in effects if math.isfinite(e.mean)]
    bound = 3 * max(means, default=0.0) or math.inf
    ends = [v for e in effects for v in e if abs(v) <= bound]
    return covering(ends, zero=True, margin=0.04)


def interval(
    effect: Effect, scale: Scale, *, ticks: int = 5, mark: Number = math.nan, side: str = ""
) -> Markup:
    """One row of a figure of intervals: a line from lower to upper, and a dot at the mean.

    The grid runs from edge to edge, so that rows below one another look like one figure. A hollow dot at
    `mark` shows what was observed. The colour is that of `side`, or of the effect's own side.
    """
    children: list[Child] = [
        _upright(scale(v), (0, 1), "grid" if v else "zero") for v in scale.ticks(ticks)
    ]
    if all(map(math.isfinite, effect[1:])):
        children.append(_level(map(scale.clipped, effect[1:]), 0.5, "bar"))
    if math.isfinite(effect.mean):
        children.append(_dot(scale.clipped(effect.mean), 0.5, 4, "dot"))
    if math.isfinite(mark):
        children.append(_dot(scale.clipped(mark), 0.5, 5, "hollow"))
    lower, upper = map(formatting.number, effect[1:])
    label = f"{formatting.number(effect.mean)}, 95 % from {lower} to {upper}"
    return _svg(label, *children, class_=f"interval {side or effect.side}")


def ruler(scale: Scale, *, ticks: int = 5, percent: bool = False) -> Markup:
    """The axis labels below rows of intervals."""
    say = _say_percent if percent else formatting.short
    labels = (_label(say(v), scale(v), y=14) for v in scale.ticks(ticks))
    return _svg("scale", *labels, class_="ruler")


def strip(shares: Sequence[Number], label: str) -> Markup:
    """Bars side by side; the highest is as high as the box."""
    n, most = len(shares), max(shares, default=0.0) or 1.0
    bars = (_box((i + 0.1) / n, 0.8 / n, 0, share / most) for i, share in enumerate(shares))
    return _svg(label, *bars, class_="strip")


def spread(least: Number, most: Number, mean: Number, std: Number) -> Markup | None:
    """The range as a line, and on it a bar one standard deviation to either side of the mean."""
    if not (all(map(math.isfinite, (least, most, mean))) and least < most):
        return None
    scale = Scale(least, most)
    std = std if math.isfinite(std) else 0.0
    left, right = scale.clipped(mean - std), scale.clipped(mean + std)
    return _svg(
        f"from {formatting.number(least)} to {formatting.number(most)}, mean {formatting.number(mean)}",
        _level((0, 1), 0.5, "grid"),
        _level((left, right), 0.5, "band"),
        _dot(scale.clipped(mean), 0.5, 3, "dot s0"),
        class_="strip low",
    )


def share(value: Number, label: str, side: str = "up") -> Markup:
    """A bar as long as the size of the value, at most 1."""
    if not math.isfinite(value):
        return join(formatting.ABSENT)
    return _svg(label, _box(0, min(abs(value), 1.0), 0.25, 0.5), class_=f"share {side}")


def band(
    position: Sequence[Number],
    mean: Sequence[Number],
    std: Sequence[Number],
    title: str,
    *,
    along: str,
    say: Callable[[Number], str] = formatting.short,
) -> Markup:
    """A curve with a band of two standard deviations to either side."""
    points = [p for p in zip(position, mean, std, strict=False) if all(map(math.isfinite, p))]
    x = Scale(min((p[0] for p in points), default=0.0), max((p[0] for p in points), default=1.0))
    x = x if x.low < x.high else Scale(x.low - 0.5, x.high + 0.5)
    y = covering([v for _, m, s in points for v in (m - 2 * s, m + 2 * s)], zero=True)
    edge = [(a, m + 2 * s) for a, m, s in points] + [(a, m - 2 * s) for a, m, s in points[::-1]]
    marks = [
        _line(edge, x, y, "area"),
        _line([(x.low, 0.0), (x.high, 0.0)], x, y, "ideal"),
        _line([p[:2] for p in points], x, y, "line s0"),
    ]
    titles = (along, "mean ± 2 sd")
    return _axes(title, x, y, *marks, titles=titles, class_="wide short", say=say, ticks=3)


def gauge(k: Number) -> Markup:
    """Pareto k on an axis with its three regions."""
    regions = ((GAUGE.low, USABLE, "good"), (USABLE, POOR, "usable"), (POOR, GAUGE.high, "poor"))
    children: list[Child] = []
    for low, high, name in regions:
        left, right = GAUGE(low), GAUGE(high)
        children.append(_box(left, right - left, 0.4, 0.2, f"region {name}"))
        children.append(_label(name, (left + right) / 2, y="18%"))
    ends = (0.0, USABLE, POOR, 1.0)
    children += [_label(formatting.number(v), GAUGE(v), y="98%") for v in ends]
    if not math.isnan(k):
        children.append(_dot(GAUGE.clipped(k), 0.5, 7, "needle"))
    return _svg(f"Pareto k is {formatting.number(k, 2)}", *children, class_="gauge")


def wilson(share: Number, n: Number, z: Number = 1.959963984540054) -> tuple[Number, Number]:
    """Wilson's (1927) 95 % interval of a probability, given the share observed in n trials."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(max(0.0, share * (1 - share)) / n + (z / (2 * n)) ** 2)
    return centre - half, centre + half


def _axes(
    title: str,
    x: Scale,
    y: Scale,
    *marks: Child,
    titles: tuple[str, str],
    class_: str,
    percent: bool = False,
    say: Callable[[Number], str] | None = None,
    ticks: int = 5,
) -> Markup:
    """A box with marks, a grid and axis labels; `say` writes the labels of the x axis."""
    say_y = _say_percent if percent else formatting.short
    say_x = say or say_y
    grid: list[Child] = []
    for v in y.ticks(6):
        grid.append(_level((0, 1), y(v), "grid"))
        beside = {"x": -8, "y": _percent(1 - y(v)), "dy": "0.32em"}
        grid.append(element("text", say_y(v), class_="tick end", **beside))
    below = x.ticks(6 if percent else ticks)
    grid += [_label(say_x(v), x(v), y="100%", dy=20) for v in below]
    grid.append(_level((0, 1), 0, "axis"))
    grid.append(element("text", titles[0], x="100%", y="100%", dy=40, class_="tick end"))
    grid.append(element("text", titles[1], x=-48, y="0%", dy=-16, class_="tick"))
    return element("div", _svg(title, *grid, *marks), class_=f"plot {class_}")


def _svg(label: str, *children: Child, class_: str | None = None) -> Markup:
    return element(
        "svg", element("title", label), *children, role="img", aria_label=label, class_=class_
    )


def _line(points: Sequence[tuple[Number, Number]], x: Scale, y: Scale, class_: str) -> Markup:
    """A curve, broken where a value is missing."""
    path, pen = [], "M"
    for a, b in points:
        if not (math.isfinite(a) and math.isfinite(b)):
            pen = "M"
            continue
        # renderers cannot cope with huge coordinates: those far outside are moved near the box
        height = min(10.0, max(-10.0, y(b)))
        path.append(f"{pen}{100 * x(a):.3f} {100 * (1 - height):.3f}")
        pen = "L"
    curve = element("path", d="".join(path), class_=class_)
    box = {"viewBox": "0 0 100 100", "preserveAspectRatio": "none"}
    return element("svg", curve, width="100%", height="100%", **box) if path else join()


def _dot(x: Number, y: Number, radius: Number, class_: str, hint: str | None = None) -> Markup:
    title = None if hint is None else element("title", hint)
    place = {"cx": _percent(x), "cy": _percent(1 - y), "r": f"{radius:.3g}"}
    return element("circle", title, class_=class_, **place)


def _label(said: str, x: Number, **place: object) -> Markup:
    """Text whose middle is at x."""
    return element("text", said, x=_percent(x), class_="tick middle", **place)


def _box(x: Number, width: Number, bottom: Number, height: Number, class_: str = "fill") -> Markup:
    place = {"x": x, "width": width, "y": 1 - bottom - height, "height": height}
    return element("rect", class_=class_, **{name: _percent(v) for name, v in place.items()})


def _upright(x: Number, ends: Iterable[Number], class_: str) -> Markup:
    low, high = ends
    place = {"x1": x, "x2": x, "y1": 1 - low, "y2": 1 - high}
    return element("line", class_=class_, **{name: _percent(v) for name, v in place.items()})


def _level(ends: Iterable[Number], height: Number, class_: str) -> Markup:
    left, right = ends
    place = {"x1": left, "x2": right, "y1": 1 - height, "y2": 1 - height}
    return element("line", class_=class_, **{name: _percent(v) for name, v in place.items()})


def _shares(values: Sequence[Number]) -> Scale:
    """A scale from 0 to 1, or to less if all shares are small, so that rare events fill the figure."""
    most = max(values, default=1.0)
    steps = [s for s in (0.02, 0.05, 0.1, 0.2, 0.5) if s >= 1.1 * most]
    return Scale(0.0, min(steps, default=1.0))


def _without_start(values: Sequence[Number]) -> list[Number]:
    """The values without outliers that would flatten the curve: losses of the first rows may be huge."""
    ordered = sorted(values)
    if len(ordered) < 8:
        return ordered
    low, middle = ordered[0], ordered[(3 * len(ordered)) // 4]
    return [v for v in ordered if v <= middle + 6 * (middle - low)] if middle > low else ordered


def _percent(share: Number) -> str:
    return f"{100 * share:.3f}%"


def _say_percent(share: Number) -> str:
    return formatting.percent(share)
