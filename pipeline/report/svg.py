"""Elements of a chart as inline SVG: text, shapes, markers, scales, and empty plots with their axes.

A chart is drawn in a fixed coordinate system and scales with its box (``viewBox``). It takes its colours from the page's CSS
(classes ``s0``, ``s1`` … for series), so one drawing serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from pipeline.words import plain

Format = Callable[[float], str]
Attribute = str | float | int
Point = tuple[float, float]

WIDTH = 460
"""Width of a chart in its own units: close to its size on a phone, so that labels stay readable there."""
CHARACTER = 8.0
"""Width of a character of a label, in the larger type of a phone."""
LONGEST = 28
"""Characters of a row's label."""


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


def drawing(parts: Iterable[Markup], height: float, title: str, description: str) -> Markup:
    """The finished drawing with its title and description for those who cannot see it."""
    head = [element("title", title), element("desc", description)]
    return element("svg", [*head, *parts], viewBox=f"0 0 {WIDTH} {number(height)}", role="img", class_="chart")


def number(value: float) -> str:
    """A coordinate with at most one decimal: enough for a screen, and short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _tip(tip: str) -> list[Markup]:
    return [element("title", tip)] if tip else []


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


def empty_plot(x: Scale, y: Scale, names: Sequence[str] = (), *, area: float = 146, dashes: bool = False) -> Plot:
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


def empty_rows(labels: Sequence[str], x: Scale, row: float, *, top: float = 12, right: float = WIDTH - 12) -> tuple[Plot, list[float]]:
    """An empty plot with a labelled row per entry and vertical grid lines; also the height of the middle of each row."""
    left = max(CHARACTER * max(len(label) for label in labels) + 14, 70)
    plot = Plot(x, Scale("", 0, 1), (left, top, right, top + row * len(labels)))
    middles = [top + row * (index + 0.5) for index in range(len(labels))]
    plot.parts.extend(line(plot.at_x(tick), top, plot.at_x(tick), plot.box[3], "grid") for tick in x.marks)
    plot.parts.extend(text(label, left - 8, y + 4, anchor="end") for label, y in zip(labels, middles, strict=True))
    plot.x_axis(below=36 if x.marks else 18)
    return plot, middles


def shortened(label: str, longest: int = LONGEST) -> str:
    """The label, cut with an ellipsis where it is longer."""
    return label if len(label) <= longest else label[: longest - 1] + "…"
