"""Shift and zoom: what was applied to photographs is measured, also where part of the picture is another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from stages.editors.alignment import Alignment, Reference


def moved(image: Image.Image, dx: float, dy: float, zoom: float) -> Image.Image:
    """The image enlarged about its centre, then shifted."""
    (width, height), inverse = image.size, 1 / zoom
    across, down = width / 2 - (width / 2 + dx) * inverse, height / 2 - (height / 2 + dy) * inverse
    return image.transform(image.size, Image.Transform.AFFINE, (inverse, 0, across, 0, inverse, down), Image.Resampling.BICUBIC)


def largest_error(found: Alignment | None, dx: float, dy: float, zoom: float, side: int) -> float:
    """In pixels, anywhere on the image; infinite where nothing was measured."""
    if found is None:
        return np.inf
    return max(abs(found.dx - dx), abs(found.dy - dy)) + abs(found.zoom - zoom) * side / 2


@pytest.fixture(scope="module")
def photographs(shared_data: Path) -> list[Image.Image]:
    files = sorted((shared_data / "triplets").glob("*/*"))
    named = [path for path in files if path.stem.endswith(("input", "origin")) and path.parent.name in ("magicbrush", "anyedit")]
    return [Image.open(path).convert("RGB") for path in named]


def test_known_shifts_and_zooms_of_photographs(photographs: list[Image.Image]) -> None:
    random = np.random.default_rng(0)
    errors = []
    for number, photograph in enumerate(photographs):
        dx, dy = random.uniform(-12, 12, 2)
        zoom = float(np.exp(random.uniform(-0.08, 0.08)))
        edited = moved(photograph, dx, dy, zoom)
        width, height = photograph.size
        other = photographs[number - 1].resize(photograph.size)  # three tenths of the picture become another
        left, top = int(random.integers(0, width * 0.45)), int(random.integers(0, height * 0.45))
        box = (left, top, left + int(width * 0.55), top + int(height * 0.55))
        edited.paste(other.crop(box), box[:2])
        errors.append(largest_error(Reference(photograph).shift_and_zoom(edited), dx, dy, zoom, max(photograph.size)))
    assert len(errors) > 20
    assert np.median(errors) < 0.25
    assert np.mean(np.array(errors) < 1.5) >= 0.9


def test_a_changed_tone_moves_nothing(photographs: list[Image.Image]) -> None:
    for photograph in photographs[:6]:
        values = 255 * (np.asarray(photograph, float) / 255) ** 1.8 * (1, 0.8, 0.5)
        found = Reference(photograph).shift_and_zoom(Image.fromarray(values.astype(np.uint8)))
        assert largest_error(found, 0, 0, 1, max(photograph.size)) < 1


def test_what_cannot_be_told_is_not_told(photographs: list[Image.Image]) -> None:
    one, other = photographs[0], photographs[-1].resize(photographs[0].size)
    assert Reference(one).shift_and_zoom(other) is None
    assert Reference(one).shift_and_zoom(one.resize((64, 64))) is None
    assert Reference(one).shift_and_zoom(Image.new("RGB", one.size)) is None
    assert Reference(Image.new("RGB", (200, 100), "red")).shift_and_zoom(Image.new("RGB", (200, 100), "red")) is None
    assert Reference(Image.new("RGB", (1, 1))).shift_and_zoom(Image.new("RGB", (1, 1))) is None


def test_shift_in_pixels_of_a_large_source() -> None:
    drawn = Image.new("RGB", (1600, 1000), "grey")
    random = np.random.default_rng(1)
    for _ in range(60):
        x, y, size = random.integers(0, 1500), random.integers(0, 950), random.integers(20, 160)
        ImageDraw.Draw(drawn).rectangle((x, y, x + size, y + size // 2), fill=tuple(random.integers(0, 256, 3).tolist()))
    assert largest_error(Reference(drawn).shift_and_zoom(moved(drawn, 20, -9, 1.03)), 20, -9, 1.03, 1600) < 2


@pytest.mark.parametrize("size", [(64, 20000), (20000, 64), (90, 3000), (17, 300), (1, 1)])
def test_a_picture_that_is_a_strip_has_no_alignment(size: tuple[int, int]) -> None:
    """Small, it is a line of a pixel or a few."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    assert Reference(noise).shift_and_zoom(noise) is None
