"""One pair through the frozen encoders.

Both images get the source's working size, as when an edit is sampled: scaled until they cover it, then cut evenly at two opposite edges,
less than one multiple of the working size where their ratios agree. Nothing is stretched or flipped. Images are encoded pair by pair, so an
entry depends on its pair alone.
"""

from __future__ import annotations

import torch
from PIL import Image

from finetune.editing_model import Condition, Encoders
from finetune.precompute.entry import EncodedPair


def ratio_difference(source: Image.Image, edited: Image.Image) -> float:
    """By how much the larger of two aspect ratios exceeds the smaller: 0 for equal ones, 0.5 for 3:2 and 1:1."""
    first, second = source.width / source.height, edited.width / edited.height
    return max(first, second) / min(first, second) - 1


def fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The image at (width, height): its largest centred part of that ratio, resized (bicubic)."""
    scale = min(image.width / size[0], image.height / size[1])
    width, height = size[0] * scale, size[1] * scale
    left, top = (image.width - width) / 2, (image.height - height) / 2
    return image.resize(size, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))


@torch.no_grad()
def encode_pair(encoders: Encoders, source: Image.Image, edited: Image.Image, instruction: str, size: tuple[int, int]) -> EncodedPair:
    """Moments and condition of a pair of RGB images. size: the source's working size, (width, height)."""
    reference, target = fitted(source, size), fitted(edited, size)
    target_moments, reference_moments = encoders.encode_images([target, reference])
    return EncodedPair(target_moments, reference_moments, encoders.encode_condition(reference, instruction))


@torch.no_grad()
def encode_null(encoders: Encoders, source: Image.Image, size: tuple[int, int]) -> Condition:
    """The null condition of a source image: what the encoders make of it without an instruction."""
    return encoders.encode_condition(fitted(source, size), "")
