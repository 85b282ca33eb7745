"""From images to what the vision tower reads.

In: decoded RGB images (reward/inputs/decoding.py). Between: uint8 tensors [height, width, 3], resized so that both sides are multiples of
patch * merge and the area is about the wished one. Out: patches [token, 3 * 2 * patch * patch] of float32, made
beside the model. Values equal those of transformers' Qwen-VL image processors; a still image is its frame twice, a pair of
frames is one clip.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from reward.inputs.sample import ImageError

Statistics = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Mean and standard deviation per channel that inputs are normalised with, of values in 0..1."""


def fitted_size(width: int, height: int, *, factor: int, area: tuple[int, int], what: str = "image") -> tuple[int, int]:
    """(width, height) in multiples of `factor`, with a number of pixels within `area` (least, most) and about the same aspect.

    Raises ImageError.
    """
    try:
        fitted_height, fitted_width = smart_resize(height, width, factor=factor, min_pixels=area[0], max_pixels=area[1])
    except ValueError as error:
        raise ImageError(f"{what} is {width}x{height}: an aspect ratio above 200 cannot be shown to the model; crop it") from error
    return fitted_width, fitted_height


def resize(image: Image.Image, size: tuple[int, int]) -> Tensor:
    """Bicubic to size = (width, height) -> uint8 [height, width, 3]."""
    return torch.from_numpy(np.array(image.resize(size, Image.Resampling.BICUBIC), dtype=np.uint8))


def patchify(frames: Tensor, *, patch_size: int, merge_size: int, statistics: Statistics) -> Tensor:
    """uint8 [item, frame, height, width, 3] with 1 or 2 frames -> float32 [item * patch, 3 * 2 * patch_size**2].

    Patches are ordered by squares of merge_size x merge_size, within a square row by row; one frame is shown twice.
    """
    items, count, height, width, _ = frames.shape
    rows, columns = height // patch_size // merge_size, width // patch_size // merge_size
    values = frames.view(items, count, rows, merge_size, patch_size, columns, merge_size, patch_size, 3)
    values = values.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)  # [item, row, column, m_row, m_column, 3, frame, p_row, p_column]
    values = values.expand(*values.shape[:6], 2, *values.shape[7:]).reshape(-1, 3, 2 * patch_size**2).float()
    mean, scale = _normalisation(statistics, values.device)
    return values.sub_(mean).mul_(scale).flatten(1)


@lru_cache(maxsize=8)
def _normalisation(statistics: Statistics, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of values in 0..255, float32 [3, 1] each, made on the device, so that nothing is copied there."""
    mean, deviation = (torch.cat([torch.full((1, 1), value, device=device) for value in channels]) * 255 for channels in statistics)
    return mean, 1 / deviation
