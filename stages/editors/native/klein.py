"""FLUX.2-klein: three middle layers of Qwen3 read the instruction, not the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finetune.instruction_limits import control_token, too_long
from stages.editors.native.model import Family, Pipeline

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from stages.editors.native.model import Condition

LIMIT = 512
"""Tokens that the pipeline keeps, chat template included."""


def _encode(pipeline: Pipeline, image: Image.Image, text: str) -> Condition:
    states, _ = pipeline.encode_prompt([text], device=pipeline._execution_device)
    return {"prompt_embeds": states}


def _refusal(pipeline: Pipeline, text: str) -> str:
    chat = [{"role": "user", "content": text}]
    prompt = pipeline.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    return control_token(pipeline.tokenizer, text) or too_long(len(pipeline.tokenizer(prompt).input_ids), LIMIT)


def _arguments(size: tuple[int, int], guidance: float) -> dict[str, Any]:
    return {"width": size[0], "height": size[1], "guidance_scale": guidance}


def _denoiser(pipeline: Pipeline) -> Pipeline:
    """The pipeline takes several images as references of one edit. Here each is the one reference of its own edit."""
    import torch

    references_of_one = pipeline.prepare_image_latents

    def one_reference_each(images: list[Tensor], batch_size: int, **rest: Any) -> tuple[Tensor, Tensor]:
        assert len(images) == batch_size
        latents, positions = zip(*(references_of_one(images=[image], batch_size=1, **rest) for image in images), strict=True)
        return torch.cat(latents), torch.cat(positions)

    pipeline.prepare_image_latents = one_reference_each
    return pipeline


KLEIN = Family(
    pipeline="Flux2KleinPipeline",
    encode=_encode,
    refusal=_refusal,
    arguments=_arguments,
    denoiser=_denoiser,
    conditioning="instruction",
)
