"""Low-rank adapters in the backbone (Hu et al. 2021, LoRA), by the peft library.

In: a reward model. Out: the same model in which only the adapters, the heads and the reward token's vector learn; after `merge`, the plain
model again, with the adapters' products added to its weights.
"""

from __future__ import annotations

import peft
import torch
from peft.tuners.lora import LoraModel
from torch import nn

from reward.config import LoraConfig
from reward.model.model import RewardModel


def adapt(model: RewardModel, config: LoraConfig, *, seed: int) -> list[LoraModel]:
    """Put an adapter into every linear layer of the language model, and of the vision tower when asked; changes the model in place.

    The adapters' first factors are random by `seed` alone, the second ones zero: outputs do not change yet. Give the result to `merge`.
    """
    model.backbone.requires_grad_(False)
    parts = [model.backbone.language_model, *([model.backbone.visual] if config.vision else [])]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return [LoraModel(part, _settings(part, config), "default") for part in parts]


def merge(model: RewardModel, adapters: list[LoraModel]) -> None:
    """Add the adapters' products to the weights and take the adapters out; the whole model can learn again."""
    for adapter in adapters:
        adapter.merge_and_unload()
    model.requires_grad_(True)


def _settings(part: nn.Module, config: LoraConfig) -> peft.LoraConfig:
    linear = [name for name, module in part.named_modules() if isinstance(module, nn.Linear)]
    return peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=linear)  # ty: ignore[invalid-argument-type]
