"""Horizontal bars from zero with their values written out: counts of a funnel, shares by reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.charts import axes, svg

ROW = 34


@dataclass(frozen=True)
class Bar:
    """One bar. ``series`` picks its look (0 is the accent), ``note`` is written behind the value."""

    label: str
    value: float
    note: str = ""
    series: int = 0


def bars(rows: Sequence[Bar], *, title: str, form: axes.Format = axes.plain, full: float | None = None) -> Markup:
    """Bars with labels above them, so that long labels need no room at the side.

    ``full`` is the value of a whole track; default: the largest value.
    """
    row = ROW + 8
    most = full or max((entry.value for entry in rows), default=0) or 1
    room = svg.WIDTH - 4.0
    parts: list[Markup] = []
    for index, entry in enumerate(rows):
        y = row * index
        value = form(entry.value) + (f"  {entry.note}" if entry.note else "")
        parts += [svg.text(entry.label, 2, y + 15), svg.text(value, svg.WIDTH - 2, y + 15, anchor="end", class_="value")]
        parts += [svg.rectangle(2, y + 22, room, 10, "track", radius=3)]
        parts += [
            svg.rectangle(
                2,
                y + 22,
                max(room * entry.value / most, 2 if entry.value else 0),
                10,
                f"fill s{entry.series}",
                f"{entry.label}: {value}",
                3,
            )
        ]
    description = "; ".join(f"{entry.label}: {form(entry.value)}{' ' + entry.note if entry.note else ''}" for entry in rows)
    return svg.drawing(parts, height=row * len(rows), title=title, description=f"{description}.")
