"""A drawn noisy set as arrays in memory, for the stand-in of an editor's pretraining."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from stages.config import WorldConfig
from stages.datasets import world_edits
from stages.datasets.config import WorldEdits

if TYPE_CHECKING:
    from finetune import EditSamples


def samples(config: WorldEdits, *, seed: int, world: WorldConfig | None, image_size: int) -> EditSamples:
    """All edits of a drawn set; images are drawn at the world's size and resized (bicubic) where ``image_size`` is another."""
    from finetune import EditSamples

    source, edited, instructions, sample_ids = [], [], [], []
    for piece in world_edits.plan(config, seed=seed, world=world, unit_rows=config.count):
        drawing = WorldConfig(**piece.shared["drawing"])
        for number, _ in piece.rows:
            item, before, made = world_edits.draw(seed, config.split, number, drawing)
            source.append(_resized(before, image_size))
            edited.append(_resized(made.image, image_size))
            instructions.append(item.instruction)
            sample_ids.append(f"{config.split}-{number}")
    return EditSamples(np.stack(source), np.stack(edited), instructions, sample_ids)


def _resized(pixels: np.ndarray, size: int) -> np.ndarray:
    if pixels.shape[:2] == (size, size):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC))
