"""Distributions of one number in several groups, one row per group: 5 to 95 % as a line, the middle half as a bar, the median as a mark."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from pipeline.report.charts import axes, svg

ROW = 28
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
LONGEST = 24
"""Characters of a label; the rest is in its tip."""


def boxes(groups: Mapping[str, np.ndarray], *, title: str, x_label: str) -> Markup:
    """``groups`` maps a name to values [n], drawn in the given order with n behind the name."""
    quantiles = {name: np.quantile(values, LEVELS).tolist() for name, values in groups.items()}
    labels = {name: f"{_short(name)} ({len(values):,})" for name, values in groups.items()}
    left = min(max(7.4 * max(len(label) for label in labels.values()) + 12, 70), 235)
    height = 12 + ROW * len(groups) + 44
    plot = axes.Axes(
        x=axes.padded([value for five in quantiles.values() for value in five], 0.04), y=(0, 1), box=(left, 12, svg.WIDTH - 12, height - 44)
    )
    ticks = axes.ticks(*plot.x)
    parts = [svg.line(plot.at_x(tick), plot.box[1], plot.at_x(tick), plot.box[3], "grid") for tick in ticks]
    parts += plot.x_ticks(ticks, axes.plain)
    parts.append(svg.text(x_label, (plot.box[0] + plot.box[2]) / 2, height - 8, anchor="middle", class_="axis"))
    for row, (name, (low, first, middle, third, high)) in enumerate(quantiles.items()):
        y = plot.box[1] + ROW * (row + 0.5)
        tip = f"{name}: median {middle:.2f}, middle half {first:.2f} to {third:.2f}, 5 to 95 % {low:.2f} to {high:.2f}"
        parts += [
            svg.text(labels[name], left - 8, y + 4, anchor="end"),
            svg.line(plot.at_x(low), y, plot.at_x(high), y, "whisker s4"),
            svg.rectangle(plot.at_x(first), y - 6, plot.at_x(third) - plot.at_x(first), 12, "fill s0 soft", tip),
            svg.marker(0, plot.at_x(middle), y, 4.5, tip),
        ]
    described = "; ".join(f"{name}: {len(values):,} values, median {quantiles[name][2]:.2f}" for name, values in groups.items())
    return svg.drawing(parts, height=height, title=title, description=f"{x_label} by group. {described}.")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
