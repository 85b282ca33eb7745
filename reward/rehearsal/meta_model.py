"""The reward model of a configuration at full size on torch's meta device: shapes and types of all tensors, no values, no memory.

Sizes of a pretrained backbone come from the `config.json` of its directory, or from the file of a published model that is shipped in
`sizes/`; nothing is downloaded. Its tokenizer comes from the directory; without one, text is counted by `word_tokenizer`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from reward.config import BackboneConfig, RewardModelConfig
from reward.inputs.tokenizer import (
    IMAGE_TOKEN,
    REWARD_TOKEN,
    UNKNOWN_TOKEN,
    VIDEO_TOKEN,
    VISION_END_TOKEN,
    VISION_START_TOKEN,
    build_tokenizer,
    load_tokenizer,
)
from reward.model.backbone import FAMILIES, build_backbone, sized_config
from reward.model.model import RewardModel, prompt_texts

SIZES = Path(__file__).with_name("sizes")
KEY = "reward.model.backbone.pretrained"
_TURN_START, _TURN_END = "<|im_start|>", "<|im_end|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|vision_start|>"
    "{{ '<|video_pad|>' if part['type'] == 'video' else '<|image_pad|>' }}<|vision_end|>{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)
"""The layout of Qwen's chat template: a system turn, then the user's parts."""


@dataclass(frozen=True)
class MetaModel:
    """A model without values. sizes_from: where its sizes come from; text_from: how its text was turned into tokens."""

    model: RewardModel
    sizes_from: str
    text_from: str


def build_meta_model(config: RewardModelConfig, instruction: str) -> MetaModel:
    """The model of a configuration on the meta device. instruction: for the vocabulary of a model with random weights.

    Raises ValueError when the sizes of a pretrained backbone are unknown, or are those of another family.
    """
    backbone = config.backbone
    if backbone.pretrained is None:
        tokenizer = build_tokenizer([instruction, *prompt_texts(config)])
        built = build_backbone(backbone.family, sized_config(backbone, tokenizer), empty=True)
        origins = ("the configuration", "words of the prompt as vocabulary")
    else:
        read, sizes_from = _published_sizes(backbone)
        tokenizer, text_from = _tokenizer(backbone.pretrained)
        origins = (sizes_from, text_from)
        try:
            sizes = FAMILIES[backbone.family].config.from_dict(read)
            sizes.text_config.vocab_size = max(sizes.text_config.vocab_size, len(tokenizer))
            built = build_backbone(backbone.family, sizes, empty=True)
        except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:  # whatever transformers stumbles over
            raise ValueError(f"{KEY}: no model can be built with the sizes in {sizes_from} ({error}); correct them") from error
    model = RewardModel(config=config, backbone=built, tokenizer=tokenizer)
    return MetaModel(model.to(torch.device("meta")), *origins)


def knows_sizes(backbone: BackboneConfig) -> bool:
    """Whether the sizes of a backbone are known here, without a download."""
    return backbone.pretrained is None or _sizes_file(backbone.pretrained) is not None


def word_tokenizer() -> PreTrainedTokenizerBase:
    """Counts text as one token per word, number, punctuation mark or run of line breaks, where a model's own tokenizer is not at hand."""
    marks = (VISION_START_TOKEN, VISION_END_TOKEN, IMAGE_TOKEN, VIDEO_TOKEN, REWARD_TOKEN, _TURN_START, _TURN_END)
    tokenizer = Tokenizer(models.WordLevel({token: number for number, token in enumerate((UNKNOWN_TOKEN, *marks))}, UNKNOWN_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed"), pre_tokenizers.Split(Regex(r"\w+|\n+|[^\w\s]"), "isolated")]
    )
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN_TOKEN, additional_special_tokens=list(marks))
    made.chat_template = _CHAT_TEMPLATE
    return made


def _published_sizes(backbone: BackboneConfig) -> tuple[dict[str, Any], str]:
    assert backbone.pretrained is not None
    file = _sizes_file(backbone.pretrained)
    if file is None:
        known = ", ".join(sorted(path.stem for path in SIZES.glob("*.json")))
        raise ValueError(
            f"{KEY}: the sizes of {backbone.pretrained} are unknown; name a directory with its config.json, or one of {known} "
            f"(or add a file to {SIZES})"
        )
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        family = read.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{KEY}: {file} cannot be read as a config.json ({error})") from error
    if family != backbone.family:
        raise ValueError(f"reward.model.backbone.family is {backbone.family}, but {file} is of {family}; set the key to that")
    return read, f"sizes/{file.name}" if file.parent == SIZES else str(file)


def _sizes_file(pretrained: str) -> Path | None:
    """The `config.json` of a directory, or the shipped file whose name a published model's begins with."""
    own = Path(pretrained) / "config.json"
    if own.exists():
        return own
    name = pretrained.rsplit("/", 1)[-1]
    return next((path for path in sorted(SIZES.glob("*.json")) if name == path.stem or name.startswith(path.stem + "-")), None)


def _tokenizer(pretrained: str) -> tuple[PreTrainedTokenizerBase, str]:
    if (Path(pretrained) / "tokenizer_config.json").exists():
        return load_tokenizer(pretrained), f"the tokenizer of {pretrained}"
    return word_tokenizer(), "an estimate, one token per word or punctuation mark: the model's tokenizer is not here"
