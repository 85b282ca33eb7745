"""Grouped columns over a few categories, e.g. how often each score was given in each dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pipeline.report.charts import axes, svg


def columns(
    categories: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    form: axes.Format = axes.percent,
) -> Markup:
    """``series`` maps a name to one value per category; the values are written above the columns where they fit."""
    parts, top = axes.legend(list(series))
    height = top + 188
    highest = max((value for values in series.values() for value in values), default=0) or 1
    plot = axes.Axes(x=(0, len(categories)), y=(0, highest * 1.12), box=(54, top, svg.WIDTH - 12, height - 42))
    parts += plot.horizontal_grid(axes.ticks(*plot.y, about=4), form) + plot.labels(x_label, y_label)
    slot = plot.at_x(1) - plot.at_x(0)
    width = slot * 0.76 / max(len(series), 1)
    for position, category in enumerate(categories):
        parts.append(svg.text(category, plot.at_x(position + 0.5), plot.box[3] + 17, anchor="middle", class_="tick"))
        for index, (name, values) in enumerate(series.items()):
            x = plot.at_x(position) + slot * 0.12 + width * index
            y = plot.at_y(values[position])
            tip = f"{name}, {category}: {form(values[position])}"
            parts.append(svg.rectangle(x + 1, y, width - 2, plot.box[3] - y, f"fill s{index}", tip, 2))
            if width >= 26:
                parts.append(
                    svg.text(form(values[position]).removesuffix("\u202f%"), x + width / 2, y - 4, anchor="middle", class_="small")
                )
    described = "; ".join(
        f"{name}: " + ", ".join(f"{c} {form(v)}" for c, v in zip(categories, values, strict=True)) for name, values in series.items()
    )
    return svg.drawing(parts, height=height, title=title, description=f"{y_label} by {x_label}. {described}.")
