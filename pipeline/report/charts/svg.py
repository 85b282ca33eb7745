"""SVG text: elements with escaped attributes, and the frame that every chart shares.

A chart is drawn in a fixed coordinate system and scales with its box (``viewBox``). It takes its colours from the page's CSS
(classes ``s0``, ``s1`` … for series), so one drawing serves light and dark. Colour never carries a meaning alone: series differ in
dash, marker or position as well, and everything has a text.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

WIDTH = 460
"""Width of a chart in its own units: close to its size on a phone, so that labels stay readable there."""

Attribute = str | float | int


def element(tag: str, content: str | Markup | Iterable[Markup] = "", **attributes: Attribute) -> Markup:
    """``<tag …>content</tag>``. Text is escaped unless it is Markup; ``class_`` becomes ``class`` and ``_`` becomes ``-``."""
    inner = escape(content) if isinstance(content, str) else Markup("").join(content)
    return Markup("<{}{}>{}</{}>").format(tag, _attributes(attributes), inner, tag)


def text(content: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """A line of text."""
    return element("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rectangle(x: float, y: float, width: float, height: float, class_: str, tip: str = "", radius: float = 0) -> Markup:
    """A rectangle; ``tip`` is what a pointer or a screen reader gets for it."""
    corner: dict[str, Attribute] = {"rx": radius} if radius else {}
    return element("rect", _tip(tip), x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_, **corner)


def marker(series: int, x: float, y: float, size: float = 4.0, tip: str = "") -> Markup:
    """The mark of a series: circle, square, diamond or triangle, so that series differ without colour."""
    class_ = f"mark s{series}"
    shapes = (
        ((x - size, y - size), (x + size, y - size), (x + size, y + size), (x - size, y + size)),
        ((x, y - 1.35 * size), (x + 1.35 * size, y), (x, y + 1.35 * size), (x - 1.35 * size, y)),
        ((x, y - 1.3 * size), (x + 1.25 * size, y + size), (x - 1.25 * size, y + size)),
    )
    if series % 4 == 0:
        return element("circle", _tip(tip), cx=x, cy=y, r=size, class_=class_)
    points = " ".join(f"{number(a)},{number(b)}" for a, b in shapes[series % 4 - 1])
    return element("polygon", _tip(tip), points=points, class_=class_)


def polyline(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return element("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=class_)


def area(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A filled outline."""
    return element("polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=class_)


def drawing(parts: Iterable[Markup], *, height: float, title: str, description: str, width: float = WIDTH, class_: str = "chart") -> Markup:
    """The finished drawing with its title and description for those who cannot see it."""
    head = [element("title", title), element("desc", description)]
    box = f"0 0 {number(width)} {number(height)}"
    return element("svg", [*head, *parts], viewBox=box, role="img", class_=class_)


def number(value: float) -> str:
    """A coordinate with at most one decimal: enough for a screen, and short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _attributes(attributes: dict[str, Attribute]) -> Markup:
    pairs = ((name.rstrip("_").replace("_", "-"), value if isinstance(value, str) else number(value)) for name, value in attributes.items())
    return Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in pairs)


def _tip(tip: str) -> list[Markup]:
    return [element("title", tip)] if tip else []
