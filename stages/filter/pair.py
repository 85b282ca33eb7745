"""An edit as the gates measure it: its words, both images decoded once and shrunk to one small common size, and where they differ.

All measures but the fine detail are taken at the small size of :mod:`reward.inputs.cells`, and the edited image takes the source's shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from reward.inputs.cells import brightness, cell_side, cells, shrunk, small_size
from reward.likeness import perceptual_hash, words
from stages.datasets import readers as edits

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
class Picture:
    """A decoded image in RGB, of any size. What is made of it is made once, also where several edits share their source."""

    image: Image.Image

    @cached_property
    def grey(self) -> Image.Image:
        """Its brightness, in mode L."""
        return self.image.convert("L")

    @cached_property
    def bits(self) -> int:
        """Its perceptual hash."""
        return perceptual_hash(self.grey)

    @cached_property
    def small(self) -> np.ndarray:
        """The image, shrunk: float32 [height, width, 3], 0..255."""
        return self.shrunk(*small_size(*self.image.size))

    def shrunk(self, width: int, height: int) -> np.ndarray:
        """The image in another shape: float32 [height, width, 3], 0..255."""
        return shrunk(self.image, width, height)


@dataclass(frozen=True)
class Pair:
    """One edit with its pictures."""

    edit: edits.Edit
    source: Picture
    edited: Picture

    @cached_property
    def words(self) -> str:
        """The instruction's words alone: normalised, lower case, no punctuation."""
        return words(self.edit.instruction)

    @cached_property
    def whole_picture(self) -> bool:
        """Whether the instruction names a change of the whole picture (style, season, background ...)."""
        return bool(_WHOLE_PICTURE.search(self.words))

    @property
    def small_source(self) -> np.ndarray:
        """The source, shrunk: float32 [height, width, 3], 0..255."""
        return self.source.small

    @cached_property
    def small_edited(self) -> np.ndarray:
        """The edited image in the shape of the small source: float32 [height, width, 3], 0..255."""
        height, width = self.small_source.shape[:2]
        return self.edited.shrunk(width, height)

    @cached_property
    def source_brightness(self) -> np.ndarray:
        """Of the small source: float32 [height, width], 0..255."""
        return brightness(self.small_source)

    @cached_property
    def edited_brightness(self) -> np.ndarray:
        """Of the small edited image: float32 [height, width], 0..255."""
        return brightness(self.small_edited)

    @cached_property
    def cell(self) -> int:
        """Side of a cell in pixels of the small images."""
        return cell_side(self.small_source)

    @cached_property
    def source_cells(self) -> np.ndarray:
        """Mean colours of the source's cells: float32 [rows, columns, 3], 0..255."""
        return cells(self.small_source, self.cell)

    @cached_property
    def edited_cells(self) -> np.ndarray:
        """Mean colours of the edited image's cells: float32 [rows, columns, 3], 0..255."""
        return cells(self.small_edited, self.cell)

    @cached_property
    def change(self) -> np.ndarray:
        """Difference of the cells' mean colours: float32 [rows, columns, 3], 0..255."""
        return np.abs(self.source_cells - self.edited_cells)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of cells at every pixel of them: [rows, columns] -> [rows * cell, columns * cell]."""
        return values.repeat(self.cell, axis=0).repeat(self.cell, axis=1)
