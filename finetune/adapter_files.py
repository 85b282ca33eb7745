"""Files of FLUX-type LoRA adapters in the two published layouts, and reading either into a model.

`diffusers`: one adapter per layer of the library's transformer, under its names, the scale multiplied into the second factor.
`kohya`: one adapter per layer of FLUX's own layout, which fuses projections, as the released trainer of Step1X-Edit writes and its sampling
script reads. Projections that share their first factor become one adapter of the same rank; others become one with the ranks added up,
whose second factor is block-diagonal. Both keep each layer's update.
Source: library/lora_module.py of stepfun-ai/Step1X-Edit at 570eba6, and `_convert_kohya_flux_lora_to_diffusers` of diffusers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
from diffusers.loaders import FluxLoraLoaderMixin
from diffusers.loaders.peft import PeftAdapterMixin
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from finetune.adapters import Adapter, adapters
from finetune.flux_names import DOUBLE_BLOCK, DOUBLE_BLOCK_FUSED, SINGLE_BLOCK, SINGLE_BLOCK_FUSED

_TRANSFORMER = "transformer"
_BLOCK = re.compile(rf"{_TRANSFORMER}\.(transformer_blocks|single_transformer_blocks)\.(\d+)\.(.+)")


def save_diffusers(model: nn.Module, path: Path, dtype: torch.dtype) -> None:
    """Write a model's adapters for diffusers' `load_lora_weights` and `load_lora_adapter`."""
    tensors = {}
    for one in adapters(model):
        tensors[f"{one.layer}.lora_A.weight"] = one.down.to("cpu", dtype).clone()
        tensors[f"{one.layer}.lora_B.weight"] = (one.up * one.scale).to("cpu", dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def save_kohya(model: nn.Module, path: Path, dtype: torch.dtype) -> None:
    """Write a model's adapters in the layout of the released trainer."""
    tensors = {}
    for name, one in _fused({one.layer: one for one in adapters(model)}):
        tensors[f"{name}.lora_down.weight"] = one.down.to("cpu", dtype).clone()
        tensors[f"{name}.lora_up.weight"] = one.up.to("cpu", dtype).clone()
        tensors[f"{name}.alpha"] = torch.tensor(one.scale * len(one.down), dtype=dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def load_adapters(transformer: PeftAdapterMixin, path: Path) -> None:
    """Put the adapters of a file of either layout into diffusers' transformer, by the library's loader.

    ValueError when the file is unreadable or contains other layers than the transformer's.
    """
    try:
        state, alphas, metadata = FluxLoraLoaderMixin.lora_state_dict(load_file(path), return_alphas=True, return_lora_metadata=True)
        layers = {name.partition(".lora_")[0].removeprefix(f"{_TRANSFORMER}.") for name in state}
        unknown = sorted(layers - {name for name, _ in cast(nn.Module, transformer).named_modules()})
        if unknown or not layers:
            raise ValueError(f"it has no layer {unknown[0]}" if unknown else "the file is empty")
        transformer.load_lora_adapter(state, network_alphas=alphas, metadata=metadata, prefix=_TRANSFORMER)
    except (OSError, SafetensorError, AssertionError, KeyError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} contains no LoRA adapters of this model ({reason}); expected kohya's or diffusers' names") from error


def _fused(found: dict[str, Adapter]) -> Iterator[tuple[str, Adapter]]:
    """Adapters of the fused layers, with kohya's names."""
    blocks: dict[tuple[str, str], dict[str, Adapter]] = {}
    for name, one in found.items():
        match = _BLOCK.fullmatch(name)
        assert match is not None, name
        blocks.setdefault((match[1], match[2]), {})[match[3]] = one
    for (kind, number), layers in blocks.items():
        double = kind == "transformer_blocks"
        prefix = f"lora_unet_{'double' if double else 'single'}_blocks_{number}_"
        for ours, released in (DOUBLE_BLOCK if double else SINGLE_BLOCK).items():
            yield prefix + released.replace(".", "_"), layers[ours]
        for released, parts in (DOUBLE_BLOCK_FUSED if double else SINGLE_BLOCK_FUSED).items():
            yield prefix + released.replace(".", "_"), _as_one([layers[part] for part in parts])


def _as_one(parts: Sequence[Adapter]) -> Adapter:
    first = parts[0]
    if all(part.down is first.down or torch.equal(part.down, first.down) for part in parts):
        down, up = first.down, torch.cat([part.up for part in parts])
    else:
        down, up = torch.cat([part.down for part in parts]), torch.block_diag(*(part.up for part in parts))
    return Adapter(first.layer, down, up, first.scale)
