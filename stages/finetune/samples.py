"""Edits of held-out pairs while an arm trains: an image per pair and step, with source, the edit of the data and that of the arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stages.engine import images, storage
from stages.finetune.cache import CachedPairs

if TYPE_CHECKING:
    from torch import Tensor

    from finetune.families import Decoder


def save_samples(
    folder: Path, arm: str, held_out: CachedPairs, decoder: Callable[[], Decoder], step: int, latents: Mapping[int, Tensor]
) -> None:
    """Write ``samples/<arm>/<step>-<number of the pair>.png`` below ``folder``. decoder: opens it at the first call."""
    for number, edit in latents.items():
        pair = held_out.read(number)
        shown = [decoder()(latent[None])[0] for latent in (pair.reference.mean, pair.target.mean, edit)]
        strip = np.concatenate([np.asarray(image) for image in shown], axis=1)
        storage.publish_bytes(folder / "samples" / arm / f"{step:06d}-{number:03d}.png", images.png(strip))
