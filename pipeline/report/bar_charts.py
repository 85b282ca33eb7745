"""Charts of a row or a column per name: grouped columns, stacked bars, intervals and plain bars, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.svg import (
    CHARACTER,
    WIDTH,
    Format,
    Scale,
    drawing,
    empty_plot,
    empty_rows,
    line,
    marker,
    padded,
    rectangle,
    round_values,
    shortened,
    text,
)
from pipeline.words import percent, plain
from reward.evaluation.estimate import Estimate

LEAST_NUMBERED = 0.09
"""Share from which a segment of a stacked bar is wide enough for its number."""
DARKEST = 0.52
"""Opacity of the highest level of a stacked bar: the numbers stay readable on it, on a light and on a dark page."""


@dataclass(frozen=True)
class Bar:
    """One bar. ``series`` picks its look (0 is the accent), ``note`` is written behind the value."""

    label: str
    value: float
    note: str = ""
    series: int = 0


def columns(categories: Sequence[str], series: Mapping[str, Sequence[float]], *, title: str, x_label: str, y_label: str) -> Markup:
    """Grouped columns: ``series`` maps a name to one share per category, which is written above its column where it fits."""
    highest = (max((value for values in series.values() for value in values), default=0) or 1) * 1.12
    y = Scale(y_label, 0, highest, percent, round_values(0, highest, about=4))
    plot = empty_plot(Scale(x_label, 0, len(categories), ticks=()), y, list(series))
    slot, bottom = plot.at_x(1) - plot.at_x(0), plot.box[3]
    width = slot * 0.76 / max(len(series), 1)
    for column, category in enumerate(categories):
        plot.parts.append(text(category, plot.at_x(column + 0.5), bottom + 17, anchor="middle", class_="tick"))
        for index, (name, values) in enumerate(series.items()):
            x, top, value = plot.at_x(column) + slot * 0.12 + width * index, plot.at_y(values[column]), percent(values[column])
            plot.parts.append(rectangle(x + 1, top, width - 2, bottom - top, f"fill s{index}", f"{name}, {category}: {value}", rx=2))
            if width >= 26:
                plot.parts.append(text(_bare(value), x + width / 2, top - 4, anchor="middle", class_="small"))
    return plot.drawn(title, f"{y_label} by {x_label}. {_listed(series, categories)}.")


def stacked(rows: Mapping[str, Sequence[float]], levels: Sequence[str], *, title: str, x_label: str) -> Markup:
    """Distributions over a few ordered levels, one bar per row.

    ``rows`` maps a name to one share per level, lowest level first. Higher levels are darker and further right.
    """
    plot, middles = empty_rows([shortened(name) for name in rows], Scale(x_label, 0, 1, ticks=()), 26, top=30, right=WIDTH - 4)
    plot.parts.append(text(f"from {levels[0]} (lightest) to {levels[-1]} (darkest)", plot.box[0], 16, class_="tick"))
    for y, (name, shares) in zip(middles, rows.items(), strict=True):
        start = 0.0
        for rank, (level, share) in enumerate(zip(levels, shares, strict=True), start=1):
            left, right = plot.at_x(start), plot.at_x(start + share)
            opacity = f"{DARKEST * rank / len(levels):.2f}"
            tip = f"{name}, {level}: {percent(share)}"
            plot.parts.append(rectangle(left, y - 9.5, right - left, 19, "fill s0", tip, fill_opacity=opacity))
            if share >= LEAST_NUMBERED:
                plot.parts.append(text(_bare(percent(share)), (left + right) / 2, y + 4, anchor="middle"))
            start += share
    return plot.drawn(title, f"{x_label}. {_listed(rows, levels)}.", below=24)


def _bare(share: str) -> str:
    return share.removesuffix("\u202f%")


def _listed(rows: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """Every share of every row in words."""

    def listed(shares: Sequence[float]) -> str:
        return ", ".join(f"{name} {percent(share)}" for name, share in zip(names, shares, strict=True))

    return "; ".join(f"{name}: {listed(shares)}" for name, shares in rows.items())


def intervals(
    rows: Sequence[tuple[str, Estimate]],
    *,
    title: str,
    x_label: str,
    form: Format = percent,
    tick_form: Format = percent,
    reference: tuple[str, float] | None = None,
    emphasised: Sequence[str] = (),
) -> Markup:
    """Estimates with their intervals, one per row: a dot, a whisker, and the number in words.

    ``reference`` is a named level, e.g. chance; rows in ``emphasised`` get the accent.
    """
    ends = [value for _, e in rows for value in (e.value, e.low, e.high) if value is not None] + ([reference[1]] if reference else [])
    low, high = padded(ends, 0.08)
    scale = Scale(x_label, low, high, tick_form, round_values(low, high))
    plot, middles = empty_rows([shortened(label) for label, _ in rows], scale, 30, top=34 if reference else 12, right=WIDTH - 64)
    if reference:
        at, (_, top, _, bottom) = plot.at_x(reference[1]), plot.box
        half = CHARACTER * len(reference[0]) / 2
        plot.parts.append(line(at, top - 8, at, bottom, "reference"))
        plot.parts.append(text(reference[0], min(max(at, half), WIDTH - half), top - 13, anchor="middle", class_="tick"))
    for y, (label, estimate) in zip(middles, rows, strict=True):
        series = 0 if not emphasised or label in emphasised else 4
        if estimate.low is not None and estimate.high is not None:
            plot.parts.append(line(plot.at_x(estimate.low), y, plot.at_x(estimate.high), y, f"whisker s{series}"))
        plot.parts.append(marker(series, plot.at_x(estimate.value), y, tip=f"{label}: {estimate.words(form)}"))
        plot.parts.append(text(form(estimate.value), WIDTH - 2, y + 4, anchor="end", class_="value"))
    described = "; ".join(f"{label}: {estimate.words(form)}" for label, estimate in rows)
    return plot.drawn(title, f"{x_label}. {described}.", below=44)


def bars(rows: Sequence[Bar], *, title: str, form: Format = plain, full: float | None = None) -> Markup:
    """Horizontal bars from zero with their values. Each label is above its bar, so it may be long.

    ``full`` is the value of a whole track; default: the largest value.
    """
    most = full or max((entry.value for entry in rows), default=0) or 1
    width, row = WIDTH - 4.0, 42
    parts: list[Markup] = []
    for y, entry in zip(range(0, row * len(rows), row), rows, strict=True):
        value = f"{form(entry.value)}  {entry.note}".rstrip()
        length = max(width * entry.value / most, 2 if entry.value else 0)
        parts += [text(entry.label, 2, y + 15), text(value, WIDTH - 2, y + 15, anchor="end", class_="value")]
        parts.append(rectangle(2, y + 22, width, 10, "track", rx=3))
        parts.append(rectangle(2, y + 22, length, 10, f"fill s{entry.series}", f"{entry.label}: {value}", rx=3))
    described = "; ".join(f"{entry.label}: {form(entry.value)} {entry.note}".rstrip() for entry in rows)
    return drawing(parts, row * len(rows), title, f"{described}.")
