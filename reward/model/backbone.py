"""Transformers' Qwen-VL models as encoders of edits: built from sizes, or from a saved configuration.

In: a Batch. Out: last hidden states of the tokens that are asked for. The vision tower sees each distinct image once; its features replace
the placeholder tokens. Attention follows the trees of the prompts (reward.model.attention).

| family | models | attention over trees |
| --- | --- | --- |
| qwen2_5_vl | Qwen2.5-VL 3B and 7B, MiMo-VL-7B | blocks; varlen on CUDA in half precision |
| qwen3_vl | Qwen3-VL (dense) | the same |

Nothing here reads a value back from the device or depends on one: what depends on lengths comes with the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    Qwen2_5_VLConfig,
    Qwen2_5_VLModel,
    Qwen3VLConfig,
    Qwen3VLModel,
)

from reward.config import BackboneConfig
from reward.inputs.batch import Batch
from reward.inputs.images import Statistics, patchify
from reward.inputs.tokenizer import IMAGE_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN, token_id
from reward.inputs.vision import VisionLayout, VisionSizes
from reward.model import attention
from reward.model.layers import LastLayer, LastLayer2_5, LastLayer3, ProductPatchEmbed, TextModel3

TEMPORAL_PATCH = 2
"""Frames that one vision token covers: a still image twice, or source and edit."""


def _sizes_2_5(config: BackboneConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    vision = {
        "window_size": config.patch_size * config.merge_size * 2,
        "fullatt_block_indexes": list(range(config.vision_depth)),
    }
    return {}, vision


def _sizes_3(config: BackboneConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    # features of the last block reach the first layer of the language model, as those of three blocks do in the published models
    return {"head_dim": config.text_hidden // config.text_heads}, {"deepstack_visual_indexes": [config.vision_depth - 1]}


@dataclass(frozen=True)
class Family:
    """What differs between model families: transformers' classes and what inputs look like.

    last_layer, text_model: what the language model's last layer and the language model become; None: stays.
    sizes: further settings of the text and the vision part, from our sizes.
    """

    config: Any
    model: Any
    last_layer: type[LastLayer]
    text_model: type[nn.Module] | None
    statistics: Statistics
    sizes: Callable[[BackboneConfig], tuple[dict[str, Any], dict[str, Any]]]


FAMILIES = {
    "qwen2_5_vl": Family(
        Qwen2_5_VLConfig,
        Qwen2_5_VLModel,
        LastLayer2_5,
        None,
        ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),  # those of CLIP
        _sizes_2_5,
    ),
    "qwen3_vl": Family(
        Qwen3VLConfig,
        Qwen3VLModel,
        LastLayer3,
        TextModel3,
        ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        _sizes_3,
    ),
}


def sized_config(config: BackboneConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig:
    """Transformers' configuration for random weights of the given sizes and the tokenizer's vocabulary."""
    family = FAMILIES[config.family]
    text, vision = family.sizes(config)
    half = config.text_hidden // config.text_heads // 2
    third = half // 3
    return family.config(
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
            **text,
        },
        vision_config={
            "depth": config.vision_depth,
            "hidden_size": config.vision_hidden,
            "intermediate_size": config.vision_intermediate,
            "num_heads": config.vision_heads,
            "patch_size": config.patch_size,
            "spatial_merge_size": config.merge_size,
            "temporal_patch_size": TEMPORAL_PATCH,
            "out_hidden_size": config.text_hidden,
            "initializer_range": config.initializer_range,
            **vision,
        },
        image_token_id=token_id(tokenizer, IMAGE_TOKEN),
        video_token_id=token_id(tokenizer, VIDEO_TOKEN),
        vision_start_token_id=token_id(tokenizer, VISION_START_TOKEN),
        vision_end_token_id=token_id(tokenizer, VISION_END_TOKEN),
        tie_word_embeddings=True,
    )


def build_backbone(family: str, config: PreTrainedConfig, *, empty: bool = False) -> Any:
    """A model of a configuration with random weights in float32, whatever precision the configuration names.

    empty: parameters are on the meta device and take no memory until weights are assigned to them.
    """
    _forget_precision(config)
    if not empty:
        return FAMILIES[family].model(config)
    with torch.device("meta"):
        backbone = FAMILIES[family].model(config)
    for name, part in list(backbone.named_modules()):
        if any(True for _ in part.buffers(recurse=False)):  # rotary frequencies: derived from the configuration, in no file
            backbone.set_submodule(name, type(part)(part.config))
    return backbone


def _forget_precision(config: PreTrainedConfig) -> None:
    """Drop the precision of the files that a configuration came with: transformers would build each part in that of its configuration."""
    for part in (config, *(getattr(config, name) for name in config.sub_configs)):
        part.dtype = None


def prepare_backbone(backbone: Any, *, attention_kind: attention.Kind = "auto") -> Any:
    """Let the vision tower work on all images at once and the language model on trees, up to the tokens that are read.

    Parameter names stay what they were.
    """
    family = FAMILIES[backbone.config.model_type]
    backbone.visual.patch_embed.__class__ = ProductPatchEmbed
    backbone.visual.config._attn_implementation = attention.IMAGES.format(kind=attention_kind)
    backbone.language_model.config._attn_implementation = attention.TREE.format(kind=attention_kind)
    backbone.language_model.layers[-1].__class__ = family.last_layer
    if family.text_model is not None:
        backbone.language_model.__class__ = family.text_model
    return backbone


def vision_sizes(vision: Any) -> VisionSizes:
    """Sizes of a vision tower, from transformers' configuration of it."""
    learned = getattr(vision, "num_position_embeddings", None)
    return VisionSizes(
        patch_size=vision.patch_size,
        merge_size=vision.spatial_merge_size,
        window_size=getattr(vision, "window_size", None),
        position_grid=None if learned is None else math.isqrt(learned),
    )


def encode(backbone: Any, batch: Batch, *, keep: Tensor, reward_vectors: Tensor) -> Tensor:
    """Last hidden states [kept token, hidden] of the tokens `keep` of a batch.

    reward_vectors [n, hidden]: embeddings of the reward tokens, which take turns in the order of tokens.
    """
    embeddings = backbone.get_input_embeddings()(batch.input_ids)  # [token, hidden]
    further: dict[str, Any] = {}
    if batch.vision is not None:
        features, deep = _vision_features(backbone, batch, batch.vision)
        embeddings = embeddings.index_copy(0, batch.placeholder, features[batch.feature].to(embeddings.dtype))
        if deep:
            further = {"visual_pos_masks": batch.placeholder, "deepstack_visual_embeds": [layer[batch.feature] for layer in deep]}
    embeddings = embeddings.index_copy(0, batch.rewards, reward_vectors[batch.turns].to(embeddings.dtype))
    states = backbone.language_model(
        inputs_embeds=embeddings[None],
        position_ids=batch.position_ids[:, None],
        use_cache=False,
        tree=batch.attention,
        keep=keep,
        **further,
    ).last_hidden_state
    return states[0]


def _vision_features(backbone: Any, batch: Batch, layout: VisionLayout) -> tuple[Tensor, list[Tensor]]:
    """[vision token of all items, hidden], and the features for further layers of the language model (qwen3_vl)."""
    vision = backbone.config.vision_config
    statistics = FAMILIES[backbone.config.model_type].statistics
    patches = [
        patchify(stack, patch_size=vision.patch_size, merge_size=vision.spatial_merge_size, statistics=statistics) for stack in batch.stacks
    ]
    pixels = torch.cat(patches) if len(patches) > 1 else patches[0]
    given: dict[str, Any] = {
        "grid_thw": layout.grids,
        "position_ids": layout.positions,
        "cu_seqlens": layout.images,  # passed through to `attention.image_attention`
        "max_seqlen": layout.images.longest,
    }
    if layout.windows is not None:
        given |= {
            "window_index": layout.window_order,
            "cu_window_seqlens": layout.windows,
            "max_window_seqlen": layout.windows.longest,
        }
    if layout.neighbours is not None:
        given |= {"interp_indices": layout.neighbours, "interp_weights": layout.weights}
    output = backbone.visual(pixels, **given)
    return output.pooler_output, list(getattr(output, "deepstack_features", None) or [])
