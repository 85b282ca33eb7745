"""Canvas rules: from the size of a source to a size that an editor works at and leaves alone.

Every editor resizes its input to sizes of its own, mostly by stretching. A rule here gives a size that the editor's own resizing does not
change, so that :mod:`stages.editors.on_canvas` decides alone what becomes of the source. Sizes are (width, height) in pixels.

Checked against diffusers 0.42.1: the preferred sizes of ``FluxKontextPipeline``, ``calculate_dimensions`` of the pipelines of
Qwen-Image-Edit and LongCat-Image-Edit, the preprocessing of ``Flux2KleinPipeline``; and against the inference script of Step1X-Edit v1.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stages.editors.editor import CanvasRule

MEGAPIXEL = 1024 * 1024
MAX_ASPECT = 7.0
"""A canvas is about this many times as long as wide at most, and that of a longer source is padded. FLUX.2 refuses more than 8."""
MIN_SIDE = 64
"""The least side that FLUX.2 takes."""
_KONTEXT_HALF = (
    (672, 1568), (688, 1504), (720, 1456), (752, 1392), (800, 1328), (832, 1248), (880, 1184), (944, 1104),
)  # fmt: skip
KONTEXT_SIZES = (*_KONTEXT_HALF, (1024, 1024), *((width, height) for height, width in reversed(_KONTEXT_HALF)))
"""The 17 sizes of about a megapixel that FLUX.1-Kontext was trained at."""


def kontext(width: int, height: int) -> tuple[int, int]:
    """The one of FLUX.1-Kontext's sizes whose aspect ratio is nearest. The pipeline keeps it when ``max_area`` is its area."""
    return min(KONTEXT_SIZES, key=lambda size: abs(width / height - size[0] / size[1]))


def qwen(width: int, height: int) -> tuple[int, int]:
    """About one megapixel, the sides rounded to multiples of 32: Qwen-Image-Edit, its successors, FireRed-Image-Edit."""
    return _settled(lambda ratio: _rounded(ratio, 32), width, height)


def megapixel_16(width: int, height: int) -> tuple[int, int]:
    """About one megapixel, the sides rounded to multiples of 16."""
    return _settled(lambda ratio: _rounded(ratio, 16), width, height)


def longcat(width: int, height: int) -> tuple[int, int]:
    """About one megapixel, the sides rounded up to multiples of 16: LongCat-Image-Edit, whose pipeline takes no other size."""

    def size(ratio: float) -> tuple[int, int]:
        wide = math.sqrt(MEGAPIXEL * ratio)
        return _up(wide, 16), _up(wide / ratio, 16)

    return _settled(size, width, height)


def step1x(width: int, height: int, size_level: int = 1024) -> tuple[int, int]:
    """The area of a square of ``size_level``, the sides floored to multiples of 16: Step1X-Edit."""

    def size(ratio: float) -> tuple[int, int]:
        if ratio > 1:
            wide = math.ceil(math.sqrt(size_level**2 * ratio))
            high = math.ceil(wide / ratio)
        else:
            high = math.ceil(math.sqrt(size_level**2 / ratio))
            wide = math.ceil(high * ratio)
        return wide // 16 * 16, high // 16 * 16

    return _settled(size, width, height)


def klein(width: int, height: int) -> tuple[int, int]:
    """The source's own size, up to one megapixel, as multiples of 16: FLUX.2-klein.

    The pipeline floors the sides and cuts off up to 15 pixels. Here they are rounded up, so that padding takes the place of the cut.
    """
    wide, high = _up(max(width, MIN_SIDE, height / MAX_ASPECT), 16), _up(max(height, MIN_SIDE, width / MAX_ASPECT), 16)
    if wide * high <= MEGAPIXEL:
        return wide, high
    ratio = _ratio(width, height)
    wide = int(math.sqrt(MEGAPIXEL * ratio))
    return wide // 16 * 16, int(wide / ratio) // 16 * 16


RULES: dict[str, CanvasRule] = {
    "kontext": kontext, "qwen": qwen, "megapixel_16": megapixel_16, "longcat": longcat, "step1x": step1x, "klein": klein,
}  # fmt: skip
"""All rules by name. An editor that edits any size as it is has no rule."""


def _ratio(width: int, height: int) -> float:
    return min(max(width / height, 1 / MAX_ASPECT), MAX_ASPECT)


def _settled(size: Callable[[float], tuple[int, int]], width: int, height: int) -> tuple[int, int]:
    """The size for the source's aspect ratio; where it has another size itself (its sides are rounded), that one, and so on."""
    found = size(_ratio(width, height))
    while (again := size(found[0] / found[1])) != found:
        found = again
    return found


def _rounded(ratio: float, multiple: int) -> tuple[int, int]:
    wide = math.sqrt(MEGAPIXEL * ratio)
    return round(wide / multiple) * multiple, round(wide / ratio / multiple) * multiple


def _up(length: float, multiple: int) -> int:
    return math.ceil(length / multiple) * multiple
