"""An editor on its canvas: requests have original images, results have the size of the source.

A source is scaled uniformly until it fits on the canvas, centred, and the rest is padded with its edge pixels. It is never stretched, since
a stretched edit is a moved edit; and never cropped, since an edit covers the whole source, and nothing could honestly be put where a crop
cut something off: source pixels there would be a frame without the edit. What is padded is cut off again afterwards. Edge pixels go on
what touches the border (sky, a floor, a wall); one mean colour draws a line there, which editors take for a frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from stages.editors.editor import CanvasRule, Edited, Editor, EditRequest, Failure

FILTER = Image.Resampling.LANCZOS
UNSCALED = 32
"""A canvas that is larger by fewer pixels than this on both sides gets the source as it is, with padding: no pixel is resampled."""
_CONTEXT = 4
"""Padding beyond the canvas, in source pixels, which the filter sees."""


@dataclass(frozen=True)
class Placement:
    """Where a source is on its canvas. Sizes are (width, height) in pixels; ``corner``: of the source, in pixels of the canvas."""

    source: tuple[int, int]
    canvas: tuple[int, int]
    scale: float
    corner: tuple[int, int]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The source on the canvas: left, top, right, bottom."""
        (left, top), (width, height) = self.corner, self.source
        right, bottom = left + width * self.scale, top + height * self.scale
        return left, top, min(right, self.canvas[0]), min(bottom, self.canvas[1])

    def record(self) -> tuple[tuple[str, Any], ...]:
        """What :class:`Edited` keeps of it. ``padded``: share of the canvas that the source does not cover."""
        left, top, right, bottom = self.box
        padded = 1 - (right - left) * (bottom - top) / (self.canvas[0] * self.canvas[1])
        return (
            ("canvas", list(self.canvas)),
            ("box", [round(edge, 3) for edge in self.box]),
            ("scale", round(self.scale, 6)),
            ("filter", "none" if self.scale == 1 else FILTER.name.lower()),
            ("padded", round(padded, 4)),
        )


def place(source: tuple[int, int], canvas: tuple[int, int]) -> Placement:
    """A source of that size on a canvas, centred and as large as possible."""
    (width, height), (wide, high) = source, canvas
    unscaled = all(0 <= spare < UNSCALED for spare in (wide - width, high - height))
    scale = 1.0 if unscaled else min(wide / width, high / height)
    left, top = (math.floor((room - length * scale) / 2 + 1e-6) for room, length in ((wide, width), (high, height)))
    return Placement(source, canvas, scale, (left, top))


def onto(image: Image.Image, placed: Placement) -> Image.Image:
    """The canvas with the source on it, RGB."""
    if placed.source == placed.canvas:
        return image
    spare = []  # padding before and after the source, per axis, in pixels of the canvas
    for room, length, corner in zip(placed.canvas, placed.source, placed.corner, strict=True):
        spare.append((corner, max(room - length * placed.scale - corner, 0.0)))
    across, down = ([math.ceil(part / placed.scale) + _CONTEXT for part in parts] for parts in spare)
    padded = Image.fromarray(np.pad(np.asarray(image), (down, across, (0, 0)), mode="edge"))
    left, top = across[0] - spare[0][0] / placed.scale, down[0] - spare[1][0] / placed.scale
    box = (left, top, left + placed.canvas[0] / placed.scale, top + placed.canvas[1] / placed.scale)
    return padded.crop(box) if placed.scale == 1 else padded.resize(placed.canvas, FILTER, box)


def back(image: Image.Image, placed: Placement) -> Image.Image:
    """The part of an edited canvas that the source covers, at the source's size."""
    if placed.scale == 1:
        return image.crop(placed.box)
    return image.resize(placed.source, FILTER, placed.box)


class OnCanvas:
    """An editor around an editor that works on canvases of ``rule``. Requests of one batch have one canvas.

    A result of another size than its canvas stays as it came, since it is unknown where on it the source is: the record's ``returned`` has
    its size, and :mod:`stages.editors.output_checks` flags it.
    """

    def __init__(self, editor: Editor, rule: CanvasRule) -> None:
        self.editor = editor
        self.rule = rule

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        """One result per request, in their order, of the request's size."""
        places = [place(request.image.size, self.rule(*request.image.size)) for request in batch]
        assert len({placed.canvas for placed in places}) < 2, "the requests of a batch share their canvas"
        on_canvas = [replace(request, image=onto(request.image, placed)) for request, placed in zip(batch, places, strict=True)]
        results = self.editor.edit(on_canvas)
        return [_undone(result, placed) for result, placed in zip(results, places, strict=True)]

    def save_memory(self) -> bool:
        """As the editor within."""
        return self.editor.save_memory()

    def close(self) -> None:
        """As the editor within."""
        self.editor.close()


def _undone(result: Edited | Failure, placed: Placement) -> Edited | Failure:
    if isinstance(result, Failure):
        return result
    record = (*result.record, *placed.record())
    if result.image.size != placed.canvas:
        return replace(result, record=(*record, ("returned", list(result.image.size))))
    return replace(result, image=back(result.image, placed), record=record)
