"""Memory of one GPU in training, from the sizes of what learns and the bytes that a rehearsed step keeps alive."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import nn

from reward.training.config import TrainingConfig
from reward.training.preference_pass import BLOCK_LISTS

FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU.

    weights, gradients, optimizer (AdamW's two averages) and averages (of `ema_decay`) are float32, a share of each with fsdp.
    working_weights: copies in the precision that is computed in: with fsdp of two blocks and of all that is in no block, and the gradients
    of one block; else those that autocast keeps until the loss, which without recomputation are among the activations. buckets: with ddp,
    copies of the gradients that are exchanged. activations: the most that was alive beside these in a pass.
    """

    weights: int
    gradients: int
    optimizer: int
    averages: int
    working_weights: int
    buckets: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory_per_gpu(model: nn.Module, config: TrainingConfig, *, ranks: int, activations: int) -> Memory:
    """Of a model that is ready to learn, with so many ranks."""
    whole = sum(parameter.numel() for parameter in model.parameters())
    learning = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    sharded = config.parallel == "fsdp" and ranks > 1
    shards = ranks if sharded else 1
    blocks = [sum(p.numel() for p in block.parameters()) for name in BLOCK_LISTS for block in model.get_submodule(name).children()]
    half = config.precision == "bf16"
    if sharded:
        working = (BFLOAT16 if half else FLOAT32) * (3 * max(blocks) + whole - sum(blocks))
    else:
        working = BFLOAT16 * learning if half and config.activation_checkpointing else 0
    return Memory(
        weights=FLOAT32 * whole // shards,
        gradients=FLOAT32 * learning // shards,
        optimizer=2 * FLOAT32 * learning // shards,
        averages=0 if config.ema_decay is None else FLOAT32 * learning // shards,
        working_weights=working,
        buckets=FLOAT32 * learning if not sharded and ranks > 1 else 0,
        activations=activations,
    )
