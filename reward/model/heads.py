"""Reward heads: from the hidden state at a reward token to a Gaussian score (EditReward, section 3.1 and eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reward.config import HeadConfig


class RewardHead(nn.Module):
    """MLP: hidden state [row, hidden] -> mu, sigma [row] each.

    Sigma is softplus(raw) + floor, or exp(raw) as in the released code.
    """

    def __init__(self, width: int, config: HeadConfig) -> None:
        super().__init__()
        widths = (width, *config.hidden)
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            layers += [nn.Linear(before, after), nn.ReLU()]
            if index == 0 and config.dropout:
                layers.append(nn.Dropout(config.dropout))
        self.mlp = nn.Sequential(*layers, nn.Linear(widths[-1], 2))
        self.config = config

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mu and sigma of the score, float32."""
        mean, raw = self.mlp(hidden).unbind(-1)
        return mean, raw.exp() if self.config.sigma == "exp" else F.softplus(raw) + self.config.sigma_floor


class RewardHeads(nn.Module):
    """One head per dimension, or one for all: hidden states [row, dimension, hidden] -> mean, sigma [row, dimension]."""

    def __init__(self, width: int, dimensions: Sequence[str], config: HeadConfig) -> None:
        super().__init__()
        self.names = ("shared",) * len(dimensions) if config.kind == "shared" else tuple(dimensions)
        self.of = nn.ModuleDict({name: RewardHead(width, config) for name in dict.fromkeys(self.names)})

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Float32, whatever the precision around it."""
        kind = hidden.device.type
        with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
            states = hidden.float().unbind(1)
            outputs = [self.of[name](state) for name, state in zip(self.names, states, strict=True)]
        means, sigmas = zip(*outputs, strict=True)
        return torch.stack(means, dim=1), torch.stack(sigmas, dim=1)
