"""Transformers' Qwen2.5-VL as the encoder of edits: built from sizes, from pretrained weights, or from a saved configuration.

In: a Batch. Out: hidden states [row, token, hidden]. The vision tower sees each distinct image once; its features are put in
the places of the placeholder tokens, with the three-axis positions the family was trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionPatchEmbed
from transformers.vision_utils import get_vision_cu_seqlens, get_vision_position_ids, get_vision_window_index

from reward import attention
from reward.batch import Batch
from reward.config import BackboneConfig
from reward.images import patchify
from reward.prompt import Grid
from reward.tokenizer import IMAGE_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN, token_id

TEMPORAL_PATCH = 2
"""Frames that one vision token covers: a still image twice, or source and edit."""


def sized_config(config: BackboneConfig, tokenizer: PreTrainedTokenizerBase) -> Qwen2_5_VLConfig:
    """Transformers' configuration for random weights of the given sizes and the tokenizer's vocabulary."""
    half = config.text_hidden // config.text_heads // 2
    third = half // 3
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": config.text_hidden,
            "intermediate_size": config.text_intermediate,
            "num_hidden_layers": config.text_layers,
            "num_attention_heads": config.text_heads,
            "num_key_value_heads": config.text_kv_heads,
            "initializer_range": config.initializer_range,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": config.rope_theta,
                "mrope_section": [half - 2 * third, third, third],
            },
            "bos_token_id": None,
            "eos_token_id": None,
        },
        vision_config={
            "depth": config.vision_depth,
            "hidden_size": config.vision_hidden,
            "intermediate_size": config.vision_intermediate,
            "num_heads": config.vision_heads,
            "patch_size": config.patch_size,
            "spatial_merge_size": config.merge_size,
            "temporal_patch_size": TEMPORAL_PATCH,
            "window_size": config.patch_size * config.merge_size * 2,
            "fullatt_block_indexes": list(range(config.vision_depth)),
            "out_hidden_size": config.text_hidden,
            "initializer_range": config.initializer_range,
        },
        image_token_id=token_id(tokenizer, IMAGE_TOKEN),
        video_token_id=token_id(tokenizer, VIDEO_TOKEN),
        vision_start_token_id=token_id(tokenizer, VISION_START_TOKEN),
        vision_end_token_id=token_id(tokenizer, VISION_END_TOKEN),
        tie_word_embeddings=True,
    )


def load_pretrained(config: BackboneConfig, tokenizer: PreTrainedTokenizerBase) -> Qwen2_5_VLModel:
    """Published weights; the embedding grows only if the reward token has no row yet."""
    assert config.pretrained is not None
    where: dict[str, Any] = {"revision": config.revision} if config.revision else {}
    loaded: Any = Qwen2_5_VLForConditionalGeneration.from_pretrained(config.pretrained, output_loading_info=True, **where)
    whole, report = loaded
    if report["missing_keys"]:
        raise ValueError(
            f"{config.pretrained} lacks {len(report['missing_keys'])} weights of a Qwen2.5-VL model, "
            f"first {sorted(report['missing_keys'])[0]}; expected a complete checkpoint of that family"
        )
    backbone = whole.model  # published files name their weights as parts of the generating model
    if len(tokenizer) > backbone.get_input_embeddings().num_embeddings:
        backbone.resize_token_embeddings(len(tokenizer))
    return backbone


class _ProductPatchEmbed(Qwen2_5_VisionPatchEmbed):
    """The same map as a matrix product: a convolution whose stride is its kernel is one, and slower."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        weight = self.proj.weight  # [hidden, 3, 2, patch, patch]
        return F.linear(hidden_states.to(weight.dtype), weight.flatten(1))


def prepare(backbone: Qwen2_5_VLModel) -> Qwen2_5_VLModel:
    """Let the vision tower work on all images at once; outputs and parameter names stay what they were."""
    backbone.visual.patch_embed.__class__ = _ProductPatchEmbed
    vision: Any = backbone.config.vision_config
    vision._attn_implementation = attention.NAME
    return backbone


def encode(backbone: Qwen2_5_VLModel, batch: Batch) -> Tensor:
    """Last hidden states [row, token, hidden] of a batch."""
    vision: Any = backbone.config.vision_config
    patches = [patchify(stack, patch_size=vision.patch_size, merge_size=vision.spatial_merge_size) for stack in batch.stacks]
    pixels = torch.cat(patches) if len(patches) > 1 else patches[0]
    runs = tuple((grid, len(stack)) for grid, stack in zip(batch.grids, batch.stacks, strict=True))
    layout = _vision_layout(runs, vision.spatial_merge_size, vision.window_size, vision.patch_size)
    layout = {name: tensor.to(pixels.device) for name, tensor in layout.items()}
    features = backbone.visual(pixels, **layout).pooler_output  # [vision token of all items, hidden]
    embeddings = backbone.get_input_embeddings()(batch.input_ids)  # [row, token, hidden]
    flat = embeddings.flatten(0, 1)
    flat = flat.index_copy(0, batch.placeholder, features[batch.feature].to(flat.dtype))
    return backbone.language_model(
        inputs_embeds=flat.view_as(embeddings), position_ids=batch.position_ids, use_cache=False
    ).last_hidden_state


@lru_cache(maxsize=32)
def _vision_layout(runs: Sequence[tuple[Grid, int]], merge_size: int, window_size: int, patch_size: int) -> dict[str, Tensor]:
    """What the vision tower derives from the grids, item by item in Python: kept, since batches repeat their shapes."""
    grid_thw = torch.tensor([[1, *grid] for grid, count in runs for _ in range(count)])
    window_index, cu_window_seqlens = get_vision_window_index(grid_thw, merge_size, window_size, patch_size)
    return {
        "grid_thw": grid_thw,
        "position_ids": get_vision_position_ids(grid_thw, merge_size),
        "cu_seqlens": get_vision_cu_seqlens(grid_thw),
        "window_index": window_index,
        "cu_window_seqlens": cu_window_seqlens,
    }
