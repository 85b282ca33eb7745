"""The connector: from hidden states of the vision-language model to the denoiser's text tokens and its pooled condition.

diffusers' HunyuanVideoTokenRefiner is the released refiner (a gated transformer over the masked tokens, modulated by time and by the
projected mean of the tokens). Beside it, the masked mean times (1 + scale) is projected to the pooled condition.
Source: modules/connector_edit.py of stepfun-ai/Step1X-Edit at 570eba6 (documented behaviour).
"""

from __future__ import annotations

import torch
from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoTokenRefiner
from torch import Tensor, nn

from finetune.step1x.config import Step1XSizes

INITIAL_SCALE = -0.91
"""The pooled condition of an untrained connector is 0.09 of the mean."""


class Connector(nn.Module):
    """Token refiner and pooled projection."""

    def __init__(self, sizes: Step1XSizes) -> None:
        super().__init__()
        self.refiner = HunyuanVideoTokenRefiner(sizes.vlm_width, sizes.connector_heads, sizes.connector_head_dim, sizes.connector_blocks)
        self.global_proj_out = nn.Linear(sizes.vlm_width, sizes.pooled_width)
        self.scale_factor = nn.Parameter(torch.full((1,), INITIAL_SCALE))

    def forward(self, states: Tensor, time: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Text tokens [n, length, connector width] and pooled condition [n, pooled_width].

        states: [n, length, vlm_width], padded; time: [n], float32 in [0, 1]; mask: [n, length], true where a state is present.
        """
        present = mask.unsqueeze(-1)
        mean = ((states * present).sum(1, dtype=torch.float32) / present.sum(1)).to(states.dtype)  # [n, vlm_width]
        pooled = self.global_proj_out(mean * (1 + self.scale_factor))
        return self.refiner(states, time * 1000, mask), pooled
