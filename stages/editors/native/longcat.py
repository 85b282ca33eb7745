"""LongCat-Image-Edit: Qwen2.5-VL reads image and instruction together; quoted text is read letter by letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finetune.instruction_limits import control_token, too_long
from stages.editors.native.model import Family, Pipeline

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from stages.editors.native.model import Condition

LIMIT = 512
"""Tokens of an instruction. More of them are a TypeError in diffusers 0.42.1."""


def _encode(pipeline: Pipeline, image: Image.Image, text: str) -> Condition:
    half = pipeline.image_processor.resize(image, image.height // 2, image.width // 2)
    states, _ = pipeline.encode_prompt([text], image=half)
    return {"prompt_embeds": states}


def _refusal(pipeline: Pipeline, text: str) -> str:
    from diffusers.pipelines.longcat_image.pipeline_longcat_image_edit import split_quotation

    pieces = [piece for part, quoted in split_quotation(text) for piece in (part if quoted else [part])]
    count = sum(len(pipeline.tokenizer(piece, add_special_tokens=False).input_ids) for piece in pieces)
    return control_token(pipeline.tokenizer, text) or too_long(count, LIMIT)


def _arguments(size: tuple[int, int], guidance: float) -> dict[str, Any]:
    return {"guidance_scale": guidance}


def _denoiser(pipeline: Pipeline) -> Pipeline:
    """The pipeline documents ready-made states and batches of them, and then asks for the length of the prompts that they replace."""
    from finetune.image_positions import supply

    supply(pipeline.text_encoder)
    of_prompts = pipeline.encode_prompt

    def of_prompts_or_states(prompt: Any = None, prompt_embeds: Tensor | None = None, **rest: Any) -> tuple[Tensor, Tensor]:
        return of_prompts(prompt=prompt if prompt_embeds is None else [""] * len(prompt_embeds), prompt_embeds=prompt_embeds, **rest)

    pipeline.encode_prompt = of_prompts_or_states
    return pipeline


LONGCAT = Family(
    pipeline="LongCatImageEditPipeline",
    encode=_encode,
    refusal=_refusal,
    arguments=_arguments,
    denoiser=_denoiser,
    packages=("torchvision",),
)
