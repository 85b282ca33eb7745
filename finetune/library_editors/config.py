"""Configuration of the editors in diffusers' layout, and of any pretrained editor."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from finetune.config import SamplingConfig
from finetune.step1x.config import Step1XConfig
from reward.trainer.config import Configuration


class LibraryEditorConfig(Configuration):
    """An editor in a folder that diffusers' `from_pretrained` reads; its sizes and its schedule are in the folder."""

    directory: str = Field(description="Folder with model_index.json, transformer, vae, text encoders and scheduler.")
    denoiser: str | None = Field(None, description="File with the transformer's weights in place of the folder's.")


class KontextSampling(SamplingConfig):
    """Sampling as FLUX.1-Kontext's authors do it, without a null condition."""

    guidance: float = Field(1.0, ge=0, description="Classifier-free guidance; 1: the null condition is not computed.")
    side: int = Field(1024, gt=0, description="Images have an area of about side ** 2 pixels, in training as in sampling.")


class QwenImageEditSampling(SamplingConfig):
    """Sampling as Qwen-Image-Edit-2511's authors do it."""

    steps: int = Field(40, gt=0, description="Euler steps from noise (t = 1) to image (t = 0).")
    guidance: float = Field(4.0, ge=0, description="Classifier-free guidance; 1: the null condition is not computed.")
    side: int = Field(1024, gt=0, description="Images have an area of about side ** 2 pixels, in training as in sampling.")


class KontextConfig(LibraryEditorConfig):
    """FLUX.1-Kontext-dev (arXiv 2506.15742)."""

    family: Literal["flux1-kontext"] = "flux1-kontext"
    text_tokens: int = Field(512, gt=0, description="Length of the T5 condition; padding is part of it.")
    embedded_guidance: float = Field(2.5, ge=0, description="Guidance that the denoiser gets as a condition, in training and sampling.")
    sampling: KontextSampling = Field(KontextSampling(), description="How edits are sampled.")


class QwenImageEditConfig(LibraryEditorConfig):
    """Qwen-Image-Edit-2511 (arXiv 2508.02324), with one source image."""

    family: Literal["qwen-image-edit-2511"] = "qwen-image-edit-2511"
    vlm_side: int = Field(384, gt=0, description="The vision-language model sees the source at an area of about vlm_side ** 2 pixels.")
    prefix_tokens: int = Field(64, gt=0, description="Hidden states that are cut off at the start: the fixed part of the prompt.")
    sampling: QwenImageEditSampling = Field(QwenImageEditSampling(), description="How edits are sampled.")


PretrainedEditorConfig = Annotated[Step1XConfig | KontextConfig | QwenImageEditConfig, Field(discriminator="family")]
"""Any pretrained editor, by its family."""
