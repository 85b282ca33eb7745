"""The loss on pairs that no arm trains on, at fixed times with fixed noise, so that two measurements differ by the weights alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from finetune.editing_model import Condition, EditingModel, Moments
from finetune.rectified_flow import Draws, batch_loss
from finetune.training.pairs import StoredPairs
from reward.trainer.config import Precision
from reward.trainer.loop import Metrics
from reward.trainer.order import derived_seed
from reward.trainer.workers import rank_and_world


def held_out_loss(model: EditingModel, pairs: StoredPairs, times: Sequence[float], precision: Precision) -> Callable[[], Metrics]:
    """A function that measures: `held_out` is the mean over pairs and times, `held_out/<time>` that at one time.

    Latents are the means of the posteriors. Every worker computes its share of the pairs and calls the function at the same steps.
    """

    @torch.no_grad()
    def measure() -> Metrics:
        rank, world = rank_and_world()
        device = next(parameter for _, parameter in model.named_parameters()).device
        sums = torch.zeros(len(times), dtype=torch.float64)
        count = len(pairs.bucket_of)
        for turn in range(math.ceil(count / world)):  # as many for every worker: with sharded weights each pass needs all of them
            number = turn * world + rank
            pair = pairs.read(min(number, count - 1))
            target, reference, condition = _batch(model, pair.target.mean, pair.reference.mean, pair.condition, device)
            for place, time in enumerate(times):
                draws = _fixed(time, number, target.mean, reference.mean)
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                    loss = batch_loss(model, target, reference, condition, draws)
                sums[place] += float(loss) * (number < count)
        if world > 1:
            dist.all_reduce(sums)
        means = (sums / count).tolist()
        return {"held_out": sum(means) / len(means)} | {f"held_out/{time:g}": mean for time, mean in zip(times, means, strict=True)}

    return measure


def _batch(
    model: EditingModel, target: Tensor, reference: Tensor, condition: Condition, device: torch.device
) -> tuple[Moments, Moments, Condition]:
    """One pair as a batch; the posteriors are their means."""
    x0, z = (tensor[None].to(device).float() for tensor in (target, reference))
    collated = {name: tensor.to(device) for name, tensor in model.collate([condition]).items()}
    return Moments(x0, torch.zeros_like(x0)), Moments(z, torch.zeros_like(z)), collated


def _fixed(time: float, number: int, target: Tensor, reference: Tensor) -> Draws:
    """Draws of a held-out pair: the same noise in every measurement and at every time."""
    generator = torch.Generator().manual_seed(derived_seed("held-out", number))
    noise = torch.randn(target.shape, generator=generator).to(target.device)
    return Draws(
        time=torch.full((1,), time, device=target.device),
        noise=noise,
        target=torch.zeros_like(target),
        reference=torch.zeros_like(reference),
        dropped=torch.zeros(1, dtype=torch.bool, device=target.device),
    )
