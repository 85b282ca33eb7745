"""The velocity model: diffusers' FluxTransformer2DModel, conditioned on the source image and the instruction.

`sequence`: source latents are appended as further image tokens whose first rotary axis is 1 instead of 0, and only the target
half of the output is used (FLUX.1-Kontext, arXiv 2506.15742, section 3; in Step1X-Edit v1.0 both images have the same positions).
`channel`: source latents are concatenated to the noisy latents (InstructPix2Pix): half the tokens, a weaker alignment of positions.
Time runs from 0 (image) to 1 (noise), in float32 at any precision (`finetune.exact_time`).
"""

from __future__ import annotations

import torch
from diffusers.models.transformers import FluxTransformer2DModel
from torch import Tensor, nn

from finetune.config import DenoiserConfig
from finetune.exact_time import ExactTime


class Denoiser(nn.Module):
    """Predicts the velocity of noisy latents on a `patches_per_side` squared grid."""

    positions: Tensor  # [image tokens, 3]

    def __init__(self, config: DenoiserConfig, *, channels: int, patches_per_side: int) -> None:
        super().__init__()
        self.conditioning = config.conditioning
        by_channel = config.conditioning == "channel"
        self.transformer = FluxTransformer2DModel(
            patch_size=1,
            in_channels=2 * channels if by_channel else channels,
            out_channels=channels,
            num_layers=config.double_blocks,
            num_single_layers=config.single_blocks,
            attention_head_dim=config.head_dim,
            num_attention_heads=config.heads,
            joint_attention_dim=config.text_dim,
            pooled_projection_dim=config.text_dim,
            axes_dims_rope=config.rope_axes,
        )
        self._exact_time = ExactTime(self.transformer.time_text_embed)
        target = _grid_positions(patches_per_side, image_index=0)
        source = _grid_positions(patches_per_side, image_index=1)
        positions = target if by_channel else torch.cat([target, source])
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, latents: Tensor, time: Tensor, source: Tensor, words: Tensor, pooled: Tensor) -> Tensor:
        """Velocity [n, tokens, channels].

        latents, source: [n, tokens, channels]; time: [n] in [0, 1]; words: [n, words, text_dim]; pooled: [n, text_dim].
        """
        self._exact_time.set(time)
        joined = torch.cat([latents, source], dim=2 if self.conditioning == "channel" else 1)
        output = self.transformer(
            hidden_states=joined,
            encoder_hidden_states=words,
            pooled_projections=pooled,
            timestep=time,
            img_ids=self.positions,
            txt_ids=self.positions.new_zeros(words.shape[1], 3),
            return_dict=False,
        )[0]
        return output[:, : latents.shape[1]]


def _grid_positions(side: int, *, image_index: int) -> Tensor:
    """Rotary positions (image index, row, column) [side * side, 3] of a latent grid, row by row."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack([torch.full_like(row, image_index), row, column], dim=-1).reshape(-1, 3).float()
