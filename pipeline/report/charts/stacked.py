"""Distributions over a few ordered levels, one bar per row: what share of a row's scores fell on each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pipeline.report.charts import axes, svg

ROW = 26
LEAST = 0.09
"""Share from which a segment has room for its number."""
DARKEST = 0.52
"""Opacity of the highest level: the numbers stay readable on it, on a light and on a dark page."""


def stacked(rows: Mapping[str, Sequence[float]], levels: Sequence[str], *, title: str, x_label: str) -> Markup:
    """``rows`` maps a name to one share per level, lowest level first. Higher levels are darker and stand further right."""
    left = min(170.0, max(7.4 * max(len(name) for name in rows) + 14, 70))
    top, room = 30, svg.WIDTH - 4 - left
    shades = [DARKEST * (place + 1) / len(levels) for place in range(len(levels))]
    parts = [svg.text(f"from {levels[0]} (lightest) to {levels[-1]} (darkest)", left, 16, class_="tick")]
    for index, (name, shares) in enumerate(rows.items()):
        y, x = top + ROW * index, left
        shown = name if len(name) * 7.4 <= left - 8 else name[: int((left - 8) / 7.4) - 1] + "…"
        parts.append(svg.text(shown, left - 8, y + 14, anchor="end"))
        for level, share, shade in zip(levels, shares, shades, strict=True):
            tip = svg.element("title", f"{name}, {level}: {axes.percent(share)}")
            shape = {"x": x, "y": y, "width": room * share, "height": ROW - 7, "class_": "fill s0", "fill_opacity": f"{shade:.2f}"}
            parts.append(svg.element("rect", [tip], **shape))
            if share >= LEAST:
                number = axes.percent(share).removesuffix("\u202f%")
                parts.append(svg.text(number, x + room * share / 2, y + 14, anchor="middle"))
            x += room * share
    height = top + ROW * len(rows) + 24
    parts.append(svg.text(x_label, left + room / 2, height - 6, anchor="middle", class_="axis"))
    described = "; ".join(
        f"{name}: " + ", ".join(f"{level} {axes.percent(share)}" for level, share in zip(levels, shares, strict=True))
        for name, shares in rows.items()
    )
    return svg.drawing(parts, height=height, title=title, description=f"{x_label}. {described}.")
