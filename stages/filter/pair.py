"""An edit as the gates measure it: its words, both images decoded once and shrunk to one small common size, and where they differ.

All measures but the fine detail are taken at the small size: the longest side of the source is at most 256 pixels, and the edited image
takes the source's shape. A cell is a square of 4 x 4 pixels there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from reward.likeness import words
from stages.datasets import readers as edits

SIDE = 256
CELL = 4
_WHOLE_PICTURE = re.compile(
    r"\b(?:style|season|spring|summer|autumn|winter|weather|rainy|snowy|foggy|sunny|sunset|sunrise|sun|night|day|daytime|dusk|dawn|background|scenery"
    r"|tone|lighting|brightness|contrast|saturation|exposure|filter|monochrome|grayscale|greyscale|black and white|sepia|anime|cartoon"
    r"|sketch|painting|watercolou?r|out ?paint|zoom|crop|rotate|flip|viewpoint|camera|whole|entire"
    r"|(?:the|this) (?:image|picture|photo|scene))\b"
    r"|\b(?:change|convert|turn|transform) (?:the )?(?:image|picture|photo)\b"
    r"|风格|季节|天气|背景|色调|亮度|对比度|滤镜|黑白|漫画|动漫|卡通|素描|油画|水彩|夜晚|白天|整张|整个图"
)
"""A change of the whole picture. The list is short, English and Chinese; an instruction in other words is not recognised."""


@dataclass(frozen=True)
class Pair:
    """One edit with its pixels: uint8 [height, width, 3] each, of any size."""

    edit: edits.Edit
    source: np.ndarray
    edited: np.ndarray

    @cached_property
    def words(self) -> str:
        """The instruction's words alone: normalised, lower case, no punctuation."""
        return words(self.edit.instruction)

    @cached_property
    def whole_picture(self) -> bool:
        """Whether the instruction names a change of the whole picture (style, season, background ...)."""
        return bool(_WHOLE_PICTURE.search(self.words))

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

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of cells at every pixel of them: [rows, columns] -> [rows * cell, columns * cell]."""
        return values.repeat(self.cell, axis=0).repeat(self.cell, axis=1)


def shrunk(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """uint8 [h, w, 3] -> float32 [height, width, 3], by averaging."""
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX), dtype=np.float32)


def cells(pixels: np.ndarray, side: int) -> np.ndarray:
    """Means over squares: [height, width, channels] -> [rows, columns, channels]. A rest narrower than a cell is left out."""
    return blocks(pixels, side).mean(axis=2)


def blocks(pixels: np.ndarray, side: int) -> np.ndarray:
    """Squares: [height, width, channels] -> [rows, columns, side * side, channels]. A rest narrower than a square is left out."""
    rows, columns = (length // side for length in pixels.shape[:2])
    cut = pixels[: rows * side, : columns * side].reshape(rows, side, columns, side, -1)
    return cut.transpose(0, 2, 1, 3, 4).reshape(rows, columns, side * side, -1)
