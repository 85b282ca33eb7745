"""An edit from an `EditingModel`: the flow is integrated from noise to image by Euler steps, with classifier-free guidance.

Both branches see the same reference: the null condition is that of the same source with an empty instruction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from PIL import Image
from torch import Tensor, nn

from finetune.config import SamplingConfig
from finetune.editing_model import Condition, EditingModel, Encoders
from finetune.packing import pack, unpack
from finetune.rectified_flow import sampling_times
from reward.trainer.order import derived_seed


@torch.no_grad()
def sample_edits(
    model: EditingModel,
    encoders: Encoders,
    sources: Sequence[Image.Image],
    instructions: Sequence[str],
    seeds: Sequence[int],
    config: SamplingConfig,
) -> list[Image.Image]:
    """One edit of each RGB source, in its size. The sources have one working size; an edit's seed alone decides what is random in it."""
    (size,) = {encoders.working_size(source.width, source.height, config.side) for source in sources}
    resized = [source.resize(size) for source in sources]
    conditions = [encoders.encode_condition(image, instruction) for image, instruction in zip(resized, instructions, strict=True)]
    nulls = [encoders.encode_condition(image, "") for image in resized] if config.guidance != 1 else []
    moments = encoders.encode_images(resized)
    shape = tuple(moments[0].mean.shape)
    reference = torch.stack([one.sample(_noise(shape, "reference", seed, one.mean)) for one, seed in zip(moments, seeds, strict=True)])
    noise = torch.stack([_noise(shape, "edit", seed, reference) for seed in seeds])
    edited = encoders.decode(sample_latents(model, reference, conditions, nulls, noise, config))
    return [image.resize(source.size) for image, source in zip(edited, sources, strict=True)]


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
