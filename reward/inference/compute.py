"""The cost of a pass: floating-point operations counted from shapes, and the peak of known devices, for model FLOP utilisation (MFU).

Counted are products of matrices, two operations per multiplication: linear layers and attention of the vision tower and of the language
model. Heads, norms, activations and embeddings are left out. Attention counts every query with every key of its block, as torch's counter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reward.inputs.batch import Batch

PEAKS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "H20": 148e12, "A100": 312e12, "A800": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bfloat16 operations per second by a part of the device's name, from the makers' data sheets (H100: the SXM version)."""


def peak_of(device: torch.device) -> float | None:
    """Peak of a device in operations per second; None where it is not known, as for a CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)


class PassCost:
    """Operations of a model's forward passes."""

    def __init__(self, backbone: Any) -> None:
        text, vision, tower = backbone.config.text_config, backbone.config.vision_config, backbone.visual
        layers = backbone.language_model.layers
        self._per_token = _weights(layers)
        self._per_unread_token = self._per_token - _weights(layers[-1].mlp)  # the last layer's MLP sees the tokens that are read
        heads = text.num_attention_heads
        self._per_pair = 2 * len(layers) * heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
        self._per_patch = _weights(tower.blocks) + _weights(tower.patch_embed)
        self._per_vision_token = _weights(tower) - self._per_patch
        self._merged = vision.spatial_merge_size**2
        self._per_patch_pair = 2 * vision.hidden_size
        window = getattr(vision, "window_size", None)
        self._whole = len(tower.blocks) if window is None else len(vision.fullatt_block_indexes)
        self._windowed = len(tower.blocks) - self._whole
        self._window = 0 if window is None else (window // vision.patch_size) ** 2

    def flop(self, batch: Batch) -> float:
        """Operations of one pass over a batch; what it takes from a cached root costs nothing."""
        tokens, read = len(batch.input_ids), batch.reads.numel()
        pairs = sum(nodes * length * path for nodes, length, path in batch.attention.shapes)
        products = read * self._per_token + (tokens - read) * self._per_unread_token + pairs * self._per_pair
        for (rows, columns), stack in zip(batch.grids, batch.stacks, strict=True):
            area, images = rows * columns, len(stack)
            reach = self._whole * area + self._windowed * min(area, self._window)  # patches that a patch sees, summed over the blocks
            products += images * area * (self._per_patch + self._per_vision_token / self._merged + reach * self._per_patch_pair)
        return 2.0 * products


def _weights(module: nn.Module) -> int:
    """Parameters that multiply: those of linear layers and of the convolution over patches."""
    return sum(part.weight.numel() for part in module.modules() if isinstance(part, (nn.Linear, nn.Conv3d)))
