"""Rectified flow: straight paths from data (t = 0) to noise (t = 1) and the mean squared error of their velocity.

Liu et al. 2022 (arXiv 2209.03003); the time shift is that of Esser et al. 2024 (arXiv 2403.03206, section 5.3.2).
Shapes: x0, noise, velocity [n, tokens, channels]; time [n].
"""

from __future__ import annotations

import torch
from torch import Tensor


def shift_time(u: Tensor, shift: float) -> Tensor:
    """t = s u / (1 + (s - 1) u): monotone from 0 to 1, identity for s = 1, more time near the noise for s > 1."""
    return shift * u / (1 + (shift - 1) * u)


def interpolate(x0: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """x_t = (1 - t) x0 + t noise."""
    t = time[:, None, None]
    return (1 - t) * x0 + t * noise


def flow_loss(predicted: Tensor, x0: Tensor, noise: Tensor) -> Tensor:
    """Mean squared error of a predicted velocity, dx_t / dt = noise - x0 at each time, over samples, tokens and channels."""
    return torch.nn.functional.mse_loss(predicted, noise - x0)


def sampling_times(steps: int, shift: float) -> Tensor:
    """The steps + 1 times of the Euler sampler, from 1 to 0, evenly spaced before the shift."""
    return shift_time(torch.linspace(1, 0, steps + 1), shift)
