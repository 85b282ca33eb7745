"""Step1X-Edit v1.0 as a family (`finetune.families`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from finetune.editing_model import Decoder, ExampleInput
from finetune.step1x import loading, versions
from finetune.step1x.config import VLM_PATCH_AREA, Step1XConfig
from finetune.step1x.denoiser import Step1XEdit
from finetune.step1x.encoders import Step1XEncoders, check_vlm, decode, load_vae, vae_path, vlm_folder

open_encoders = Step1XEncoders.load
stored_rows = loading.stored_rows
export_weights = loading.export_weights

_WORDS = 40  # tokens of a usual instruction


def check_folder(config: Step1XConfig) -> None:
    """ValueError for the folder of another version, and naming a file of the vision-language model that is missing or damaged."""
    versions.check_folder(Path(config.directory))
    check_vlm(config)


def open_decoder(config: Step1XConfig, device: torch.device) -> Decoder:
    """The VAE's decoder."""
    return partial(decode, load_vae(config).to(device))


def encoder_files(config: Step1XConfig) -> dict[str, Path]:
    """Files of VAE and vision-language model."""
    folder = vlm_folder(config)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors", ".txt")}
    if not files:
        raise ValueError(f"{folder} contains no model; expected the folder of Qwen2.5-VL-7B-Instruct")
    return files | {"vae": vae_path(config)}


def weight_files(config: Step1XConfig) -> list[Path]:
    """The released file."""
    return [loading.denoiser_path(config)]


def new_model(config: Step1XConfig) -> nn.Module:
    """The model with random weights."""
    return Step1XEdit(config.sizes, config.conditioning.max_tokens)


def example_input(config: Step1XConfig, side: int, device: torch.device) -> ExampleInput:
    """See `finetune.families.example_input`."""
    length = min(config.conditioning.max_tokens, config.conditioning.max_pixels // VLM_PATCH_AREA + _WORDS)
    states = torch.zeros(length, config.sizes.vlm_width, device=device)
    return ExampleInput((config.sizes.latent_channels, side // 16 * 2, side // 16 * 2), {"states": states})
