"""Encoded pairs as bytes: safetensors, with floating-point values in bf16 and conditions at their true length.

The moments of the VAE's posterior are kept instead of a latent, so that every step can draw another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors.torch import load, save
from torch import Tensor

from finetune.editing_model import Condition, Moments


@dataclass(frozen=True)
class EncodedPair:
    """One pair: moments of edited image and source, each [channels, rows, columns], and the condition of instruction and source."""

    target: Moments
    reference: Moments
    condition: Condition


def pair_bytes(pair: EncodedPair) -> bytes:
    """The pair as safetensors; equal pairs give equal bytes."""
    moments = {"target": pair.target, "reference": pair.reference}
    tensors = {f"{name}.mean": found.mean for name, found in moments.items()}
    tensors |= {f"{name}.deviation": found.deviation for name, found in moments.items()}
    return save(_stored(tensors | {f"condition.{name}": tensor for name, tensor in pair.condition.items()}))


def read_pair(data: bytes) -> EncodedPair:
    """Inverse of `pair_bytes`, up to the rounding to bf16."""
    tensors = load(data)
    target, reference = (Moments(tensors.pop(f"{name}.mean"), tensors.pop(f"{name}.deviation")) for name in ("target", "reference"))
    return EncodedPair(target, reference, {name.removeprefix("condition."): tensor for name, tensor in tensors.items()})


def condition_bytes(condition: Condition) -> bytes:
    """A condition alone, as a source's null condition is stored."""
    return save(_stored(condition))


def read_condition(data: bytes) -> Condition:
    """Inverse of `condition_bytes`, up to the rounding to bf16."""
    return load(data)


def _stored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor for name, tensor in plain.items()}
