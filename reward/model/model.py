"""The reward model: a vision-language backbone and heads that read a Gaussian score per dimension at the reward tokens.

    source, instruction, edit -> tree of prompts -> backbone -> hidden state at <|Reward|> -> head d -> s_d ~ N(mu_d, sigma_d^2)

(EditReward, section 3.1 and eq. 2 and 3.) A saved model is a directory: model.safetensors, config.json, the tokenizer's files,
calibration.json and origin.json when it has them, and a model card. Equal models give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from reward.config import RewardModelConfig
from reward.inputs.batch import Batch, KeysValues, PreparedSample, TreeAttention, collate
from reward.inputs.processor import FORMAT, Processor, read_config
from reward.inputs.prompt import INSTRUCTION, build_prompt
from reward.inputs.rubrics import INTRODUCTION, rubrics_of
from reward.inputs.sample import ImageInput
from reward.inputs.tokenizer import build_tokenizer, load_tokenizer, save_tokenizer
from reward.model import attention
from reward.model.aggregation import aggregate
from reward.model.backbone import FAMILIES, build_backbone, encode, prepare_backbone, sized_config, vision_sizes
from reward.model.calibration import FILE as CALIBRATION
from reward.model.calibration import Calibration, read_calibration
from reward.model.card import model_card
from reward.model.heads import RewardHeads
from reward.model.origin import FILE as ORIGIN
from reward.model.origin import Origin, read_origin
from reward.model.pretrained import EMBEDDING, open_pretrained
from reward.model.weights import StoredTensor, located, stored_tensors


@dataclass(frozen=True)
class RewardOutput:
    """Gaussian scores of the edits of a batch, float32: mean and sigma [edit, dimension], overall_mean and overall_sigma [edit]."""

    mean: Tensor
    sigma: Tensor
    overall_mean: Tensor
    overall_sigma: Tensor


class RewardModel(nn.Module):
    """Scores edits. Make one with `from_config` or `load`; score with `reward.score`."""

    calibration: Calibration | None
    origin: Origin | None
    """What it was trained on; None when nobody says."""
    unread: Mapping[str, StoredTensor]
    """Parameters that are on the meta device because their values are still in files; empty but for `from_config(..., unread=True)`."""

    def __init__(self, *, config: RewardModelConfig, backbone: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self.config = config
        self.backbone = prepare_backbone(backbone)
        self.tokenizer = tokenizer
        self.calibration = None
        self.origin = None
        self.unread = {}
        text, vision = backbone.config.text_config, backbone.config.vision_config
        self.patch_size = vision.patch_size
        self.vision_sizes = vision_sizes(vision)
        self.prompt = build_prompt(config=config, tokenizer=tokenizer, merge_size=vision.spatial_merge_size)
        self.processor = Processor(config.presentation, self.prompt, self.patch_size)
        table = backbone.get_input_embeddings().weight.detach()  # [vocabulary, hidden]
        row = table[self.prompt.reward_token].float()
        count = self.prompt.reward_vectors
        spread = table.float().std() if count > 1 else 0.0
        with table.device:
            self.heads = RewardHeads(text.hidden_size, config.dimensions, config.heads)
            self.reward_embedding = nn.Parameter(row + spread * torch.randn(count, len(row)))
        """[1 or dimension, hidden]: embeddings of the reward tokens, apart from the vocabulary, which can stay frozen."""

    @classmethod
    def from_config(
        cls,
        config: RewardModelConfig,
        instructions: Sequence[str] = (),
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        unread: bool = False,
    ) -> RewardModel:
        """A new model: random weights of the configured sizes, or pretrained ones under random heads.

        instructions: texts whose words the tokenizer of a model with random weights shall know. Pretrained weights are read one by one
        and go to the device as float32. unread: they stay in their files, until `read_weights`, or until `reward.train` reads them: with
        fsdp each worker its shard. Raises ValueError for pretrained weights that are incomplete, damaged, or of another family.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if config.backbone.pretrained is None:
                tokenizer = build_tokenizer([*instructions, *prompt_texts(config)])
                backbone = build_backbone(config.backbone.family, sized_config(config.backbone, tokenizer))
                return cls(config=config, backbone=backbone, tokenizer=tokenizer).to(device)
            opened = open_pretrained(config.backbone)
            model = cls(config=config, backbone=opened.backbone, tokenizer=opened.tokenizer)
        if unread and EMBEDDING in opened.stored:
            table = model.backbone.get_input_embeddings()
            table.weight = nn.Parameter(table.weight.to("meta"))
        own = dict(model.backbone.named_parameters())
        model.unread = {f"backbone.{name}": stored for name, stored in opened.stored.items() if own[name].is_meta}
        for tensor in (*model.parameters(), *model.buffers()):
            if not tensor.is_meta:
                tensor.data = tensor.data.to(device)
        return model if unread else model.read_weights()

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        attention_kind: attention.Kind = "auto",
    ) -> RewardModel:
        """Load what `save` wrote, from a directory or a Hub id.

        dtype: of the backbone's weights; heads and rotary frequencies stay float32. attention_kind: `varlen` is one flash kernel for all
        images, and one for all nodes of a tree, on CUDA in half precision; `blocks` works everywhere; `auto` takes varlen where it can run.
        Weights are read one by one, so that memory peaks near the size of the loaded model.
        Raises ValueError when it is missing, of another layout, or contains NaN.
        """
        path = located(name, revision)
        config, saved = read_config(path)
        family = config.backbone.family
        backbone = build_backbone(family, FAMILIES[family].config.from_dict(saved), empty=True)
        model = cls(config=config, backbone=backbone, tokenizer=load_tokenizer(str(path)))
        file = path / "model.safetensors"
        model.take_weights(stored_tensors(file), file, device=device, dtype=dtype)
        model.calibration = read_calibration(path)
        model.origin = read_origin(path)
        return model.use_attention(attention_kind).eval()

    def take_weights(
        self,
        stored: Mapping[str, StoredTensor],
        file: Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Replace all parameters, those of the backbone in `dtype`, and move the model to the device.

        Raises ValueError, naming the file they are from, when they do not fit or hold NaN.
        """
        own = self.state_dict()
        odd = [f"{name} is missing" for name in own.keys() - stored.keys()] + [
            f"{name} is not part of this model" if name not in own else f"{name} has shape {tensor.shape}, not {tuple(own[name].shape)}"
            for name, tensor in stored.items()
            if name not in own or tensor.shape != own[name].shape
        ]
        if odd:
            raise ValueError(f"{file} does not fit its config.json in {len(odd)} places, e.g. {min(odd)}; train or copy it again")
        weights = {
            name: entry.read().to(device, dtype if name.startswith("backbone.") else torch.float32, copy=True)
            for name, entry in stored.items()
        }
        self.load_state_dict(weights, assign=True)
        self.to(device)

    def read_weights(self) -> RewardModel:
        """Read what is `unread`, as float32, to where the other parameters are. Raises ValueError for NaN and quantised weights."""
        device = self.device
        read = {name: stored.read().to(device, torch.float32, copy=True) for name, stored in self.unread.items()}
        self.load_state_dict(read, strict=False, assign=True)
        self.unread = {}
        return self

    def use_attention(self, kind: attention.Kind) -> RewardModel:
        """Choose how vision tower and language model attend (`reward.model.attention`); a new model has `auto`."""
        prepare_backbone(self.backbone, attention_kind=kind)
        return self

    def save(self, path: str | Path, *, facts: Mapping[str, str] | None = None) -> None:
        """Write the model to a directory. facts: what the card shall say of its making, e.g. {"training data": ...}."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, path / "model.safetensors")
        backbone = self.backbone.config.to_dict()
        backbone.pop("transformers_version", None)
        saved = {"format": FORMAT, "reward_model": self.config.model_dump(mode="json"), "backbone": backbone}
        (path / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
        save_tokenizer(self.tokenizer, path)
        calibration = path / CALIBRATION
        calibration.unlink(missing_ok=True)
        if self.calibration is not None:
            calibration.write_text(self.calibration.model_dump_json(indent=2) + "\n")
        (path / ORIGIN).unlink(missing_ok=True)
        if self.origin is not None:
            (path / ORIGIN).write_text(self.origin.model_dump_json(indent=2) + "\n")
        parameters = sum(parameter.numel() for parameter in self.parameters())
        known = (self.origin.lines() if self.origin else {}) | dict(facts or {})
        (path / "README.md").write_text(model_card(config=self.config, parameters=parameters, calibration=self.calibration, facts=known))

    @property
    def device(self) -> torch.device:
        """Where the parameters are, as far as they were read."""
        return next((parameter.device for parameter in self.parameters() if not parameter.is_meta), torch.device("meta"))

    def prepare(self, *, source: ImageInput, candidates: Sequence[ImageInput], instruction: str) -> PreparedSample:
        """Decode and resize a source and its candidates for this model. Raises SampleError."""
        return self.processor.prepare(source=source, candidates=candidates, instruction=instruction)

    def collate(self, samples: Sequence[PreparedSample], *, root_cached: bool = False) -> Batch:
        """A batch on the model's device; root_cached: `forward` will be given `cached_root()`."""
        return collate(samples, prompt=self.prompt, sizes=self.vision_sizes, root_cached=root_cached).to(self.device)

    def cached_root(self) -> tuple[KeysValues, ...] | None:
        """Keys and values of the part of the prompt that is the same for every edit; None where there is none. For inference."""
        root = torch.tensor(self.prompt.root, dtype=torch.int64)
        if len(root) == 0:
            return None
        numbers = torch.arange(len(root))
        record: list[KeysValues] = []
        nothing = numbers[:0]
        batch = Batch(
            input_ids=root,
            position_ids=numbers.expand(3, -1),
            reads=nothing,
            words=nothing,
            stacks=(),
            grids=(),
            vision=None,
            placeholder=nothing,
            feature=nothing,
            rewards=nothing,
            turns=nothing,
            attention=TreeAttention.of([(numbers[None], numbers[None])], record),
        ).to(self.device)
        with torch.no_grad():
            self._states(batch, batch.reads)
        return tuple(record)

    def forward(self, batch: Batch, root: tuple[KeysValues, ...] | None = None) -> RewardOutput:
        """Score the edits of a batch in one pass over its packed row."""
        if root is not None:
            batch = replace(batch, attention=replace(batch.attention, root=root))
        hidden = self._states(batch, batch.reads.flatten()).unflatten(0, batch.reads.shape)  # [edit, dimension, hidden]
        mean, sigma = self.heads(hidden)
        return RewardOutput(mean, sigma, *aggregate(mean, sigma, self.config.aggregation))

    def _states(self, batch: Batch, keep: Tensor) -> Tensor:
        """[kept token, hidden]"""
        return encode(self.backbone, batch, keep=keep, reward_vectors=self.reward_embedding)


def prompt_texts(config: RewardModelConfig) -> list[str]:
    """What a prompt in sentences says, for the vocabulary of a model with random weights."""
    if config.presentation.prompt == "words":
        return []
    rubrics = [text.replace("{instruction}", INSTRUCTION) for text in rubrics_of(config.presentation, config.dimensions)]
    return [INTRODUCTION, "Original: Instruction: Edit: Ratings:", *rubrics]
