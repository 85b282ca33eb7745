"""Training curves as one image: loss, learning rate, gradient norm, and accuracies on held-out groups.

In: the metrics of each phase of a training, in order. Out: a PNG; equal metrics give equal bytes with equal versions of matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PANELS = {
    "loss": "loss",
    "learning rate": "learning_rate",
    "gradient norm": "gradient_norm",
    "held-out pair accuracy": "validation/accuracy",
}
"""Title -> key of the metrics; further keys with a slash after it join."""


def draw_curves(phases: Mapping[str, Sequence[Mapping[str, float]]]) -> bytes:
    """A row of panels per phase that reported anything; each report has `step`. Raises ValueError when none has."""
    shown = {phase: reports for phase, reports in phases.items() if reports}
    if not shown:
        raise ValueError("there are no metrics to draw; train for at least one step")
    with matplotlib.rc_context(dict(matplotlib.rcParamsDefault)):  # a user's style file would change the image
        figure = Figure(figsize=(4 * len(PANELS), 3 * len(shown)), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        for row, (phase, reports) in zip(figure.subplots(len(shown), len(PANELS), squeeze=False), shown.items(), strict=True):
            for axes, (title, key) in zip(row, PANELS.items(), strict=True):
                _panel(axes, f"{phase}: {title}", reports, key)
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def _panel(axes: Axes, title: str, reports: Sequence[Mapping[str, float]], key: str) -> None:
    names = sorted({name for report in reports for name in report if name == key or name.startswith(f"{key}/")})
    if not names:
        axes.set_axis_off()
        return
    for name in names:
        points = [(report["step"], report[name]) for report in reports if name in report]
        label = name.removeprefix(key).strip("/") or "overall"
        axes.plot(*zip(*points, strict=True), label=label.replace("_", " "), linewidth=1.2, marker="." if len(points) < 3 else "")
    if len(names) > 1:
        axes.legend(fontsize=7)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
