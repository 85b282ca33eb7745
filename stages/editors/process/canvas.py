"""Canvas rules of the editors whose code is their authors' own: sizes that its preprocessing leaves alone.

Read in the preprocessing of OmniGen2 (commit 0f72fa9) and BAGEL (056b5fd), and from sizes that Ovis-U1 was seen to use.
"""

from __future__ import annotations

import math

from stages.editors.canvas_rules import MAX_ASPECT, MIN_SIDE

OVIS_PIXELS = (512 * 512, 992 * 992)
"""Least and most pixels between which Ovis-U1 was seen to keep a size."""


def omnigen2(width: int, height: int) -> tuple[int, int]:
    """The source's own size, at most 1024 pixels a side, as multiples of 16. OmniGen2 never enlarges."""
    scale = min(1.0, 1024 / max(width, height))
    least = max(MIN_SIDE, max(width, height) * scale / MAX_ASPECT)
    return _up(max(width * scale, least), 16), _up(max(height * scale, least), 16)


def bagel(width: int, height: int) -> tuple[int, int]:
    """Sides of at most 1024 pixels, the shorter one of 512 where the aspect ratio allows it, as multiples of 16."""
    ratio = min(max(width / height, 1 / MAX_ASPECT), MAX_ASPECT)
    longer = min(1024.0, max(512 * max(ratio, 1 / ratio), float(max(width, height))))
    wide, high = (longer, longer / ratio) if ratio > 1 else (longer * ratio, longer)
    size = round(wide / 16) * 16, round(high / 16) * 16
    while (again := bagel_resizes(*size)) != size:
        size = again
    return size


def bagel_resizes(width: int, height: int) -> tuple[int, int]:
    """The size to which BAGEL's transform for its VAE (at most 1024, at least 512, multiples of 16) resizes an image."""
    scale = max(min(1024 / max(width, height), 1.0), 512 / min(width, height))
    wide, high = (max(16, round(round(side * scale) / 16) * 16) for side in (width, height))
    if max(wide, high) > 1024:
        scale = 1024 / max(wide, high)
        wide, high = (max(16, round(round(side * scale) / 16) * 16) for side in (wide, high))
    return wide, high


def ovis_u1(width: int, height: int) -> tuple[int, int]:
    """The source's own size between 0.26 and 0.98 megapixels, as multiples of 32: a size that Ovis-U1 was seen to keep."""
    ratio = min(max(width / height, 1 / MAX_ASPECT), MAX_ASPECT)
    least, most = OVIS_PIXELS
    area = min(max(width * height, least), most)
    wide, high = math.sqrt(area * ratio), math.sqrt(area / ratio)
    size = _up(wide, 32), _up(high, 32)
    return size if size[0] * size[1] <= most else (int(wide) // 32 * 32, int(high) // 32 * 32)


def _up(length: float, multiple: int) -> int:
    return math.ceil(length / multiple) * multiple
