"""An edit as the gates measure it: both images decoded once, shrunk to one small common size, and where they differ.

All measures but the fine detail are taken at the small size: the longest side of the source is at most 256 pixels, and the edited image
takes the source's shape. A cell is a square of 4 x 4 pixels there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from stages.datasets import readers as edits

SIDE = 256
CELL = 4


@dataclass(frozen=True)
class Pair:
    """One edit with its pixels: uint8 [height, width, 3] each, of any size."""

    edit: edits.Edit
    source: np.ndarray
    edited: np.ndarray

    @cached_property
    def small_source(self) -> np.ndarray:
        """The source, shrunk: float32 [height, width, 3], 0..255."""
        height, width = self.source.shape[:2]
        scale = min(1.0, SIDE / max(height, width))
        return shrunk(self.source, max(1, round(width * scale)), max(1, round(height * scale)))

    @cached_property
    def small_edited(self) -> np.ndarray:
        """The edited image in the shape of the small source: float32 [height, width, 3], 0..255."""
        height, width = self.small_source.shape[:2]
        return shrunk(self.edited, width, height)

    @cached_property
    def cell(self) -> int:
        """Side of a cell in pixels of the small images."""
        return min(CELL, *self.small_source.shape[:2])

    @cached_property
    def change(self) -> np.ndarray:
        """Difference of the cells' mean colours: float32 [rows, columns, 3], 0..255.

        Means over cells hardly see the noise of a JPEG encoder, which changes sign from pixel to pixel.
        """
        return np.abs(cells(self.small_source, self.cell) - cells(self.small_edited, self.cell))


def shrunk(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """uint8 [h, w, 3] -> float32 [height, width, 3], by averaging."""
    image = Image.fromarray(pixels)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BOX)
    return np.asarray(image, dtype=np.float32)


def cells(pixels: np.ndarray, side: int) -> np.ndarray:
    """Means over squares: [height, width, channels] -> [rows, columns, channels]. A rest narrower than a cell is left out."""
    height, width, channels = pixels.shape
    rows, columns = max(1, height // side), max(1, width // side)
    down, across = min(side, height), min(side, width)
    return pixels[: rows * down, : columns * across].reshape(rows, down, columns, across, channels).mean(axis=(1, 3))


def spread(values: np.ndarray, side: int) -> np.ndarray:
    """Values of cells at every pixel of them: [rows, columns] -> [rows * side, columns * side]."""
    return values.repeat(side, axis=0).repeat(side, axis=1)
