"""FLUX.1-Kontext: CLIP and T5 read the instruction, not the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finetune.instruction_limits import too_long, unknown_characters
from stages.editors.native.model import Family, Pipeline

if TYPE_CHECKING:
    from PIL import Image

    from stages.editors.native.model import Condition

LIMIT = 512
"""Tokens that T5 reads; CLIP reads the first 77 of its own by design."""


def _encode(pipeline: Pipeline, image: Image.Image, text: str) -> Condition:
    states, pooled, _ = pipeline.encode_prompt([text], device=pipeline._execution_device)
    return {"prompt_embeds": states, "pooled_prompt_embeds": pooled}


def _refusal(pipeline: Pipeline, text: str) -> str:
    tokenizer = pipeline.tokenizer_2
    return unknown_characters(tokenizer, text) or too_long(len(tokenizer(text).input_ids), LIMIT)


def _arguments(size: tuple[int, int], guidance: float) -> dict[str, Any]:
    """Without its own area as the limit, the pipeline changes 4 of the model's 17 sizes."""
    width, height = size
    return {"width": width, "height": height, "max_area": width * height, "_auto_resize": False, "guidance_scale": guidance}


KONTEXT = Family(
    pipeline="FluxKontextPipeline",
    encode=_encode,
    refusal=_refusal,
    arguments=_arguments,
    denoiser=lambda pipeline: pipeline,
    conditioning="instruction",
)
