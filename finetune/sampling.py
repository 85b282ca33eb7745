"""An edit from an `EditingModel`: the flow is integrated from noise to image by Euler steps, with classifier-free guidance.

Both branches see the same reference: the null condition is that of the same source with an empty instruction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from PIL import Image
from safetensors.torch import load, save
from torch import Tensor, nn

from finetune.config import SamplingConfig
from finetune.editing_model import Condition, Decoder, EditingModel, Encoders, Moments
from finetune.packing import pack, unpack
from finetune.rectified_flow import sampling_times
from reward.trainer.order import derived_seed


@dataclass(frozen=True)
class EncodedSource:
    """What the frozen half makes of a source and an instruction, on the CPU. null: None without guidance."""

    moments: Moments
    condition: Condition
    null: Condition | None

    def to_bytes(self) -> bytes:
        """As safetensors, in the tensors' own types."""
        tensors = {"mean": self.moments.mean, "deviation": self.moments.deviation}
        for kind, condition in (("condition", self.condition), ("null", self.null or {})):
            tensors |= {f"{kind}.{name}": tensor for name, tensor in condition.items()}
        return save({name: tensor.contiguous() for name, tensor in tensors.items()})

    @classmethod
    def from_bytes(cls, data: bytes) -> EncodedSource:
        """Inverse of `to_bytes`."""
        tensors = load(data)
        condition, null = (
            {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
            for kind in ("condition.", "null.")
        )
        return cls(Moments(tensors["mean"], tensors["deviation"]), condition, null or None)


@torch.no_grad()
def encode_source(encoders: Encoders, source: Image.Image, instruction: str, config: SamplingConfig) -> EncodedSource:
    """An RGB source alone, so that it does not depend on what is edited beside it. Nothing of it is random."""
    resized = source.resize(encoders.working_size(source.width, source.height, config.side))
    cpu = torch.device("cpu")
    null = _on(cpu, encoders.encode_condition(resized, "")) if config.guidance != 1 else None
    (moments,) = encoders.encode_images([resized])
    condition = _on(cpu, encoders.encode_condition(resized, instruction))
    return EncodedSource(Moments(moments.mean.to(cpu), moments.deviation.to(cpu)), condition, null)


def sample_edits(
    model: EditingModel,
    encoders: Encoders,
    sources: Sequence[Image.Image],
    instructions: Sequence[str],
    seeds: Sequence[int],
    config: SamplingConfig,
) -> list[Image.Image]:
    """One edit of each RGB source, in its size. The sources have one working size; an edit's seed alone decides what is random in it."""
    encoded = [encode_source(encoders, source, instruction, config) for source, instruction in zip(sources, instructions, strict=True)]
    edited = sample_encoded(model, encoders.decode, encoded, seeds, config)
    return [image.resize(source.size) for image, source in zip(edited, sources, strict=True)]


@torch.no_grad()
def sample_encoded(
    model: EditingModel, decode: Decoder, encoded: Sequence[EncodedSource], seeds: Sequence[int], config: SamplingConfig
) -> list[Image.Image]:
    """One edit of each encoded source, in their working size, which is the same."""
    moments = [one.moments for one in encoded]
    shape = tuple(moments[0].mean.shape)
    reference = torch.stack([one.sample(_noise(shape, "reference", seed, one.mean)) for one, seed in zip(moments, seeds, strict=True)])
    noise = torch.stack([_noise(shape, "edit", seed, reference) for seed in seeds])
    conditions, nulls = [one.condition for one in encoded], [one.null for one in encoded if one.null is not None]
    return decode(sample_latents(model, reference, conditions, nulls, noise, config))


@torch.no_grad()
def sample_latents(
    model: EditingModel,
    reference: Tensor,
    conditions: Sequence[Condition],
    nulls: Sequence[Condition],
    noise: Tensor,
    config: SamplingConfig,
) -> Tensor:
    """Latents [n, channels, rows, columns] that begin as `noise`, for reference latents and one condition each.

    nulls: one null condition each; empty without guidance. ValueError for latents that are not finite.
    """
    assert isinstance(model, nn.Module)
    device = next(model.parameters()).device
    collated = _on(device, model.collate([*conditions, *nulls]))
    branches = 2 if nulls else 1
    reference = torch.cat([reference.to(device)] * branches)
    latents = noise.to(device, torch.float32)
    times = sampling_times(config.steps, model.resolution_shift(*latents.shape[2:]), model.last_time).tolist()
    for now, after in itertools.pairwise(times):
        time = torch.full((branches * len(latents),), now, device=device)
        with _mixed(model, device):
            velocity = model(torch.cat([latents] * branches), reference, time, collated).float()
        if nulls:
            conditioned, null = velocity.chunk(2)
            velocity = null + config.guidance * (conditioned - null)
            if model.rescales_guidance:
                velocity = unpack(_with_norm(pack(velocity), pack(conditioned)), *latents.shape[2:])
        latents = latents + (after - now) * velocity
    if not torch.isfinite(latents).all():
        raise ValueError("the sampled latents contain values that are not numbers; check the weights and the precision")
    return latents


def _noise(shape: tuple[int, ...], what: str, seed: int, like: Tensor) -> Tensor:
    """Standard normal noise, drawn on the CPU, so that every device gets the same."""
    generator = torch.Generator().manual_seed(derived_seed(what, seed))
    return torch.randn(shape, generator=generator).to(like)


def _mixed(model: nn.Module, device: torch.device) -> AbstractContextManager[object]:
    """A model with weights in bf16 computes in bf16, as in training, also where its adapters are float32."""
    half = any(weight.dtype == torch.bfloat16 for weight in model.parameters())
    return torch.autocast(device.type, torch.bfloat16) if half else nullcontext()


def _with_norm(tokens: Tensor, like: Tensor) -> Tensor:
    """Tokens [n, tokens, width], each with the norm of another one."""
    return tokens * (like.norm(dim=-1, keepdim=True) / tokens.norm(dim=-1, keepdim=True))


def _on(device: torch.device, condition: Condition) -> Condition:
    return {name: tensor.to(device) for name, tensor in condition.items()}
