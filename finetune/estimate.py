"""What a training of a large editor costs, before any weight is read: bytes of the encoded pairs, operations of a step.

Operations are counted by torch's counter in a forward and a backward pass on the meta device, with what is computed again in the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from finetune import families
from finetune.library_editors.config import PretrainedEditorConfig
from finetune.training.blocks import prepared_blocks
from finetune.training.config import LargeTrainingConfig
from finetune.training.train import ready_to_learn

_BF16, _FP32 = 2, 4
_META = torch.device("meta")


def bytes_per_pair(editor: PretrainedEditorConfig, side: int) -> int:
    """Bytes of a pair's entry and of a null condition: two moments of two images, two conditions."""
    example = families.example_input(editor, side, _META)
    channels, rows, columns = example.latent
    condition = sum(tensor.numel() for tensor in example.condition.values())
    return _BF16 * (4 * channels * rows * columns + 2 * condition)


def bytes_per_source(editor: PretrainedEditorConfig) -> int:
    """Bytes of an encoded source with its instruction, as sampling keeps it: moments in float32, one condition or two."""
    example = families.example_input(editor, editor.sampling.side, _META)
    channels, rows, columns = example.latent
    conditions = 1 if editor.sampling.guidance == 1 else 2
    return _FP32 * 2 * channels * rows * columns + _BF16 * conditions * sum(tensor.numel() for tensor in example.condition.values())


def flop_per_pair(editor: PretrainedEditorConfig, side: int, training: LargeTrainingConfig) -> float:
    """Floating-point operations of training on one square pair of side x side pixels.

    Blocks of a kind cost the same but for the first and the last, so two and three of each kind are counted instead of all.
    """
    model: Any = families.without_weights(editor)
    numbers = {name: len(model.get_submodule(name)) for name in model.block_lists}
    for name in numbers:
        model.set_submodule(name, model.get_submodule(name)[:3])
    ready_to_learn(model, training, _META)
    example = families.example_input(editor, side, _META)
    latent = torch.zeros(1, *example.latent, device=_META)
    condition = model.collate([example.condition])
    blocks = {name: [*model.get_submodule(name)] for name in model.block_lists}

    def count(kept: Mapping[str, int]) -> int:
        for name, number in kept.items():
            model.set_submodule(name, nn.ModuleList(blocks[name][:number]))
        with prepared_blocks(model, recompute=training.activation_checkpointing, compiled=False), FlopCounterMode(display=False) as counter:
            model(latent, latent, torch.zeros(1, device=_META), condition).sum().backward()
        return counter.get_total_flops()

    two = dict.fromkeys(numbers, 2)
    least = count(two)
    return float(least + sum((number - 2) * (count(two | {name: 3}) - least) for name, number in numbers.items() if number > 2))
