"""Qwen-Image-Edit and its successors: Qwen2.5-VL reads image and instruction together.

The first release shows the encoder the image at the size of the canvas; the successors ("Plus") show it at 384² pixels and in another
template. Their pipeline refuses batches, and differs in nothing else for one source image: both are denoised by the first one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from finetune.instruction_limits import control_token, too_long
from stages.editors.native.model import Family, Pipeline

if TYPE_CHECKING:
    from PIL import Image

    from stages.editors.native.model import Condition

LIMIT = 1024
"""Tokens of an instruction, the pipeline's limit for its prompts."""


def _encode(pipeline: Pipeline, image: Image.Image, text: str) -> Condition:
    import torch

    states, mask = pipeline.encode_prompt([text], image=[image], device=pipeline._execution_device)
    assert mask is None, "one text has no padding"
    return {"prompt_embeds": states, "prompt_embeds_mask": torch.ones(states.shape[:2], dtype=torch.long, device=states.device)}


def _encode_plus(pipeline: Pipeline, image: Image.Image, text: str) -> Condition:
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    width, height = plus.calculate_dimensions(plus.CONDITION_IMAGE_SIZE, image.width / image.height)
    return _encode(pipeline, pipeline.image_processor.resize(image, height, width), text)


def _refusal(pipeline: Pipeline, text: str) -> str:
    return control_token(pipeline.tokenizer, text) or too_long(len(pipeline.tokenizer(text).input_ids), LIMIT)


def _arguments(size: tuple[int, int], guidance: float) -> dict[str, Any]:
    return {"width": size[0], "height": size[1], "true_cfg_scale": guidance}


def _denoiser(pipeline: Pipeline) -> Pipeline:
    from diffusers import QwenImageEditPipeline

    from finetune.image_positions import supply

    supply(pipeline.text_encoder)
    return QwenImageEditPipeline(**pipeline.components)


QWEN = Family(
    pipeline="QwenImageEditPipeline",
    encode=_encode,
    refusal=_refusal,
    arguments=_arguments,
    denoiser=_denoiser,
    one_instruction=True,
    packages=("torchvision",),
)
QWEN_PLUS = Family(
    pipeline="QwenImageEditPlusPipeline",
    encode=_encode_plus,
    refusal=_refusal,
    arguments=_arguments,
    denoiser=_denoiser,
    one_instruction=True,
    packages=("torchvision",),
)
