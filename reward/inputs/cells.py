"""Where two images differ, by the mean colours of small cells: what gates and the checks of editors' outputs measure.

Images are shrunk so that the longest side is at most 256 pixels. A cell is a square of 4 x 4 pixels there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
from PIL import Image

SIDE = 256
CELL = 4
MOST_CHANGED_CELLS = 4


def small_size(width: int, height: int) -> tuple[int, int]:
    """(width, height) of the shrunk image; an image that is small already keeps its size."""
    scale = min(1.0, SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def shrunk(image: Image.Image, width: int, height: int) -> np.ndarray:
    """An RGB image by averaging: float32 [height, width, 3], 0..255."""
    return np.asarray(image.resize((width, height), Image.Resampling.BOX), dtype=np.float32)


def brightness(pixels: np.ndarray) -> np.ndarray:
    """Means of the three channels: [height, width, 3] -> [height, width]. The values of ``mean(axis=2)``, in a tenth of its time."""
    return (pixels[..., 0] + pixels[..., 1] + pixels[..., 2]) / 3


def cells(pixels: np.ndarray, side: int) -> np.ndarray:
    """Means over squares: [height, width, channels] -> [rows, columns, channels]. A rest narrower than a cell is left out."""
    if pixels.shape[2] == 1:
        return blocks(pixels, side).mean(axis=2)  # sums in another order than below, and stored measures must stay as they are
    return _combined(np.add, pixels, side) / (side * side)


def ranges(pixels: np.ndarray, side: int) -> np.ndarray:
    """Highest less lowest value of squares: [height, width, channels] -> [rows, columns, channels], as :func:`cells`."""
    return _combined(np.maximum, pixels, side) - _combined(np.minimum, pixels, side)


def _combined(combine: Callable[[np.ndarray, np.ndarray], np.ndarray], pixels: np.ndarray, side: int) -> np.ndarray:
    """The pixels of each square, one after the other: a fraction of the time of a reduction over a short axis."""
    rows, columns = (length // side for length in pixels.shape[:2])
    cut = pixels[: rows * side, : columns * side].reshape(rows, side, columns, side, -1)
    return reduce(combine, (cut[:, down, :, right] for down in range(side) for right in range(side)))


def blocks(pixels: np.ndarray, side: int) -> np.ndarray:
    """Squares: [height, width, channels] -> [rows, columns, side * side, channels]. A rest narrower than a square is left out."""
    rows, columns = (length // side for length in pixels.shape[:2])
    cut = pixels[: rows * side, : columns * side].reshape(rows, side, columns, side, -1)
    return cut.transpose(0, 2, 1, 3, 4).reshape(rows, columns, side * side, -1)


def cell_side(pixels: np.ndarray) -> int:
    """Side of a cell in pixels of such a small image."""
    return min(CELL, *pixels.shape[:2])


def cell_change(source: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Difference of the cells' mean colours of two small images of one shape: float32 [rows, columns, 3], 0..255.

    Means over cells hardly see the noise of a JPEG encoder, which changes sign from pixel to pixel.
    """
    side = cell_side(source)
    return np.abs(cells(source, side) - cells(edited, side))


def largest_change(change: np.ndarray) -> float:
    """Mean change (0..255) of the four cells that changed most, of about 4,096.

    So an object of a few hundredths of the picture's side still counts in full.
    """
    return float(np.sort(change.mean(axis=2), axis=None)[-MOST_CHANGED_CELLS:].mean())
