"""A patch codec by principal component analysis, in place of a VAE; fitted in closed form in about a second.

In: uint8 images [n, S, S, 3]. Out: latents [n, tokens, channels], one token per patch of a regular grid, row by row.
Like a VAE's, latents have about unit scale. Directions are *half* whitened (divided by the square root of their standard
deviation): the large shapes keep more weight than the fine detail, and the detail is not lost in the flow's noise.
It loses what `channels` components cannot represent, and it represents only images like those it was fitted on; it is no VAE.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from torch import Tensor, nn

from finetune.config import CodecConfig

_CHUNK = 512  # images turned to float64 patches at a time


class PatchCodec(nn.Module):
    """Linear patch codec with fixed buffers: mean [d], basis [channels, d], scale [channels], d = 3 * patch_size ** 2."""

    mean: Tensor
    basis: Tensor
    scale: Tensor

    def __init__(self, patch_size: int, channels: int, patches_per_side: int) -> None:
        super().__init__()
        self.patch_size, self.patches_per_side, self.channels = patch_size, patches_per_side, channels
        values = 3 * patch_size**2
        self.register_buffer("mean", torch.zeros(values))
        self.register_buffer("basis", torch.zeros(channels, values))
        self.register_buffer("scale", torch.ones(channels))

    @property
    def image_size(self) -> int:
        """Side of the images in pixels."""
        return self.patch_size * self.patches_per_side

    @property
    def tokens(self) -> int:
        """Tokens per image."""
        return self.patches_per_side**2

    @torch.no_grad()
    def encode(self, images: np.ndarray) -> Tensor:
        """Latents [n, tokens, channels] (float32, on the codec's device) of uint8 images [n, S, S, 3]."""
        latents = [self._encode(images[start : start + _CHUNK]) for start in range(0, len(images), _CHUNK)]
        return torch.cat(latents) if latents else self.basis.new_zeros(0, self.tokens, self.channels)

    def _encode(self, images: np.ndarray) -> Tensor:
        expected = (self.image_size, self.image_size, 3)
        if images.shape[1:] != expected or images.dtype != np.uint8:
            raise ValueError(f"the codec expects uint8 images {expected}, got {images.dtype} {images.shape[1:]}")
        patches = torch.from_numpy(_patches(images, self.patches_per_side)).to(self.mean)  # [n, tokens, d]
        return (patches - self.mean) @ self.basis.T * self.scale

    @torch.no_grad()
    def decode(self, latents: Tensor) -> np.ndarray:
        """uint8 images [n, S, S, 3] of latents [n, tokens, channels]; values outside the pixel range are clipped."""
        patches = (latents / self.scale) @ self.basis + self.mean  # [n, tokens, d] in [-1, 1]
        pixels = ((patches + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
        side, size = self.patches_per_side, self.patch_size
        grid = pixels.reshape(-1, side, side, size, size, 3).transpose(0, 1, 3, 2, 4, 5)
        return np.ascontiguousarray(grid.reshape(-1, self.image_size, self.image_size, 3))


def fit(images: np.ndarray, config: CodecConfig) -> PatchCodec:
    """Fit the codec to uint8 images [n, S, S, 3]: eigenvectors of the patch covariance, largest first.

    The sign of a component is chosen so that its largest entry is positive, so equal images give an equal codec.
    ValueError if S is no multiple of the grid or if the images hold fewer independent directions than `channels`.
    """
    side = config.patches_per_side
    if images.ndim != 4 or images.shape[1] != images.shape[2] or images.shape[3] != 3 or images.shape[1] % side:
        raise ValueError(f"the codec expects images [n, S, S, 3] with S a multiple of {side}, got {images.shape}")
    codec = PatchCodec(images.shape[1] // side, config.channels, side)
    values = len(codec.mean)
    count = len(images) * codec.tokens
    total, products = np.zeros(values), np.zeros((values, values))
    for start in range(0, len(images), _CHUNK):
        patches = _patches(images[start : start + _CHUNK], side).reshape(-1, values).astype(np.float64)
        total += patches.sum(0)
        products += patches.T @ patches
    mean = total / max(count, 1)
    covariance = products / max(count, 1) - np.outer(mean, mean)
    first = max(values - config.channels, 0)
    variances, vectors = scipy.linalg.eigh(covariance, subset_by_index=(first, values - 1))
    variances, basis = variances[::-1], vectors[:, ::-1].T  # [channels], [channels, d]
    usable = int((variances > 1e-10 * max(variances[0], 1e-10)).sum())
    if usable < config.channels:
        raise ValueError(
            f"{len(images)} images hold only {usable} independent patch components, codec.channels asks for "
            f"{config.channels}: use more (different) images or fewer channels"
        )
    largest = np.abs(basis).argmax(axis=1)
    basis = basis * np.sign(basis[np.arange(len(basis)), largest])[:, None]
    deviations = np.sqrt(variances)
    codec.mean.copy_(torch.from_numpy(mean))
    codec.basis.copy_(torch.from_numpy(np.ascontiguousarray(basis)))
    codec.scale.copy_(torch.from_numpy(1 / np.sqrt(deviations * deviations.mean())))  # mean variance of a latent: 1
    return codec


def _patches(images: np.ndarray, side: int) -> np.ndarray:
    """Patches [n, side * side, 3 * (S / side) ** 2] of uint8 images [n, S, S, 3], float32 in [-1, 1]."""
    n, size = len(images), images.shape[1] // side
    grid = images.reshape(n, side, size, side, size, 3).transpose(0, 1, 3, 2, 4, 5)
    return grid.reshape(n, side * side, -1).astype(np.float32) / 127.5 - 1
