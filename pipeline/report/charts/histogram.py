"""Distributions of one number over the same bins: the first as columns, the others as stepped lines on top."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from pipeline.report.charts import axes, svg

BINS = 28


def histogram(samples: Mapping[str, np.ndarray], *, title: str, x_label: str) -> Markup:
    """``samples`` maps a name to its values [n]. Heights are shares of each sample, so samples of different size compare."""
    samples = {name: values for name, values in samples.items() if len(values)}
    low, high = axes.padded([float(end) for values in samples.values() for end in (values.min(), values.max())], 0.02)
    edges = np.linspace(low, high, BINS + 1)
    shares = {name: np.histogram(values, edges)[0] / len(values) for name, values in samples.items()}
    parts, top = axes.legend(list(samples))
    height = top + 188
    plot = axes.Axes(
        x=(low, high), y=(0, max(float(share.max()) for share in shares.values()) * 1.08), box=(54, top, svg.WIDTH - 12, height - 42)
    )
    parts += plot.horizontal_grid(axes.ticks(*plot.y, about=4), axes.percent)
    parts += plot.x_ticks(axes.ticks(low, high), axes.plain) + plot.labels(x_label, "share of the sample")
    for index, (name, share) in enumerate(shares.items()):
        if index == 0:
            for i, value in enumerate(share):
                x, y = plot.at_x(edges[i]), plot.at_y(value)
                parts.append(svg.rectangle(x, y, plot.at_x(edges[i + 1]) - x - 0.8, plot.box[3] - y, "fill s0 soft"))
        else:
            corners = [(plot.at_x(edge), plot.at_y(value)) for i, value in enumerate(share) for edge in edges[i : i + 2]]
            parts += [svg.polyline(corners, f"line s{index}"), _mark(plot, index, name, samples[name])]
    described = "; ".join(f"{name}: {len(values):,} values, median {np.median(values):.3f}" for name, values in samples.items())
    return svg.drawing(parts, height=height, title=title, description=f"Distribution of {x_label}. {described}.")


def _mark(plot: axes.Axes, series: int, name: str, values: np.ndarray) -> Markup:
    """The series' mark at its median, on the axis."""
    median = float(np.median(values))
    return svg.marker(series, plot.at_x(median), plot.box[3], 4.5, f"{name}: median {median:.3f}")
