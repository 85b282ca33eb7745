"""Rectified flow: straight paths from data (t = 0) to noise (t = 1) and the mean squared error of their velocity.

Liu et al. 2022 (arXiv 2209.03003); the logit-normal times and the time shift are those of Esser et al. 2024 (arXiv 2403.03206, sections
3.1 and 5.3.2). Shapes: x0, noise, velocity [n, ...]; time [n], float32. What is random in a step is drawn on the CPU from one generator, so
every device and every number of workers gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from finetune.config import RectifiedFlowConfig
from finetune.editing_model import Condition, EditingModel, Moments


def shift_time(u: Tensor, shift: float) -> Tensor:
    """t = s u / (1 + (s - 1) u): monotone from 0 to 1, identity for s = 1, more time near the noise for s > 1."""
    return shift * u / (1 + (shift - 1) * u)


def interpolate(x0: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """x_t = (1 - t) x0 + t noise."""
    t = time.view(-1, *[1] * (x0.ndim - 1))
    return (1 - t) * x0 + t * noise


def flow_loss(predicted: Tensor, x0: Tensor, noise: Tensor) -> Tensor:
    """Mean squared error of a predicted velocity, dx_t / dt = noise - x0 at each time, over samples and elements."""
    return torch.nn.functional.mse_loss(predicted, noise - x0)


def sampling_times(steps: int, shift: float, last: float | None = None) -> Tensor:
    """The steps + 1 times of the Euler sampler, from 1 to 0, evenly spaced before the shift.

    last: the times but the 0 are stretched so that they end here (`shift_terminal` of diffusers' schedulers).
    """
    times = shift_time(torch.linspace(1, 0, steps + 1), shift)
    if last is not None and steps > 1:
        times[:-1] = 1 - (1 - times[:-1]) * (1 - last) / (1 - times[-2])
    return times


@dataclass(frozen=True)
class Draws:
    """What is random in a batch of n samples of one bucket.

    time: [n]. noise: [n, channels, rows, columns]. target, reference: standard normal noise for the two posteriors, in their shapes.
    dropped: [n], whether a sample is learnt with its null condition.
    """

    time: Tensor
    noise: Tensor
    target: Tensor
    reference: Tensor
    dropped: Tensor

    def rows(self, index: Tensor) -> Draws:
        """The draws of some of the samples."""
        return Draws(self.time[index], self.noise[index], self.target[index], self.reference[index], self.dropped[index])

    def to(self, device: torch.device) -> Draws:
        """The draws on a device."""
        parts = (self.time, self.noise, self.target, self.reference, self.dropped)
        return Draws(*(part.to(device) for part in parts))


def draw(
    config: RectifiedFlowConfig,
    generator: torch.Generator,
    count: int,
    target_shape: Sequence[int],
    reference_shape: Sequence[int],
    sampling_shift: float,
) -> Draws:
    """Draw for `count` samples; shapes are [channels, rows, columns].

    sampling_shift: of `EditingModel.resolution_shift` at the target's size.
    """
    if config.times == "uniform":
        u = torch.rand(count, generator=generator)
    else:
        u = torch.sigmoid(config.logit_scale * torch.randn(count, generator=generator))
    shift = sampling_shift if config.time_shift == "sampling" else config.time_shift
    return Draws(
        time=shift_time(u, shift),
        noise=torch.randn(count, *target_shape, generator=generator),
        target=torch.randn(count, *target_shape, generator=generator),
        reference=torch.randn(count, *reference_shape, generator=generator),
        dropped=torch.rand(count, generator=generator) < config.condition_dropout,
    )


def with_dropout(conditions: Sequence[Condition], nulls: Sequence[Condition], dropped: Tensor) -> list[Condition]:
    """Each sample's condition, or its null condition where it is dropped."""
    return [null if drop else condition for condition, null, drop in zip(conditions, nulls, dropped.tolist(), strict=True)]


def batch_loss(model: EditingModel, target: Moments, reference: Moments, condition: Condition, draws: Draws) -> Tensor:
    """The loss of a batch of one bucket; moments are [n, channels, rows, columns], condition is collated.

    The conditions of the `draws.dropped` samples are null conditions (`with_dropout`).
    """
    x0 = target.sample(draws.target).float()
    predicted = model(interpolate(x0, draws.noise, draws.time), reference.sample(draws.reference), draws.time, condition)
    return flow_loss(predicted.float(), x0, draws.noise)
