"""Images as tensors in [-1, 1], and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def to_unit_range(images: Sequence[Image.Image]) -> Tensor:
    """RGB images of one size as [n, 3, height, width], float32 in [-1, 1]."""
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1


def from_unit_range(pixels: Tensor) -> list[Image.Image]:
    """RGB images of [n, 3, height, width]; values outside [-1, 1] are clipped."""
    values = ((pixels.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return [Image.fromarray(image) for image in values.permute(0, 2, 3, 1).cpu().numpy()]
