"""Low-rank adapters in linear layers (Hu et al. 2021, LoRA), by the peft library.

In: modules whose weights the caller has frozen. Out: the same modules with adapters that learn; after peft's
`merge_and_unload`, plain modules again, with the adapters' products added to their weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import peft
import torch
from peft.tuners.lora import LoraModel
from torch import nn

from reward.trainer.config import AdapterConfig


def adapt(parts: Sequence[nn.Module], config: AdapterConfig, *, seed: int) -> list[LoraModel]:
    """Put an adapter into every linear layer of these modules, in place.

    The adapters' first factors are random by `seed` alone, the second ones zero: outputs do not change yet.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return [LoraModel(part, _settings(part, config), "default") for part in parts]


def _settings(part: nn.Module, config: AdapterConfig) -> peft.LoraConfig:
    linear = [name for name, module in part.named_modules() if isinstance(module, nn.Linear)]
    return peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=linear)  # ty: ignore[invalid-argument-type]
