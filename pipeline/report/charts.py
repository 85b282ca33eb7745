"""Charts of numbers over numbers as inline SVG, without script and without a library: distributions, scatter plots, lines, calibration.

Colour never carries a meaning alone: series differ in dash, marker or position as well, and every chart has a description in words.

Why no library: matplotlib, which is a dependency, draws the same charts as well, but its SVG is five times as large (12 kB instead of
2.4 kB), takes 60 times as long (60 ms instead of 1 ms; a report has thirty), fixes colours, so that a dark page needs another drawing,
and sets text for its own font, so that labels collide in the reader's. Altair (33 MB with the converter that makes SVG of it) and plotly
(10 MB, and Chrome to make SVG) would otherwise need a script in the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from pipeline.report.svg import Format, Scale, empty_plot, empty_rows, line, marker, padded, rectangle, round_values, shape, shortened, text
from pipeline.words import percent, plain

BINS = 28
MOST_POINTS = 160
"""A longer line is drawn as means of equal stretches; the chart says so."""
MOST_DOTS = 420
"""Of more points a scatter plot draws every k-th; the chart says so."""


@dataclass(frozen=True)
class Series:
    """A named line; x ascending. ``band``: lower and upper bounds of y, drawn behind it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Bin:
    """Pairs of similar confidence: their mean predicted probability, the observed share, their number."""

    confidence: float
    accuracy: float
    count: int


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
    plot = empty_plot(Scale(x_label, low, high), y, list(samples))
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
    labels = [f"{shortened(name, 24)} ({len(values):,})" for name, values in groups.items()]
    scale = Scale(x_label, *padded((value for five in quantiles.values() for value in five), 0.04))
    plot, middles = empty_rows(labels, scale, 28)
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
    plot = empty_plot(x, y, list(groups), area=186)
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
    plot = empty_plot(x, Scale(y_label, *padded(levels), form), names, dashes=True)
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
    plot = empty_plot(x, y, area=234)
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
