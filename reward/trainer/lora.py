"""Low-rank adapters in linear layers (Hu et al. 2021, LoRA), by the peft library.

In: modules whose weights the caller has frozen. Out: the same modules with adapters that learn; after peft's
`merge_and_unload`, plain modules again, with the adapters' products added to their weights.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager

import peft
import torch
from peft.tuners.lora import LoraModel
from torch import nn

from reward.trainer.config import AdapterConfig


def adapt(parts: Sequence[nn.Module], config: AdapterConfig, *, seed: int, device: torch.device) -> list[LoraModel]:
    """Put an adapter into every linear layer of these modules, in place.

    The adapters' first factors are random by `seed` alone, the second ones zero: outputs do not change yet. device: where adapters of
    weights on the meta device go; others go where their weights are.
    """
    with torch.random.fork_rng(), ExitStack() as stack:
        torch.manual_seed(seed)
        for part in parts:
            stack.enter_context(_placed(part, device))
        return [LoraModel(part, _settings(part, config), "default") for part in parts]


@contextmanager
def _placed(part: nn.Module, device: torch.device) -> Generator[None]:
    """Inside, linear weights of the meta device are zeros without memory on another: peft puts adapters beside weights, and those on the
    meta device would lose their values.
    """
    absent = {layer: layer.weight for layer in part.modules() if isinstance(layer, nn.Linear) and layer.weight.is_meta}
    for layer, weight in absent.items():
        layer.weight = nn.Parameter(torch.zeros((), device=device).expand(weight.shape), requires_grad=weight.requires_grad)
    yield
    for layer, weight in absent.items():
        layer.weight = weight


def _settings(part: nn.Module, config: AdapterConfig) -> peft.LoraConfig:
    linear = [name for name, module in part.named_modules() if isinstance(module, nn.Linear)]
    return peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=linear)  # ty: ignore[invalid-argument-type]
