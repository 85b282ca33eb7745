"""FLUX.1-Kontext: CLIP and T5 read the instruction, not the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stages.editors.native.instruction_limits import too_long
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
    tokens = tokenizer(text, return_offsets_mapping=True)
    spans = (span for token, span in zip(tokens.input_ids, tokens.offset_mapping, strict=True) if token == tokenizer.unk_token_id)
    unknown = "".join(character for start, end in spans for character in text[start:end] if character.isalnum())
    if unknown:
        return f"T5 does not know the characters {unknown[:20]!r} of the instruction; translate it into English"
    return too_long(len(tokens.input_ids), LIMIT)


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
