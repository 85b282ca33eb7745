"""Lines over a common x axis, e.g. loss and accuracy over training steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.charts import axes, svg

MOST_POINTS = 160
"""A longer series is drawn as means of equal stretches; the chart says so."""


@dataclass(frozen=True)
class Series:
    """A named line; x ascending. ``band``: lower and upper bounds of y, drawn behind it where points are few."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    form: axes.Format = axes.plain,
    x_form: axes.Format = axes.plain,
    reference: tuple[str, float] | None = None,
) -> Markup:
    """Lines with markers where points are few; ``reference`` is a named horizontal level such as chance."""
    drawn = [_thinned(entry) for entry in series]
    levels = [value for entry in drawn for values in (entry.y, *(entry.band or ())) for value in values]
    levels += [reference[1]] if reference else []
    parts, top = axes.legend([entry.name for entry in drawn] if len(drawn) > 1 else [], lines=True)
    height = top + 188
    plot = axes.Axes(
        x=(min(e.x[0] for e in drawn), max(max(e.x[-1] for e in drawn), 1)),
        y=axes.padded(levels),
        box=(54, top, svg.WIDTH - 12, height - 42),
    )
    parts += plot.horizontal_grid(axes.ticks(*plot.y), form) + plot.x_ticks(axes.ticks(*plot.x), x_form) + plot.labels(x_label, y_label)
    if reference:
        at = plot.at_y(reference[1])
        parts += [
            svg.line(plot.box[0], at, plot.box[2], at, "reference"),
            svg.text(reference[0], plot.box[2], at - 5, anchor="end", class_="tick"),
        ]
    for index, entry in enumerate(drawn):
        if entry.band:
            outline = [*zip(entry.x, entry.band[0], strict=True), *reversed([*zip(entry.x, entry.band[1], strict=True)])]
            parts.append(svg.area([(plot.at_x(x), plot.at_y(y)) for x, y in outline], f"fill faint s{index}"))
        points = [(plot.at_x(x), plot.at_y(y)) for x, y in zip(entry.x, entry.y, strict=True)]
        parts.append(svg.polyline(points, f"line s{index}"))
        if len(points) <= 24:
            tips = (f"{entry.name}, {x_label} {x_form(x)}: {form(y)}" for x, y in zip(entry.x, entry.y, strict=True))
            parts += [svg.marker(index, x, y, 3, tip) for (x, y), tip in zip(points, tips, strict=True)]
    ends = "; ".join(f"{e.name} goes from {form(e.y[0])} to {form(e.y[-1])}" for e in drawn)
    return svg.drawing(parts, height=height, title=title, description=f"{y_label} over {x_label}: {ends}.")


def _thinned(series: Series) -> Series:
    """At most ``MOST_POINTS`` points, each the mean of a stretch."""
    size = -(-len(series.x) // MOST_POINTS)
    if size == 1:
        return series
    starts = range(0, len(series.x), size)

    def means(values: Sequence[float]) -> list[float]:
        return [sum(values[i : i + size]) / len(values[i : i + size]) for i in starts]

    return Series(series.name, means(series.x), means(series.y))
