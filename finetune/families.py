"""The families of large editors: how their halves are opened."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from finetune.editing_model import Condition, Encoders
from finetune.step1x import encoders as step1x
from finetune.step1x import loading
from finetune.step1x.config import VLM_PATCH_AREA, Step1XConfig
from reward.trainer.sharding import ReadRows

Decoder = Callable[[Tensor], list[Image.Image]]


def open_encoders(config: Step1XConfig, device: torch.device) -> Encoders:
    """The frozen half."""
    return step1x.Step1XEncoders.load(config, device)


def encoders_identity(config: Step1XConfig) -> str:
    """Hash of everything that the encoders' results depend on."""
    return step1x.identity(config)


def open_decoder(config: Step1XConfig, device: torch.device) -> Decoder:
    """From latents [n, channels, rows, columns] to RGB images, without the rest of the encoders."""
    vae = step1x.load_vae(config).to(device)

    @torch.no_grad()
    def decode(latents: Tensor) -> list[Image.Image]:
        return step1x.decode(vae, latents)

    return decode


@dataclass(frozen=True)
class ExampleInput:
    """What one pair is to the model: the shape of its latents, and its condition at a usual length."""

    latent: tuple[int, int, int]
    condition: Condition


def example_input(config: Step1XConfig, side: int, device: torch.device) -> ExampleInput:
    """Of a square pair of side x side pixels, with as many image tokens as the vision-language model sees, and an instruction of 40."""
    rows = side // 16 * 2
    length = min(config.conditioning.max_tokens, config.conditioning.max_pixels // VLM_PATCH_AREA + 40)
    states = torch.zeros(length, config.sizes.vlm_width, device=device)
    return ExampleInput((config.sizes.latent_channels, rows, rows), {"states": states})


def model_identity(config: Step1XConfig) -> str:
    """Hash of the trained half's file."""
    path = loading.denoiser_path(config)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"finetune.editor: {path} is not readable ({error}); expected the released denoiser") from None


def open_model(config: Step1XConfig, device: torch.device, dtype: torch.dtype | None = None) -> nn.Module:
    """The trained half with its weights."""
    return loading.load_weights(config, device, dtype)


def without_weights(config: Step1XConfig) -> nn.Module:
    """The trained half on the meta device."""
    return loading.without_weights(config)


def stored_rows(config: Step1XConfig, model: nn.Module) -> dict[str, ReadRows]:
    """What reads the rows of every weight."""
    return loading.stored_rows(config, model)


def export_weights(config: Step1XConfig, model: nn.Module, path: Path) -> None:
    """Write the trained half as the family's released file has it."""
    loading.export_weights(model, path)


def with_weights(config: Step1XConfig, path: Path) -> Step1XConfig:
    """The editor with the trained half of another file."""
    return config.model_copy(update={"denoiser": str(path.absolute())})
