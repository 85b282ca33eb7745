"""A directory as published backbones come: weights and configuration in bfloat16, a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tiny_model import BACKBONE
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen3VLForConditionalGeneration

from reward.inputs.tokenizer import build_tokenizer, save_tokenizer
from reward.model.backbone import sized_config

GENERATING = {"qwen2_5_vl": Qwen2_5_VLForConditionalGeneration, "qwen3_vl": Qwen3VLForConditionalGeneration}


def write_pretrained(folder: Path, words: Sequence[str], family: str = "qwen2_5_vl") -> Path:
    """Random weights of the tiny size; `words` are texts whose words the tokenizer knows."""
    tokenizer = build_tokenizer(words)
    config = sized_config(BACKBONE.model_copy(update={"family": family}), tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GENERATING[family](config)
    model.to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder
