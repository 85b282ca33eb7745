"""LoRA adapters of an `EditingModel`: one on every linear layer of its blocks, as the released trainers of Step1X-Edit and FLUX have them.

Two layouts. `split`: every layer of the library's model has its own adapter. `fused`: layers that released files fuse to one (query, key
and value; in single blocks the MLP's first layer too) share their first factor, as one adapter on the fused layer does. At rank 64 the
adapters of Step1X-Edit have 343.7M parameters split and 306.3M fused. Every fused adapter is a split one; the reverse holds at a multiple
of the rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraModel
from torch import Tensor, nn

from finetune.config import AdapterLayout
from reward.trainer.config import AdapterConfig
from reward.trainer.lora import adapt

_NAME = "default"  # peft's name of the only adapter


@dataclass(frozen=True)
class Adapter:
    """The update scale * up @ down of one layer. layer: its name in the model; down: [rank, in]; up: [out, rank]."""

    layer: str
    down: Tensor
    up: Tensor
    scale: float


def add_adapters(model: nn.Module, config: AdapterConfig, layout: AdapterLayout, *, seed: int, device: torch.device) -> list[LoraModel]:
    """Freeze a model, an `EditingModel`, and put adapters into its blocks, in place; outputs do not change yet.

    device: where adapters of weights on the meta device go. ValueError when the family's files fuse no layers and layout is `fused`.
    """
    editing: Any = model
    fused = editing.fused_projections
    if layout == "fused" and not fused:
        raise ValueError("adapters of layout fused are for families whose released files fuse projections; use split")
    model.requires_grad_(False)
    adapted = adapt([model.get_submodule(name) for name in editing.block_lists], config, seed=seed, device=device)
    if layout == "fused":
        for part in adapted:
            for block in part.model.children():
                _share_first_factors(block, fused)
    return adapted


def adapters(model: nn.Module) -> Iterator[Adapter]:
    """All adapters of a model, in the order of its layers."""
    for name, layer in model.named_modules():
        if isinstance(layer, LoraLinear):
            down, up = (factors[_NAME].weight.detach() for factors in (layer.lora_A, layer.lora_B))
            yield Adapter(name, down, up, layer.scaling[_NAME])


def _share_first_factors(block: nn.Module, fused: tuple[tuple[str, ...], ...]) -> None:
    layers = {name: layer for name, layer in block.named_modules() if isinstance(layer, LoraLinear)}
    for first, *others in fused:
        if {first, *others} <= layers.keys():
            for other in others:
                layers[other].lora_A[_NAME] = layers[first].lora_A[_NAME]
