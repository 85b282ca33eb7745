"""Configuration of Step1X-Edit v1.0: the released sizes are the defaults, a tiny one differs in values only."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from finetune.config import SamplingConfig
from reward.trainer.config import Configuration

VLM_PATCH_AREA = 28 * 28
"""Pixels of an image that one token of Qwen2.5-VL covers."""


class Step1XSizes(Configuration):
    """Sizes of denoiser, connector and VAE."""

    double_blocks: int = Field(19, gt=0, description="Denoiser: blocks with separate weights for text and image tokens.")
    single_blocks: int = Field(38, gt=0, description="Denoiser: blocks with shared weights.")
    heads: int = Field(24, gt=0, description="Denoiser: attention heads.")
    rope_axes: tuple[int, int, int] = Field((16, 56, 56), description="Denoiser: rotary dimensions of a head for image, row, column.")
    connector_blocks: int = Field(2, gt=0, description="Connector: blocks of its token refiner.")
    connector_heads: int = Field(32, gt=0, description="Connector: attention heads.")
    connector_head_dim: int = Field(128, gt=0, description="Connector: width of an attention head.")
    vlm_width: int = Field(3584, gt=0, description="Width of the hidden states of the vision-language model.")
    pooled_width: int = Field(768, gt=0, description="Width of the pooled condition.")
    latent_channels: int = Field(16, gt=0, description="Channels of the VAE's latents; a token of the denoiser packs 2 x 2 of them.")
    vae_channels: tuple[int, ...] = Field((128, 256, 512, 512), min_length=1, description="Channels of the VAE's levels.")
    vae_layers: int = Field(2, gt=0, description="Residual blocks of a level of the VAE's encoder.")
    vae_groups: int = Field(32, gt=0, description="Groups of the VAE's normalisations.")

    @model_validator(mode="after")
    def _axes_are_even(self) -> Self:
        if any(axis <= 0 or axis % 2 for axis in self.rope_axes):
            raise ValueError(f"rope_axes {self.rope_axes} must be positive even numbers")
        return self


class ConditioningConfig(Configuration):
    """What the vision-language model reads, and which of its hidden states the connector gets."""

    prefix_tokens: int = Field(217, gt=0, description="Hidden states that are cut off at the start: the fixed part of the prompt.")
    max_tokens: int = Field(640, gt=0, description="Hidden states kept at most, and the length that the denoiser sees.")
    min_pixels: int = Field(256 * VLM_PATCH_AREA, gt=0, description="Smaller source images are enlarged for the model to this area.")
    max_pixels: int = Field(324 * VLM_PATCH_AREA, gt=0, description="Larger source images are reduced for the model to this area.")


class Step1XConfig(Configuration):
    """One Step1X-Edit v1.0: where its files are, in the layout of the released repository."""

    family: Literal["step1x-edit-v1.0"] = "step1x-edit-v1.0"
    directory: str = Field(description="Folder with the released files; the others are names in it, or full paths.")
    denoiser: str = Field("step1x-edit-i1258.safetensors", description="File of denoiser and connector.")
    vae: str = Field("vae.safetensors", description="File of the VAE.")
    vlm: str = Field("Qwen2.5-VL-7B-Instruct", description="Folder of the vision-language model.")
    sizes: Step1XSizes = Field(Step1XSizes(), description="Sizes of the networks.")
    conditioning: ConditioningConfig = Field(ConditioningConfig(), description="What the vision-language model reads.")
    sampling: SamplingConfig = Field(SamplingConfig(), description="How edits are sampled; the defaults are the released ones.")
