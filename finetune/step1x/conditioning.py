"""What Step1X-Edit v1.0 conditions on: last hidden states of Qwen2.5-VL over prompt and source image, without the prompt's fixed start.

The model is told which tokens are the image's: transformers otherwise falls back to one-dimensional positions without a word. Hidden
states are taken after the final norm. As in the released code, the token 0 ("!" in Qwen's vocabulary) is masked in the model, and an image
is brought to multiples of 28 pixels before it is brought to the model's area.
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen2_5_VLModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from finetune.step1x.config import VLM_PATCH_AREA, ConditioningConfig
from finetune.step1x.prompt import IMAGE, special_id, token_ids
from finetune.tested_versions import refusal

_FIRST_RESIZE = {"factor": 28, "min_pixels": 4 * VLM_PATCH_AREA, "max_pixels": 16384 * VLM_PATCH_AREA}  # those of qwen-vl-utils


class Conditioner:
    """Qwen2.5-VL with its tokenizer. Checks prompt and positions of the installed versions when it is made."""

    def __init__(self, vlm: Qwen2_5_VLModel, tokenizer: PreTrainedTokenizerBase, config: ConditioningConfig) -> None:
        self.vlm, self.tokenizer, self.config = vlm.eval().requires_grad_(False), tokenizer, config
        vision: Any = vlm.config.vision_config
        self._images = Qwen2VLImageProcessorPil(
            min_pixels=config.min_pixels,
            max_pixels=config.max_pixels,
            patch_size=vision.patch_size,
            temporal_patch_size=vision.temporal_patch_size,
            merge_size=vision.spatial_merge_size,
        )
        self._check_prefix()
        self._check_model()

    def length(self, source: Image.Image, instruction: str) -> int:
        """Hidden states of a source and an instruction before they are cut to `max_tokens`. ValueError as of `encode`."""
        return self._inputs(source, instruction)["input_ids"].shape[1] - self.config.prefix_tokens

    @torch.no_grad()
    def encode(self, source: Image.Image, instruction: str) -> Tensor:
        """Hidden states [length, width] of an RGB image and an instruction; length is at most `max_tokens`.

        ValueError when the instruction contains a special token.
        """
        inputs = self._inputs(source, instruction)
        states = self.vlm(**inputs, use_cache=False).last_hidden_state[0]
        return states[self.config.prefix_tokens :][: self.config.max_tokens]

    def _inputs(self, source: Image.Image, instruction: str) -> dict[str, Tensor]:
        height, width = smart_resize(source.height, source.width, **_FIRST_RESIZE)
        processed = self._images(images=[source.resize((width, height))], return_tensors="pt")
        image_tokens = int(processed["image_grid_thw"].prod()) // self._images.merge_size**2
        ids = torch.tensor([token_ids(self.tokenizer, instruction, image_tokens)])
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": (ids > 0).long(),
            "mm_token_type_ids": (ids == special_id(self.tokenizer, IMAGE)).int(),
            "pixel_values": processed["pixel_values"].to(self.vlm.dtype),
            "image_grid_thw": processed["image_grid_thw"],
        }
        return {name: tensor.to(self.vlm.device) for name, tensor in inputs.items()}

    def _check_prefix(self) -> None:
        ids = token_ids(self.tokenizer, "", 1)
        kept = self.tokenizer.decode(ids[self.config.prefix_tokens : ids.index(special_id(self.tokenizer, IMAGE))])
        if kept != ":Picture 1: <|vision_start|>":
            raise ValueError(
                f"with this tokenizer, {kept!r} follows the {self.config.prefix_tokens} tokens of the prompt that are cut off, expected "
                "':Picture 1: <|vision_start|>'; use the tokenizer of Qwen2.5-VL-7B-Instruct"
            )

    def _check_model(self) -> None:
        positions: list[Tensor | None] = []
        normed: list[Tensor] = []

        def record(module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            positions.append(keywords.get("position_ids"))

        blank = Image.new("RGB", (4 * 28, 4 * 28))
        model: Any = self.vlm.language_model
        hooks = [
            model.register_forward_pre_hook(record, with_kwargs=True),
            model.norm.register_forward_hook(lambda _, given, output: normed.append(output[0])),
        ]
        try:
            states = self.encode(blank, "")
        finally:
            for hook in hooks:
                hook.remove()
        found = positions[0]  # [3, 1, length], or [4, 1, length] with the positions in the text first
        if found is None or found.ndim != 3 or torch.equal(found[-1], found[-2]):
            raise ValueError(refusal("gives the image of Qwen2.5-VL no rows and columns"))
        if not torch.equal(states, normed[-1][self.config.prefix_tokens :][: self.config.max_tokens]):
            raise ValueError(refusal("does not give the last states of Qwen2.5-VL from behind its final norm"))
