"""The blocks of a model: what is recomputed in the backward pass, and compiled.

Sharding, recomputation and compilation work block by block: all blocks of a kind are one program, which compiles in the time of one block.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, checkpoint, create_selective_checkpoint_contexts

from finetune.editing_model import EditingModel
from finetune.training.config import ActivationCheckpointing

_ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


@contextmanager
def prepared_blocks(model: EditingModel, *, recompute: ActivationCheckpointing, compiled: bool) -> Generator[None]:
    """Inside, the blocks recompute their activations in the backward pass as asked, and run compiled."""
    blocks = [block for name in model.block_lists for block in model.get_submodule(name).children()]
    for block in blocks:
        forward: Any = torch.compile(block.forward) if compiled else block.forward  # compiled alone, all blocks share a program
        if recompute != "none":
            contexts = {"context_fn": _selective} if recompute == "selective" else {}
            forward = partial(checkpoint, forward, use_reentrant=False, **contexts)
        if compiled or recompute != "none":
            block.forward = forward
    try:
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)


def _selective() -> Any:
    """Attention and every second matrix product are kept; the rest is computed again."""
    seen = {False: 0, True: 0}  # products so far, in the forward pass and in its repetition

    def policy(context: SelectiveCheckpointContext, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operation in _PRODUCTS:
            seen[context.is_recompute] += 1
        keep = operation in _ATTENTION or (operation in _PRODUCTS and seen[context.is_recompute] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
