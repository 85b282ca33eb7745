"""The flow of a run as boxes and arrows, drawn twice: in two rows for wide screens, in one column for narrow ones.

The ``upper`` nodes lead to the reward model, the last of them. It and the first of the ``lower`` nodes lead to the second of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report import charts

TITLE = "Flow of the run"


@dataclass(frozen=True)
class Node:
    """A product of the run: its name, its amount (empty while there is none; then ``absent`` is shown), and a remark."""

    name: str
    amount: str
    note: str = ""
    absent: str = "not done"


def wide(upper: Sequence[Node], lower: Sequence[Node]) -> Markup:
    """Two rows: ratings become a reward model, which turns raw edits into selected ones."""
    width, height, gap, row_gap = 172.0, 88.0, 32.0, 64.0
    total = 5 * width + 4 * gap
    parts: list[Markup] = []
    for row, nodes in enumerate((upper, lower)):
        y = row * (height + row_gap) + 1
        for column, node in enumerate(nodes):
            x = column * (width + gap) + 1
            parts += _box(node, x, y, width, height)
            if column:
                parts.append(_arrow([(x - gap + 3, y + height / 2), (x - 3, y + height / 2)]))
    x_from, x_to = (len(upper) - 0.5) * (width + gap) - gap / 2, 1.5 * (width + gap) - gap / 2
    middle = height + row_gap / 2
    parts.append(_arrow([(x_from, height + 4), (x_from, middle), (x_to, middle), (x_to, height + row_gap - 2)]))
    parts.append(charts.text("scores", x_to + 10, middle - 7, class_="tick"))
    return charts.drawing(parts, 2 * height + row_gap + 2, TITLE, _described(upper, lower), width=total + 2, class_="flow")


def tall(upper: Sequence[Node], lower: Sequence[Node]) -> Markup:
    """One column; the reward model and the raw edits are side by side, above what is made from both."""
    width, height, gap = 360.0, 72.0, 28.0
    half = (width - 16) / 2
    parts: list[Markup] = []
    y = 1.0
    *before, model = upper
    raw, *after = lower
    for index, node in enumerate(before):
        parts += _box(node, 1, y, width, height)
        y += height + gap
        x = width / 2 if index < len(before) - 1 else half / 2
        parts.append(_arrow([(x, y - gap + 3), (x, y - 3)]))
    parts += _box(model, 1, y, half, height) + _box(raw, half + 17, y, half, height)
    y += height + gap
    parts += [_arrow([(x, y - gap + 3), (x, y - 3)]) for x in (half / 2, width - half / 2)]
    for index, node in enumerate(after):
        if index:
            parts.append(_arrow([(width / 2, y - gap + 3), (width / 2, y - 3)]))
        parts += _box(node, 1, y, width, height)
        y += height + gap
    return charts.drawing(parts, y - gap + 2, TITLE, _described(upper, lower), width=width + 2, class_="flow tall")


def _box(node: Node, x: float, y: float, width: float, height: float) -> list[Markup]:
    class_ = "box" if node.amount else "box undone"
    top = y + (height - 62) / 2
    parts = [charts.rectangle(x, y, width, height, class_, rx=8), charts.text(node.name, x + 14, top + 14, class_="axis")]
    parts.append(charts.text(node.amount or node.absent, x + 14, top + 38, class_="big" if node.amount else "tick"))
    return [*parts, charts.text(node.note, x + 14, top + 57, class_="small")]


def _arrow(points: list[tuple[float, float]]) -> Markup:
    """A line with a head in the direction of its last piece (right or down)."""
    (x0, _), (x, y) = points[-2:]
    back, side = 7.0, 4.0
    corners = ((x, y), (x - back, y - side), (x - back, y + side)) if x != x0 else ((x, y), (x - side, y - back), (x + side, y - back))
    head = charts.shape("polygon", corners, "head")
    return charts.element("g", [charts.shape("polyline", points, "arrow"), head])


def _described(upper: Sequence[Node], lower: Sequence[Node]) -> str:
    def words(node: Node) -> str:
        return f"{node.name}: {node.amount or node.absent}{f' ({node.note})' if node.note else ''}"

    return f"{' → '.join(map(words, upper))}. With it, {' → '.join(map(words, lower))}."
