"""Edited pairs for training: uint8 arrays in memory. The caller decodes the images, by one rule for the whole pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class EditSamples:
    """n edits: source and edited uint8 [n, S, S, 3], one instruction and one id each."""

    source: np.ndarray
    edited: np.ndarray
    instructions: list[str]
    sample_ids: list[str]

    def __post_init__(self) -> None:
        n = len(self.source)
        square = self.source.ndim == 4 and self.source.shape[1] == self.source.shape[2] and self.source.shape[3] == 3
        if not square or self.source.dtype != np.uint8 or self.edited.dtype != np.uint8:
            raise ValueError(f"images must be uint8 [n, S, S, 3], got {self.source.dtype} {self.source.shape}")
        if self.edited.shape != self.source.shape or len(self.instructions) != n or len(self.sample_ids) != n:
            raise ValueError(
                f"source {self.source.shape}, edited {self.edited.shape}, {len(self.instructions)} instructions and "
                f"{len(self.sample_ids)} ids do not describe the same samples"
            )

    def __len__(self) -> int:
        return len(self.source)


def squared(image: Image.Image, size: int) -> np.ndarray:
    """An RGB image as uint8 [size, size, 3]: resized (bicubic) without keeping the aspect ratio, as both images share one square grid."""
    return np.asarray(image if image.size == (size, size) else image.resize((size, size), Image.Resampling.BICUBIC))
