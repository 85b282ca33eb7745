"""Axes: round tick values, the mapping from data to coordinates, grid lines, labels and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.charts import svg

Format = Callable[[float], str]


@dataclass(frozen=True)
class Axes:
    """A plot area inside a drawing. ``x`` and ``y`` are (lowest, highest) data values, ``box`` is (left, top, right, bottom)."""

    x: tuple[float, float]
    y: tuple[float, float]
    box: tuple[float, float, float, float]

    def at_x(self, value: float) -> float:
        """Horizontal coordinate of a data value."""
        left, _, right, _ = self.box
        return left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (right - left)

    def at_y(self, value: float) -> float:
        """Vertical coordinate of a data value."""
        _, top, _, bottom = self.box
        return bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (bottom - top)

    def horizontal_grid(self, ticks: Sequence[float], form: Format) -> list[Markup]:
        """Grid lines with their values at the left."""
        left, _, right, _ = self.box
        lines = [svg.line(left, self.at_y(tick), right, self.at_y(tick), "grid") for tick in ticks]
        return lines + [svg.text(form(tick), left - 7, self.at_y(tick) + 4, anchor="end", class_="tick") for tick in ticks]

    def x_ticks(self, ticks: Sequence[float], form: Format) -> list[Markup]:
        """Values below the plot."""
        right = self.box[2]
        ends = [self.at_x(tick) > right - 12 for tick in ticks]  # a label at the very end would be cut off
        return [
            svg.text(form(tick), min(self.at_x(tick), right + 6), self.box[3] + 17, anchor="end" if end else "middle", class_="tick")
            for tick, end in zip(ticks, ends, strict=True)
        ]

    def labels(self, x: str, y: str) -> list[Markup]:
        """What the axes are: ``y`` above its axis, ``x`` below the middle."""
        left, top, right, bottom = self.box
        return [svg.text(y, 2, top - 10, class_="axis"), svg.text(x, (left + right) / 2, bottom + 36, anchor="middle", class_="axis")]


def padded(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Range of the values with a margin; one single value gets a range around it."""
    low, high = min(values), max(values)
    margin = (high - low) * share or max(abs(high) * share, 0.5)
    return low - margin, high + margin


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) inside the range."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 10) for i in range(count)]


def plain(value: float) -> str:
    """A tick value without needless digits."""
    return f"{value:,.6g}".replace("-", "−")


def percent(value: float) -> str:
    """A share as a whole percentage."""
    return f"{100 * value:.0f}\u202f%"


def legend(names: Sequence[str], *, lines: bool = False) -> tuple[list[Markup], float]:
    """Names of the series with their marks, in as many rows as they need, and where a plot below them can begin."""
    parts: list[Markup] = []
    x, y = 2.0, 16.0
    for series, name in enumerate(names):
        mark = 28 if lines else 20
        width = mark + 7.2 * len(name)
        if x > 2 and x + width > svg.WIDTH:
            x, y = 2.0, y + 20
        parts.append(svg.line(x, y - 4, x + 22, y - 4, f"line s{series}") if lines else svg.marker(series, x + 8, y - 4, 4.5))
        parts.append(svg.text(name, x + mark, y))
        x += width + 18
    return parts, y + 46 if parts else 34.0
