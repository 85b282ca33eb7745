"""Calibration: how often the preferred edit won, by how sure the model was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.charts import axes, svg


@dataclass(frozen=True)
class Bin:
    """Pairs of similar confidence: their mean confidence, the share that came out so, how many."""

    confidence: float
    accuracy: float
    count: int


def calibration(bins: Sequence[Bin], *, title: str) -> Markup:
    """Dots sized by count against the diagonal of perfect calibration, with the counts written beside them."""
    height, top = 310, 34
    lowest = min([0.5, *(value for entry in bins for value in (entry.confidence, entry.accuracy))])
    span = (max(lowest - 0.02, 0.0), 1.02)
    plot = axes.Axes(x=span, y=span, box=(54, top, svg.WIDTH - 24, height - 42))
    ticks = axes.ticks(span[0], 1.0)
    parts = (
        plot.horizontal_grid(ticks, axes.percent)
        + plot.x_ticks(ticks, axes.percent)
        + plot.labels("predicted probability", "observed share")
    )
    start = span[0]
    parts.append(svg.line(plot.at_x(start), plot.at_y(start), plot.at_x(1), plot.at_y(1), "reference"))
    points = [(plot.at_x(entry.confidence), plot.at_y(entry.accuracy)) for entry in bins]
    parts.append(svg.polyline(points, "line s0 thin"))
    largest = max((entry.count for entry in bins), default=1) or 1
    for (x, y), entry in zip(points, bins, strict=True):
        tip = f"predicted {entry.confidence:.2f}, observed {entry.accuracy:.2f}, {entry.count:,} pairs"
        parts.append(svg.marker(0, x, y, 3 + 6 * (entry.count / largest) ** 0.5, tip))
        parts.append(svg.text(f"{entry.count:,}", x, y + 22, anchor="middle", class_="small"))
    described = "; ".join(f"predicted {100 * b.confidence:.0f} %, observed {100 * b.accuracy:.0f} % of {b.count:,}" for b in bins)
    return svg.drawing(
        parts, height=height, title=title, description=f"Observed against predicted; the dashed diagonal is perfect. {described}."
    )
