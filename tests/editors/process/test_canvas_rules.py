"""Sizes that the preprocessing of OmniGen2, BAGEL and Ovis-U1 leaves alone."""

from __future__ import annotations

import math

import pytest

from stages.editors.process import canvas

SIZES = [
    *((width, height) for width in (1, 17, 255, 512, 640, 1000, 1024, 1920, 6000) for height in (1, 16, 300, 513, 1024, 1080, 9000)),
    (640, 480),
    (1248, 832),
]


def omnigen2_resizes(width: int, height: int) -> tuple[int, int]:
    """As its image processor: never larger, at most 1024 a side and a megapixel, floored to 16."""
    ratio = min((1024 * 1024 / (width * height)) ** 0.5, 1024 / max(width, height), 1.0)
    return int(width * ratio) // 16 * 16, int(height * ratio) // 16 * 16


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_canvas_is_left_alone_and_has_about_the_sources_shape(size: tuple[int, int]) -> None:
    for rule, resizes in [(canvas.omnigen2, omnigen2_resizes), (canvas.bagel, canvas.bagel_resizes)]:
        made = rule(*size)
        assert resizes(*made) == made
        assert rule(*made) == made
        _of_shape(size, made)
    wide, high = canvas.ovis_u1(*size)
    assert wide % 32 == high % 32 == 0
    assert wide * high <= 992 * 992
    assert wide * high >= 0.9 * 512 * 512
    _of_shape(size, (wide, high))


def _of_shape(source: tuple[int, int], made: tuple[int, int]) -> None:
    if min(source) < 64:
        return  # below the least side of a canvas, the rest is padding
    ratio = min(max(source[0] / source[1], 1 / 8), 8)
    assert abs(math.log(made[0] / made[1] / ratio)) < 0.5
