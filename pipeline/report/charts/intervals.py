"""Estimates with their intervals, one per row: a dot, a whisker, and the number in words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.report.charts import axes, svg
from reward.evaluation.estimate import Estimate

ROW = 30


def intervals(
    rows: Sequence[tuple[str, Estimate]],
    *,
    title: str,
    x_label: str,
    form: axes.Format = axes.percent,
    tick_form: axes.Format = axes.percent,
    reference: tuple[str, float] | None = None,
    emphasised: Sequence[str] = (),
) -> Markup:
    """Rows of (label, estimate) on one axis. ``reference`` is a named level, e.g. chance; rows in ``emphasised`` get the accent."""
    ends = [value for _, e in rows for value in (e.value, e.low, e.high) if value is not None] + ([reference[1]] if reference else [])
    top, left = 34, min(210.0, max(7.7 * max(len(label) for label, _ in rows) + 14, 70))
    height = top + ROW * len(rows) + 44
    plot = axes.Axes(x=axes.padded(ends, 0.08), y=(0, 1), box=(left, top, svg.WIDTH - 64, height - 44))
    ticks = axes.ticks(*plot.x, about=4)
    parts = [svg.line(plot.at_x(tick), top, plot.at_x(tick), plot.box[3], "grid") for tick in ticks]
    parts += plot.x_ticks(ticks, tick_form)
    parts.append(svg.text(x_label, (plot.box[0] + plot.box[2]) / 2, height - 8, anchor="middle", class_="axis"))
    if reference:
        at = plot.at_x(reference[1])
        parts += [svg.line(at, top - 8, at, plot.box[3], "reference"), svg.text(reference[0], at, top - 13, anchor="middle", class_="tick")]
    for index, (label, estimate) in enumerate(rows):
        y = top + ROW * (index + 0.5)
        series = 0 if not emphasised or label in emphasised else 4
        tip = f"{label}: {estimate.words(form)}"
        parts.append(svg.text(_short(label, left), left - 10, y + 4, anchor="end"))
        if estimate.low is not None and estimate.high is not None:
            parts.append(svg.line(plot.at_x(estimate.low), y, plot.at_x(estimate.high), y, f"whisker s{series}"))
        parts += [
            svg.marker(series, plot.at_x(estimate.value), y, 4.5, tip),
            svg.text(form(estimate.value), svg.WIDTH - 2, y + 4, anchor="end", class_="value"),
        ]
    description = "; ".join(f"{label}: {estimate.words(form)}" for label, estimate in rows)
    return svg.drawing(parts, height=height, title=title, description=f"{x_label}. {description}.")


def _short(label: str, room: float) -> str:
    most = int((room - 10) / 7.4)
    return label if len(label) <= most else label[: most - 1] + "…"
