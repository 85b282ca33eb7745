"""Points of several groups over two numbers; a large cloud is thinned evenly, and the chart says so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from pipeline.report.charts import axes, svg

MOST_POINTS = 420


def scatter(groups: Mapping[str, np.ndarray], *, title: str, x_label: str, y_label: str) -> Markup:
    """``groups`` maps a name to points [n, 2]. Of more than ``MOST_POINTS`` points every k-th is drawn, the same k for all groups."""
    groups = {name: points for name, points in groups.items() if len(points)}
    total = sum(len(points) for points in groups.values())
    every = -(-total // MOST_POINTS)
    everything = np.concatenate(list(groups.values()))
    parts, top = axes.legend(list(groups))
    height = top + 228
    plot = axes.Axes(
        x=axes.padded(everything[:, 0].tolist(), 0.04),
        y=axes.padded(everything[:, 1].tolist(), 0.04),
        box=(54, top, svg.WIDTH - 12, height - 42),
    )
    parts += plot.horizontal_grid(axes.ticks(*plot.y), axes.plain)
    parts += plot.x_ticks(axes.ticks(*plot.x), axes.plain) + plot.labels(x_label, y_label)
    for index, points in enumerate(groups.values()):
        parts += [svg.marker(index, plot.at_x(x), plot.at_y(y), 2.4) for x, y in points[::every].tolist()]
    note = f" Every {every}th of {total:,} points is drawn." if every > 1 else ""
    return svg.drawing(parts, height=height, title=title, description=f"{y_label} against {x_label} for {', '.join(groups)}.{note}")
