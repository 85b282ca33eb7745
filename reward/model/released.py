"""The published EditReward checkpoints (Qwen2.5-VL-7B, MiMo-VL-7B) as reward models of ours, with the published scores.

A published checkpoint is one file of weights: a Qwen2.5-VL model (`model.visual.*`, `model.language_model.*`), an unused `lm_head`, and a
head per dimension (`rm_heads.head_0`, `head_1`; column 0 is mu, column 1 log sigma). Its vocabulary was cut to the tokenizer's length, and
the reward token took over an existing row. It was trained with 1-D positions, images of 448x448 pixels in area, and the mean of both
columns as overall score; all of this is part of the imported model's configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from transformers import Qwen2_5_VLConfig

from reward.config import DIMENSIONS, BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inputs.tokenizer import load_tokenizer
from reward.model.backbone import build_backbone
from reward.model.model import RewardModel
from reward.model.origin import Origin
from reward.model.weights import SETTINGS, StoredTensor, located, model_type, stored_tensors

FILES = ("model.safetensors", "model.pth")
IMAGE_AREA = 200704
HEAD_LAYERS = (0, 3, 5)
"""Indices of the linear layers among ReLU and dropout."""
DROPOUT = 0.05
EMBEDDING = "model.language_model.embed_tokens.weight"
FAMILY = "qwen2_5_vl"
UNUSED = "lm_head.weight"
SINGLE = 4
"""Bytes of a float32 number."""
PUBLISHED = Origin(domains=("photographs",), data={"TIGER-Lab/EditReward-Data": 9557}, raters={"imported": 1})
"""Paper, section 2.1. The raters of the published data are not named."""


def import_released(
    checkpoint: str | Path,
    *,
    prompts: dict[str, str],
    base: str | None = None,
    revision: str | None = None,
    positions: Literal["flat", "mrope"] = "flat",
    image_area: tuple[int, int] = (IMAGE_AREA, IMAGE_AREA),
) -> RewardModel:
    """A published checkpoint, from a directory or a Hub id, as a RewardModel in float32 on the CPU, whatever precision its files have.

    prompts: rubrics by dimension (`read_reference_prompts`). base: where configuration and tokenizer come from (directory or Hub id), when
    they do not lie beside the weights. positions: published scores need `flat`. image_area: least and most pixels of an image. Raises
    ValueError for an unknown layout, missing or NaN weights.
    """
    path = located(checkpoint, revision, only=_needed(checkpoint, revision, base)[0])
    origin = located(base, None, only=SETTINGS) if base is not None else path
    if not (origin / "config.json").exists():
        raise ValueError(
            f"{origin} has no config.json; name the model that the checkpoint was made from with --base, e.g. Qwen/Qwen2.5-VL-7B-Instruct"
        )
    kind = model_type(origin / "config.json")
    if kind != FAMILY:
        raise ValueError(f"{origin} has a {kind} model, and published checkpoints were made from {FAMILY} models; name theirs with --base")
    file, weights = _weights(path)
    widths = _head_widths(weights, path)
    config = Qwen2_5_VLConfig.from_pretrained(origin)
    tokenizer = load_tokenizer(str(origin))
    rows = weights[EMBEDDING].shape[0]
    if len(tokenizer) > rows:
        raise ValueError(
            f"the tokenizer of {origin} has {len(tokenizer)} tokens, the checkpoint {rows} rows; name its own base with --base"
        )
    config.text_config.vocab_size = rows  # ty: ignore[invalid-assignment]
    model = RewardModel(
        config=RewardModelConfig(
            backbone=BackboneConfig(pretrained=str(base or checkpoint), revision=revision),
            presentation=PresentationConfig(
                layout="images",
                prompt="reference",
                rubrics=prompts,
                positions=positions,
                min_image_area=image_area[0],
                image_area=image_area[1],
            ),
            heads=HeadConfig(hidden=widths, dropout=DROPOUT, sigma="exp"),
            aggregation="reference_mean",
        ),
        backbone=build_backbone(FAMILY, config, empty=True),
        tokenizer=tokenizer,
    )
    model.take_weights(_renamed(weights, model.prompt.reward_token), file)
    model.origin = PUBLISHED
    return model.eval()


@dataclass(frozen=True)
class ImportNeeds:
    """Bytes that an import fetches, reads and writes, and has in memory at its peak; but for tokenizer and other small files."""

    fetched: int
    read: int
    written: int
    memory: int


def import_needs(checkpoint: str | Path, *, base: str | None = None, revision: str | None = None) -> ImportNeeds:
    """What `import_released` will need, by the header of the weights. Raises ValueError likewise.

    For weights that are still on the Hub it goes by the size of the files, taken as bf16.
    """
    only, fetched = _needed(checkpoint, revision, base)
    if fetched:
        return ImportNeeds(fetched, fetched, SINGLE * fetched // 2, SINGLE * fetched // 2)
    file, weights = _weights(located(checkpoint, revision, only=only))
    counts = [math.prod(tensor.shape) for name, tensor in weights.items() if name != UNUSED]
    return ImportNeeds(0, file.stat().st_size, SINGLE * sum(counts), SINGLE * (sum(counts) + max(counts)))


def _needed(checkpoint: str | Path, revision: str | None, base: str | None) -> tuple[list[str] | None, int]:
    """The files of a Hub id that an import needs, as patterns, and how many bytes of them are not on this machine. Raises ValueError.

    One file of weights and, without a base, configuration and tokenizer. Of a directory nothing is fetched.
    """
    if isinstance(checkpoint, Path) or Path(checkpoint).exists() or checkpoint.count("/") != 1:
        return None, 0
    try:
        listed = {file.filename: file for file in snapshot_download(checkpoint, revision=revision, dry_run=True)}
    except (OSError, HFValidationError):  # `located` names the mistake, or takes what an earlier download left on this machine
        return None, 0
    weights = [next((name for name in FILES if name in listed), FILES[0])]
    settings = [name for name in listed if base is None and any(fnmatch(name, pattern) for pattern in SETTINGS)]
    missing = [listed[name] for name in [*weights, *settings] if name in listed and listed[name].will_download]
    return [*weights, *settings], sum(file.file_size or 0 for file in missing)


def _weights(path: Path) -> tuple[Path, dict[str, StoredTensor]]:
    """The one file of weights that there is, and its tensors."""
    for name in FILES:
        file = path / name
        if file.exists():
            weights = stored_tensors(file)
            if EMBEDDING not in weights:
                raise ValueError(f"{file} has no {EMBEDDING}: not the layout of a published EditReward checkpoint")
            return file, weights
    if (path / f"{FILES[0]}.index.json").exists():
        raise ValueError(f"{path} has its weights in several files ({FILES[0]}.index.json); a published EditReward checkpoint has one")
    raise ValueError(f"{path} contains none of {', '.join(FILES)}; expected a published EditReward checkpoint")


def _head_widths(weights: Mapping[str, StoredTensor], path: Path) -> tuple[int, ...]:
    """Widths of the hidden layers of the heads. Raises ValueError for other heads than the published ones."""
    keys = {key for key in weights if key.startswith("rm_head")}
    expected = {
        f"rm_heads.head_{head}.{layer}.{part}" for head in range(len(DIMENSIONS)) for layer in HEAD_LAYERS for part in ("weight", "bias")
    }
    if keys != expected:
        odd = sorted(keys ^ expected)[0]
        raise ValueError(f"{path} has other heads than a published EditReward checkpoint ({odd}); only two-head models can be imported")
    return tuple(weights[f"rm_heads.head_0.{layer}.weight"].shape[0] for layer in HEAD_LAYERS[:-1])


def _renamed(weights: Mapping[str, StoredTensor], reward_token: int) -> dict[str, StoredTensor]:
    """Published names to ours."""
    embedding = weights[EMBEDDING]
    renamed = {"reward_embedding": StoredTensor((1, *embedding.shape[1:]), lambda *_: embedding.rows(reward_token, reward_token + 1))}
    for key, tensor in weights.items():
        if key.startswith("rm_heads.head_"):
            number, rest = key.removeprefix("rm_heads.head_").split(".", 1)
            renamed[f"heads.of.{DIMENSIONS[int(number)]}.mlp.{rest}"] = tensor
        elif key.startswith("model."):
            renamed["backbone." + key.removeprefix("model.")] = tensor
        elif key != UNUSED:
            renamed[key] = tensor  # not ours: loading names it
    return renamed
