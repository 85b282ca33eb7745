"""Sizes at which images are edited."""

from __future__ import annotations

import math


def at_area(width: int, height: int, side: int, multiple: int) -> tuple[int, int]:
    """Width and height in the ratio of an image, of about side ** 2 pixels, each rounded to a multiple."""
    wide = math.sqrt(side * side * width / height)
    return max(multiple, round(wide / multiple) * multiple), max(multiple, round(wide * height / width / multiple) * multiple)
