"""A published backbone, opened but not read: a model on the meta device, and where the files have each of its weights.

Files come in half precision, whole or in parts; weights are read one by one, or by rows where a worker has a shard, and become float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from reward.config import BackboneConfig
from reward.inputs.tokenizer import load_tokenizer
from reward.model.backbone import FAMILIES, build_backbone
from reward.model.weights import SETTINGS, StoredTensor, located, model_type, published_tensors

EMBEDDING = "language_model.embed_tokens.weight"
PREFIXES = {
    "model.language_model.": "language_model.",
    "model.visual.": "visual.",
    "language_model.": "language_model.",
    "visual.": "visual.",
    "model.": "language_model.",
}
"""What names begin with in files of different years -> in transformers' models without an output layer. The first that fits counts."""


@dataclass(frozen=True)
class OpenedBackbone:
    """backbone: of its parameters only the token embedding has values. stored: where all of them are, but for an embedding that grew."""

    backbone: Any
    stored: dict[str, StoredTensor]
    tokenizer: PreTrainedTokenizerBase


def open_pretrained(config: BackboneConfig) -> OpenedBackbone:
    """Published weights; the embedding grows only if the reward token has no row yet.

    Raises ValueError when the checkpoint is not complete, damaged, quantised, or of another family.
    """
    assert config.pretrained is not None
    folder = located(config.pretrained, config.revision, only=(*SETTINGS, "*.safetensors"))
    file = folder / "config.json"
    if not file.exists():
        raise ValueError(f"{config.pretrained} has no config.json; name a directory of pretrained weights, or a Hub id")
    kind = model_type(file)
    if kind != config.family:
        raise ValueError(f"reward.model.backbone.family is {config.family}, but {file} is of a {kind} model; set the key to its family")
    sizes = FAMILIES[config.family].config.from_pretrained(folder)
    sizes.name_or_path = config.pretrained
    backbone = build_backbone(config.family, sizes, empty=True)
    stored = {own: tensor for name, tensor in published_tensors(folder).items() if (own := _own_name(name)) is not None}
    _check_shapes(backbone, stored, folder)
    stored = {name: stored[name] for name in backbone.state_dict()}
    embedding = backbone.get_input_embeddings()
    embedding.weight = nn.Parameter(stored[EMBEDDING].read().to(torch.float32))
    tokenizer = load_tokenizer(config.pretrained, revision=config.revision)
    if len(tokenizer) > embedding.num_embeddings:
        backbone.resize_token_embeddings(len(tokenizer))
        del stored[EMBEDDING]
    return OpenedBackbone(backbone.eval(), stored, tokenizer)


def _own_name(name: str) -> str | None:
    """The name that a weight has in a backbone; None for what a backbone has not, such as the output layer."""
    return next((own + name.removeprefix(prefix) for prefix, own in PREFIXES.items() if name.startswith(prefix)), None)


def _check_shapes(backbone: Any, stored: dict[str, StoredTensor], folder: Path) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in backbone.state_dict().items()}
    missing = sorted(expected.keys() - stored.keys())
    if missing:
        raise ValueError(
            f"{folder} lacks {len(missing)} weights of a {backbone.config.model_type} model, first {missing[0]}; "
            "expected a complete checkpoint of that family"
        )
    other = [name for name, shape in expected.items() if stored[name].shape != shape]
    if other:
        raise ValueError(
            f"{folder} has {other[0]} of shape {stored[other[0]].shape}, its config.json says {expected[other[0]]}; download it again"
        )
