"""Charts as inline SVG, without script and without a library.

A chart is drawn in a fixed coordinate system and scales with its box (``viewBox``). It takes its colours from the page's CSS
(classes ``s0``, ``s1`` … for series), so one drawing serves light and dark. Colour never carries a meaning alone: series differ in
dash, marker or position as well, and every chart has a description in words.

Why no library: matplotlib, which is a dependency, draws the same charts as well, but its SVG is five times as large (12 kB instead of
2.4 kB), takes 60 times as long (60 ms instead of 1 ms; a report has thirty), fixes colours, so that a dark page needs another drawing,
and sets text for its own font, so that labels collide in the reader's. Altair (33 MB with the converter that makes SVG of it) and plotly
(10 MB, and Chrome to make SVG) would otherwise need a script in the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from pipeline.words import percent, plain
from reward.evaluation.estimate import Estimate

Format = Callable[[float], str]
Attribute = str | float | int
Point = tuple[float, float]

WIDTH = 460
"""Width of a chart in its own units: close to its size on a phone, so that labels stay readable there."""
CHARACTER = 8.0
"""Width of a character of a label, in the larger type of a phone."""
LONGEST = 28
"""Characters of a row's label."""
BINS = 28
MOST_POINTS = 160
"""A longer line is drawn as means of equal stretches; the chart says so."""
MOST_DOTS = 420
"""Of more points a scatter plot draws every k-th; the chart says so."""
LEAST_NUMBERED = 0.09
"""Share from which a segment of a stacked bar is wide enough for its number."""
DARKEST = 0.52
"""Opacity of the highest level of a stacked bar: the numbers stay readable on it, on a light and on a dark page."""


@dataclass(frozen=True)
class Series:
    """A named line; x ascending. ``band``: lower and upper bounds of y, drawn behind it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Bar:
    """One bar. ``series`` picks its look (0 is the accent), ``note`` is written behind the value."""

    label: str
    value: float
    note: str = ""
    series: int = 0


@dataclass(frozen=True)
class Bin:
    """Pairs of similar confidence: their mean predicted probability, the observed share, their number."""

    confidence: float
    accuracy: float
    count: int


# ---- elements


def element(tag: str, content: str | Markup | Iterable[Markup] = "", **attributes: Attribute) -> Markup:
    """``<tag …>content</tag>``. Text is escaped unless it is Markup; ``class_`` becomes ``class`` and ``_`` becomes ``-``."""
    inner = escape(content) if isinstance(content, str) else Markup("").join(content)
    pairs = ((name.rstrip("_").replace("_", "-"), value if isinstance(value, str) else number(value)) for name, value in attributes.items())
    return Markup("<{}{}>{}</{}>").format(tag, Markup("").join(Markup(' {}="{}"').format(*pair) for pair in pairs), inner, tag)


def text(content: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """A line of text."""
    return element("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rectangle(x: float, y: float, width: float, height: float, class_: str, tip: str = "", **attributes: Attribute) -> Markup:
    """A rectangle; ``tip`` is what a pointer or a screen reader gets for it."""
    return element("rect", _tip(tip), x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_, **attributes)


def shape(tag: str, points: Iterable[Point], class_: str, tip: str = "") -> Markup:
    """A ``polyline`` or ``polygon`` through points."""
    return element(tag, _tip(tip), points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=class_)


def marker(series: int, x: float, y: float, size: float = 4.5, tip: str = "") -> Markup:
    """The mark of a series: circle, square, diamond or triangle, so that series differ without colour."""
    class_ = f"mark s{series}"
    if series % 4 == 0:
        return element("circle", _tip(tip), cx=x, cy=y, r=size, class_=class_)
    corners = (
        ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
        ((0, -1.3), (1.25, 1), (-1.25, 1)),
    )[series % 4 - 1]
    return shape("polygon", [(x + a * size, y + b * size) for a, b in corners], class_, tip)


def drawing(parts: Iterable[Markup], height: float, title: str, description: str, *, width: float = WIDTH, class_: str = "chart") -> Markup:
    """The finished drawing with its title and description for those who cannot see it."""
    head = [element("title", title), element("desc", description)]
    return element("svg", [*head, *parts], viewBox=f"0 0 {number(width)} {number(height)}", role="img", class_=class_)


def number(value: float) -> str:
    """A coordinate with at most one decimal: enough for a screen, and short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _tip(tip: str) -> list[Markup]:
    return [element("title", tip)] if tip else []


# ---- scales and axes


@dataclass(frozen=True)
class Scale:
    """An axis: its label, its lowest and highest value, how values are written, and where its ticks are (default: round values)."""

    label: str
    low: float
    high: float
    form: Format = plain
    ticks: Sequence[float] | None = None

    def at(self, value: float, start: float, end: float) -> float:
        """Coordinate of a data value on an axis that goes from ``start`` to ``end``."""
        return start + (value - self.low) / (self.high - self.low) * (end - start)

    @property
    def marks(self) -> Sequence[float]:
        """Values of the ticks."""
        return round_values(self.low, self.high) if self.ticks is None else self.ticks


@dataclass(frozen=True)
class Plot:
    """A plot area inside a drawing: scales, ``box`` = (left, top, right, bottom), and what is drawn so far."""

    x: Scale
    y: Scale
    box: tuple[float, float, float, float]
    parts: list[Markup] = field(default_factory=list)

    def at_x(self, value: float) -> float:
        """Horizontal coordinate of a data value."""
        return self.x.at(value, self.box[0], self.box[2])

    def at_y(self, value: float) -> float:
        """Vertical coordinate of a data value."""
        return self.y.at(value, self.box[3], self.box[1])

    def at(self, xs: Iterable[float], ys: Iterable[float]) -> list[Point]:
        """Coordinates of points."""
        return [(self.at_x(x), self.at_y(y)) for x, y in zip(xs, ys, strict=True)]

    def x_axis(self, *, below: float = 36) -> None:
        """Tick values below the plot, and under them the axis's label."""
        left, _, right, bottom = self.box
        for tick in self.x.marks:
            x = self.at_x(tick)
            anchor = "end" if x > right - 12 else "middle"  # a label at the very end would be cut off
            self.parts.append(text(self.x.form(tick), min(x, right + 6), bottom + 17, anchor=anchor, class_="tick"))
        self.parts.append(text(self.x.label, (left + right) / 2, bottom + below, anchor="middle", class_="axis"))

    def drawn(self, title: str, description: str, *, below: float = 42) -> Markup:
        """The finished drawing, ``below`` units of which are under the plot area."""
        return drawing(self.parts, self.box[3] + below, title, description)


def padded(values: Iterable[float], share: float = 0.06) -> Point:
    """Range of the values with a margin; one single value gets a range around it."""
    low, high = min(values := list(values)), max(values)
    margin = (high - low) * share or max(abs(high) * share, 0.5)
    return low - margin, high + margin


def round_values(low: float, high: float, about: int = 5) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) inside the range."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 10) for i in range(count)]


def _plot(x: Scale, y: Scale, names: Sequence[str] = (), *, area: float = 146, dashes: bool = False) -> Plot:
    """An empty plot ``area`` units high with a legend of the series above it, in as many rows as it needs, and both axes."""
    parts: list[Markup] = []
    left, row = 2.0, 16.0
    for series, name in enumerate(names):
        mark = 28 if dashes else 20
        width = mark + CHARACTER * len(name)
        if left > 2 and left + width > WIDTH:
            left, row = 2.0, row + 20
        parts.append(line(left, row - 4, left + 22, row - 4, f"line s{series}") if dashes else marker(series, left + 8, row - 4))
        parts.append(text(name, left + mark, row))
        left += width + 18
    top = row + 46 if names else 34.0
    plot = Plot(x, y, (54, top, WIDTH - 12, top + area), parts)
    heights = [(plot.at_y(tick), y.form(tick)) for tick in y.marks]
    parts += [line(54, height, WIDTH - 12, height, "grid") for height, _ in heights]
    parts += [text(value, 47, height + 4, anchor="end", class_="tick") for height, value in heights]
    parts.append(text(y.label, 2, top - 10, class_="axis"))
    plot.x_axis()
    return plot


def _rows(labels: Sequence[str], x: Scale, row: float, *, top: float = 12, right: float = WIDTH - 12) -> tuple[Plot, list[float]]:
    """An empty plot with a labelled row per entry and vertical grid lines; also the height of the middle of each row."""
    left = max(CHARACTER * max(len(label) for label in labels) + 14, 70)
    plot = Plot(x, Scale("", 0, 1), (left, top, right, top + row * len(labels)))
    middles = [top + row * (index + 0.5) for index in range(len(labels))]
    plot.parts.extend(line(plot.at_x(tick), top, plot.at_x(tick), plot.box[3], "grid") for tick in x.marks)
    plot.parts.extend(text(label, left - 8, y + 4, anchor="end") for label, y in zip(labels, middles, strict=True))
    plot.x_axis(below=36 if x.marks else 18)
    return plot, middles


def _short(label: str, longest: int = LONGEST) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"


# ---- charts


def histogram(samples: Mapping[str, np.ndarray], *, title: str, x_label: str) -> Markup:
    """Distributions of one number over the same bins: the first as columns, the others as stepped lines on top.

    ``samples`` maps a name to its values [n]. Heights are shares of each sample, so samples of different size compare.
    """
    samples = {name: values for name, values in samples.items() if len(values)}
    low, high = padded([float(end) for values in samples.values() for end in (values.min(), values.max())], 0.02)
    edges = np.linspace(low, high, BINS + 1)
    shares = {name: np.histogram(values, edges)[0] / len(values) for name, values in samples.items()}
    highest = max(float(share.max()) for share in shares.values()) * 1.08
    y = Scale("share of the sample", 0, highest, percent, round_values(0, highest, about=4))
    plot = _plot(Scale(x_label, low, high), y, list(samples))
    bottom = plot.box[3]
    for series, (name, share) in enumerate(shares.items()):
        if series == 0:
            for start, end, value in zip(edges, edges[1:], share, strict=False):
                x, top = plot.at_x(start), plot.at_y(value)
                plot.parts.append(rectangle(x, top, plot.at_x(end) - x - 0.8, bottom - top, "fill s0 soft"))
        else:  # two corners per bin; the mark on the axis is the median
            median = float(np.median(samples[name]))
            plot.parts.append(shape("polyline", plot.at(np.repeat(edges, 2)[1:-1], np.repeat(share, 2)), f"line s{series}"))
            plot.parts.append(marker(series, plot.at_x(median), bottom, tip=f"{name}: median {median:.3f}"))
    described = "; ".join(f"{name}: {len(values):,} values, median {np.median(values):.3f}" for name, values in samples.items())
    return plot.drawn(title, f"Distribution of {x_label}. {described}.")


def boxes(groups: Mapping[str, np.ndarray], *, title: str, x_label: str) -> Markup:
    """Distributions of one number, one row per group: 5 to 95 % as a line, the middle half as a bar, the median as a mark.

    ``groups`` maps a name to values [n], drawn in the given order with n behind the name.
    """
    quantiles = {name: np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist() for name, values in groups.items()}
    labels = [f"{_short(name, 24)} ({len(values):,})" for name, values in groups.items()]
    scale = Scale(x_label, *padded((value for five in quantiles.values() for value in five), 0.04))
    plot, middles = _rows(labels, scale, 28)
    for y, (name, (low, first, middle, third, high)) in zip(middles, quantiles.items(), strict=True):
        tip = f"{name}: median {middle:.2f}, middle half {first:.2f} to {third:.2f}, 5 to 95 % {low:.2f} to {high:.2f}"
        plot.parts.append(line(plot.at_x(low), y, plot.at_x(high), y, "whisker s4"))
        plot.parts.append(rectangle(plot.at_x(first), y - 6, plot.at_x(third) - plot.at_x(first), 12, "fill s0 soft", tip))
        plot.parts.append(marker(0, plot.at_x(middle), y, tip=tip))
    described = "; ".join(f"{name}: {len(values):,} values, median {quantiles[name][2]:.2f}" for name, values in groups.items())
    return plot.drawn(title, f"{x_label} by group. {described}.", below=44)


def scatter(groups: Mapping[str, np.ndarray], *, title: str, x_label: str, y_label: str) -> Markup:
    """Points of several groups over two numbers: ``groups`` maps a name to points [n, 2].

    Of more than ``MOST_DOTS`` points every k-th is drawn, the same k for all groups.
    """
    groups = {name: points for name, points in groups.items() if len(points)}
    everything = np.concatenate(list(groups.values()))
    every = -(-len(everything) // MOST_DOTS)
    x, y = (Scale(label, *padded(everything[:, column].tolist(), 0.04)) for column, label in enumerate((x_label, y_label)))
    plot = _plot(x, y, list(groups), area=186)
    for series, points in enumerate(groups.values()):
        plot.parts.extend(marker(series, *point, 2.4) for point in plot.at(*points[::every].T))
    note = f" Every {every}th of {len(everything):,} points is drawn." if every > 1 else ""
    return plot.drawn(title, f"{y_label} against {x_label} for {', '.join(groups)}.{note}")


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    form: Format = plain,
    x_form: Format = plain,
    reference: tuple[str, float] | None = None,
) -> Markup:
    """Lines over a common x axis, with markers where points are few; ``reference`` is a named horizontal level such as chance."""
    thinned = [_thinned(entry) for entry in series]
    levels = [value for entry in thinned for values in (entry.y, *(entry.band or ())) for value in values]
    levels += [reference[1]] if reference else []
    x = Scale(x_label, min(entry.x[0] for entry in thinned), max(max(entry.x[-1] for entry in thinned), 1), x_form)
    names = [entry.name for entry in thinned] if len(thinned) > 1 else []
    plot = _plot(x, Scale(y_label, *padded(levels), form), names, dashes=True)
    if reference:
        left, _, right, _ = plot.box
        at = plot.at_y(reference[1])
        plot.parts.append(line(left, at, right, at, "reference"))
        plot.parts.append(text(reference[0], right, at - 5, anchor="end", class_="tick"))
    for index, entry in enumerate(thinned):
        if entry.band:
            outline = plot.at(entry.x, entry.band[0]) + plot.at(entry.x, entry.band[1])[::-1]
            plot.parts.append(shape("polygon", outline, f"fill faint s{index}"))
        points = plot.at(entry.x, entry.y)
        plot.parts.append(shape("polyline", points, f"line s{index}"))
        if len(points) <= 24:
            tips = (f"{entry.name}, {x_label} {x_form(x)}: {form(y)}" for x, y in zip(entry.x, entry.y, strict=True))
            plot.parts.extend(marker(index, *point, 3, tip) for point, tip in zip(points, tips, strict=True))
    ends = "; ".join(f"{entry.name} goes from {form(entry.y[0])} to {form(entry.y[-1])}" for entry in thinned)
    return plot.drawn(title, f"{y_label} over {x_label}: {ends}.")


def curve(name: str, reports: Iterable[Mapping[str, Any]], key: str) -> Series | None:
    """The values of ``key`` by step in the reports of a training, the last one of each step; None of fewer than two."""
    points = {report["step"]: report[key] for report in reports if isinstance(report.get(key), (int, float)) and "step" in report}
    steps = sorted(points)
    return Series(name, steps, [points[step] for step in steps]) if len(steps) > 1 else None


def _thinned(series: Series) -> Series:
    """At most ``MOST_POINTS`` points, each the mean of a stretch."""
    size = -(-len(series.x) // MOST_POINTS)
    if size == 1:
        return series

    def means(values: Sequence[float]) -> list[float]:
        return [sum(values[start : start + size]) / len(values[start : start + size]) for start in range(0, len(values), size)]

    return Series(series.name, means(series.x), means(series.y))


def calibration(bins: Sequence[Bin], *, title: str) -> Markup:
    """How often the preferred edit won, by how sure the model was: dots sized by count against the diagonal of perfect calibration."""
    start = max(min([0.5, *(value for entry in bins for value in (entry.confidence, entry.accuracy))]) - 0.02, 0.0)
    ticks = round_values(start, 1.0)
    x, y = (Scale(label, start, 1.02, percent, ticks) for label in ("predicted probability", "observed share"))
    plot = _plot(x, y, area=234)
    (x0, y0), (x1, y1) = plot.at((start, 1), (start, 1))
    points = plot.at((entry.confidence for entry in bins), (entry.accuracy for entry in bins))
    plot.parts.extend([line(x0, y0, x1, y1, "reference"), shape("polyline", points, "line s0 thin")])
    largest = max((entry.count for entry in bins), default=1) or 1
    for (x, y), entry in zip(points, bins, strict=True):
        tip = f"predicted {entry.confidence:.2f}, observed {entry.accuracy:.2f}, {entry.count:,} pairs"
        plot.parts.append(marker(0, x, y, 3 + 6 * (entry.count / largest) ** 0.5, tip))
        plot.parts.append(text(f"{entry.count:,}", x, y + 22, anchor="middle", class_="small"))
    described = "; ".join(f"predicted {100 * b.confidence:.0f} %, observed {100 * b.accuracy:.0f} % of {b.count:,}" for b in bins)
    return plot.drawn(title, f"Observed against predicted; the dashed diagonal is perfect. {described}.")


def columns(categories: Sequence[str], series: Mapping[str, Sequence[float]], *, title: str, x_label: str, y_label: str) -> Markup:
    """Grouped columns: ``series`` maps a name to one share per category, which is written above its column where it fits."""
    highest = (max((value for values in series.values() for value in values), default=0) or 1) * 1.12
    y = Scale(y_label, 0, highest, percent, round_values(0, highest, about=4))
    plot = _plot(Scale(x_label, 0, len(categories), ticks=()), y, list(series))
    slot, bottom = plot.at_x(1) - plot.at_x(0), plot.box[3]
    width = slot * 0.76 / max(len(series), 1)
    for column, category in enumerate(categories):
        plot.parts.append(text(category, plot.at_x(column + 0.5), bottom + 17, anchor="middle", class_="tick"))
        for index, (name, values) in enumerate(series.items()):
            x, top, value = plot.at_x(column) + slot * 0.12 + width * index, plot.at_y(values[column]), percent(values[column])
            plot.parts.append(rectangle(x + 1, top, width - 2, bottom - top, f"fill s{index}", f"{name}, {category}: {value}", rx=2))
            if width >= 26:
                plot.parts.append(text(_bare(value), x + width / 2, top - 4, anchor="middle", class_="small"))
    return plot.drawn(title, f"{y_label} by {x_label}. {_listed(series, categories)}.")


def stacked(rows: Mapping[str, Sequence[float]], levels: Sequence[str], *, title: str, x_label: str) -> Markup:
    """Distributions over a few ordered levels, one bar per row.

    ``rows`` maps a name to one share per level, lowest level first. Higher levels are darker and further right.
    """
    plot, middles = _rows([_short(name) for name in rows], Scale(x_label, 0, 1, ticks=()), 26, top=30, right=WIDTH - 4)
    plot.parts.append(text(f"from {levels[0]} (lightest) to {levels[-1]} (darkest)", plot.box[0], 16, class_="tick"))
    for y, (name, shares) in zip(middles, rows.items(), strict=True):
        start = 0.0
        for rank, (level, share) in enumerate(zip(levels, shares, strict=True), start=1):
            left, right = plot.at_x(start), plot.at_x(start + share)
            opacity = f"{DARKEST * rank / len(levels):.2f}"
            tip = f"{name}, {level}: {percent(share)}"
            plot.parts.append(rectangle(left, y - 9.5, right - left, 19, "fill s0", tip, fill_opacity=opacity))
            if share >= LEAST_NUMBERED:
                plot.parts.append(text(_bare(percent(share)), (left + right) / 2, y + 4, anchor="middle"))
            start += share
    return plot.drawn(title, f"{x_label}. {_listed(rows, levels)}.", below=24)


def _bare(share: str) -> str:
    return share.removesuffix("\u202f%")


def _listed(rows: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """Every share of every row in words."""

    def listed(shares: Sequence[float]) -> str:
        return ", ".join(f"{name} {percent(share)}" for name, share in zip(names, shares, strict=True))

    return "; ".join(f"{name}: {listed(shares)}" for name, shares in rows.items())


def intervals(
    rows: Sequence[tuple[str, Estimate]],
    *,
    title: str,
    x_label: str,
    form: Format = percent,
    tick_form: Format = percent,
    reference: tuple[str, float] | None = None,
    emphasised: Sequence[str] = (),
) -> Markup:
    """Estimates with their intervals, one per row: a dot, a whisker, and the number in words.

    ``reference`` is a named level, e.g. chance; rows in ``emphasised`` get the accent.
    """
    ends = [value for _, e in rows for value in (e.value, e.low, e.high) if value is not None] + ([reference[1]] if reference else [])
    low, high = padded(ends, 0.08)
    scale = Scale(x_label, low, high, tick_form, round_values(low, high))
    plot, middles = _rows([_short(label) for label, _ in rows], scale, 30, top=34 if reference else 12, right=WIDTH - 64)
    if reference:
        at, (_, top, _, bottom) = plot.at_x(reference[1]), plot.box
        half = CHARACTER * len(reference[0]) / 2
        plot.parts.append(line(at, top - 8, at, bottom, "reference"))
        plot.parts.append(text(reference[0], min(max(at, half), WIDTH - half), top - 13, anchor="middle", class_="tick"))
    for y, (label, estimate) in zip(middles, rows, strict=True):
        series = 0 if not emphasised or label in emphasised else 4
        if estimate.low is not None and estimate.high is not None:
            plot.parts.append(line(plot.at_x(estimate.low), y, plot.at_x(estimate.high), y, f"whisker s{series}"))
        plot.parts.append(marker(series, plot.at_x(estimate.value), y, tip=f"{label}: {estimate.words(form)}"))
        plot.parts.append(text(form(estimate.value), WIDTH - 2, y + 4, anchor="end", class_="value"))
    described = "; ".join(f"{label}: {estimate.words(form)}" for label, estimate in rows)
    return plot.drawn(title, f"{x_label}. {described}.", below=44)


def bars(rows: Sequence[Bar], *, title: str, form: Format = plain, full: float | None = None) -> Markup:
    """Horizontal bars from zero with their values. Each label is above its bar, so it may be long.

    ``full`` is the value of a whole track; default: the largest value.
    """
    most = full or max((entry.value for entry in rows), default=0) or 1
    width, row = WIDTH - 4.0, 42
    parts: list[Markup] = []
    for y, entry in zip(range(0, row * len(rows), row), rows, strict=True):
        value = f"{form(entry.value)}  {entry.note}".rstrip()
        length = max(width * entry.value / most, 2 if entry.value else 0)
        parts += [text(entry.label, 2, y + 15), text(value, WIDTH - 2, y + 15, anchor="end", class_="value")]
        parts.append(rectangle(2, y + 22, width, 10, "track", rx=3))
        parts.append(rectangle(2, y + 22, length, 10, f"fill s{entry.series}", f"{entry.label}: {value}", rx=3))
    described = "; ".join(f"{entry.label}: {form(entry.value)} {entry.note}".rstrip() for entry in rows)
    return drawing(parts, row * len(rows), title, f"{described}.")
