"""The reward model: a Qwen2.5-VL backbone and, per dimension, a head that reads (mu, sigma) at the reward token.

    source, instruction, edit -> backbone -> hidden state at <|Reward|> -> head d -> s_d ~ N(mu_d, sigma_d^2)

(EditReward, section 3.1 and eq. 2, with separate heads; sigma is positive by softplus and has a floor.) A saved model is a directory:
model.safetensors, config.json, the tokenizer's files, calibration.json when there is one, and a model card. Equal models give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, Qwen2_5_VLConfig, Qwen2_5_VLModel

from reward.backbone import encode, load_pretrained, prepare, sized_config
from reward.batch import Batch, Presented, collate, present
from reward.calibration import Calibration
from reward.card import model_card
from reward.config import HeadConfig, RewardModelConfig
from reward.prompt import build_prompt
from reward.tokenizer import build_tokenizer, load_tokenizer, save_tokenizer

FORMAT = 1
"""Version of the saved layout."""


@dataclass(frozen=True)
class RewardOutput:
    """Gaussian scores of the rows of a batch: mean and sigma, float32 [row, dimension]."""

    mean: Tensor
    sigma: Tensor


class RewardHead(nn.Module):
    """MLP: hidden state [row, hidden] -> mu, sigma [row] each."""

    def __init__(self, width: int, config: HeadConfig) -> None:
        super().__init__()
        widths = (width, *config.hidden)
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            layers += [nn.Linear(before, after), nn.ReLU()]
            if index == 0 and config.dropout:
                layers.append(nn.Dropout(config.dropout))
        self.mlp = nn.Sequential(*layers, nn.Linear(widths[-1], 2))
        self.sigma_floor = config.sigma_floor

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mu and sigma of the score, float32."""
        mean, raw = self.mlp(hidden).unbind(-1)
        return mean, F.softplus(raw) + self.sigma_floor


class RewardModel(nn.Module):
    """Scores edits. Make one with `from_config` or `from_directory`; score with `reward.score`."""

    calibration: Calibration | None

    def __init__(self, *, config: RewardModelConfig, backbone: Qwen2_5_VLModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self.config = config
        self.backbone = prepare(backbone)
        self.tokenizer = tokenizer
        self.calibration = None
        text: Any = backbone.config.text_config
        vision: Any = backbone.config.vision_config
        self.heads = nn.ModuleDict({name: RewardHead(text.hidden_size, config.heads) for name in config.dimensions})
        self.patch_size, self.merge_size = vision.patch_size, vision.spatial_merge_size
        self.prompt = build_prompt(config=config, tokenizer=tokenizer, merge_size=self.merge_size, rope_index=backbone.get_rope_index)

    @classmethod
    def from_config(cls, config: RewardModelConfig, instructions: Sequence[str] = (), *, seed: int = 0) -> RewardModel:
        """A new model: random weights of the configured sizes, or pretrained ones under random heads.

        instructions: texts whose words the tokenizer of a model with random weights shall know.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if config.backbone.pretrained is not None:
                tokenizer = load_tokenizer(config.backbone.pretrained, revision=config.backbone.revision)
                backbone = load_pretrained(config.backbone, tokenizer)
            else:
                tokenizer = build_tokenizer(instructions)
                backbone = Qwen2_5_VLModel(sized_config(config.backbone, tokenizer))
            return cls(config=config, backbone=backbone, tokenizer=tokenizer)

    @classmethod
    def from_directory(cls, path: str | Path) -> RewardModel:
        """Load what `save` wrote. Raises ValueError when it is missing, of another layout, or holds NaN."""
        path = Path(path)
        try:
            saved = json.loads((path / "config.json").read_text())
        except (OSError, ValueError) as error:
            raise ValueError(f"no reward model at {path} ({error}); expected a directory written by RewardModel.save") from error
        if saved.get("format") != FORMAT or "reward_model" not in saved:
            raise ValueError(f"{path}/config.json is not of reward model format {FORMAT}; save the model again")
        backbone = Qwen2_5_VLModel(Qwen2_5_VLConfig.from_dict(saved["backbone"]))
        model = cls(
            config=RewardModelConfig.model_validate(saved["reward_model"]),
            backbone=backbone,
            tokenizer=load_tokenizer(str(path)),
        )
        try:
            weights = load_file(path / "model.safetensors")
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path}/model.safetensors cannot be read ({error}); train or copy it again") from error
        broken = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
        if broken:
            raise ValueError(f"{path}/model.safetensors holds NaN or infinity in {broken[0]}; train or copy it again")
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"{path}/model.safetensors does not fit its config.json: {error}") from error
        calibration = path / "calibration.json"
        if calibration.exists():
            model.calibration = Calibration.model_validate_json(calibration.read_text())
        return model.eval()

    def save(self, path: str | Path, *, facts: Mapping[str, str] | None = None) -> None:
        """Write the model to a directory. facts: what the card shall say of its making, e.g. {"training data": ...}."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        weights = save({name: tensor.contiguous() for name, tensor in self.state_dict().items()})
        (path / "model.safetensors").write_bytes(weights)
        backbone = self.backbone.config.to_dict()
        backbone.pop("transformers_version", None)
        saved = {"format": FORMAT, "reward_model": self.config.model_dump(mode="json"), "backbone": backbone}
        (path / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
        save_tokenizer(self.tokenizer, path)
        calibration = path / "calibration.json"
        calibration.unlink(missing_ok=True)
        if self.calibration is not None:
            calibration.write_text(self.calibration.model_dump_json(indent=2) + "\n")
        parameters = sum(parameter.numel() for parameter in self.parameters())
        (path / "README.md").write_text(
            model_card(config=self.config, parameters=parameters, calibration=self.calibration, facts=facts or {})
        )

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def present(self, *, source: bytes, candidates: Sequence[bytes], instruction: str) -> Presented:
        """Decode and resize a source and its candidates for this model. Raises SampleError."""
        return present(
            source=source,
            candidates=candidates,
            instruction=instruction,
            presentation=self.config.presentation,
            prompt=self.prompt,
            factor=self.patch_size * self.merge_size,
        )

    def collate(self, sets: Sequence[Presented]) -> Batch:
        """A batch on the model's device."""
        return collate(sets, prompt=self.prompt, patch_size=self.patch_size).to(self.device)

    def forward(self, batch: Batch) -> RewardOutput:
        """Score the rows of a batch: one pass, one reward token, one head per dimension."""
        states = encode(self.backbone, batch)  # [row, token, hidden]
        rows = torch.arange(len(states), device=states.device)
        hidden = states[rows, batch.reward_index].float()  # [row, hidden]
        with torch.autocast(hidden.device.type, enabled=False):
            outputs = [self.heads[name](hidden) for name in self.config.dimensions]
        means, sigmas = zip(*outputs, strict=True)
        return RewardOutput(torch.stack(means, dim=1), torch.stack(sigmas, dim=1))
