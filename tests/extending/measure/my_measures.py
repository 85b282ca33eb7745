"""Two measures as a user would write them: LPIPS's distance where nothing should have changed, and whether a subject is still the same.

The network is drawn, so that nothing is downloaded. In its place take `torchvision.models.alexnet(weights="DEFAULT").features`, or call
`lpips.LPIPS(net="alex")`; for likeness of faces an embedding of the face that a detector finds, and None where it finds none.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn


@cache
def network() -> nn.ModuleList:
    """Loaded once per worker."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3 if depth == 0 else 8, 8, 3, stride=2, padding=1) for depth in range(3)]
    return nn.ModuleList(layers).eval()


@torch.no_grad()
def features(image: np.ndarray) -> list[Tensor]:
    """Of every layer, [channels, rows, columns] of unit length along the channels."""
    found, pixels = [], torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    for layer in network():
        pixels = torch.relu(layer(pixels))
        found.append(nn.functional.normalize(pixels[0], dim=0))
    return found


def moved_outside(source: np.ndarray, edited: np.ndarray, changed: np.ndarray) -> float:
    """LPIPS's distance of source and edit with the changed region taken from the source: 0 where the rest is as it was."""
    rest = np.where(changed[..., None], source, edited)
    pairs = zip(features(source), features(rest), strict=True)
    return sum(float((one - two).square().sum(0).mean()) for one, two in pairs)


def same_subject(source: np.ndarray, edited: np.ndarray, changed: np.ndarray) -> float | None:
    """Cosine of embeddings, here of the whole picture; None for a copy, which would win without an edit."""
    if np.array_equal(source, edited):
        return None
    one, two = (features(image)[-1].mean((1, 2)) for image in (source, edited))
    return float(nn.functional.cosine_similarity(one, two, dim=0))
