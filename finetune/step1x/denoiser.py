"""Step1X-Edit v1.0's trained half: the connector, and diffusers' FluxTransformer2DModel without guidance.

Tokens of the noisy target and of the reference form one sequence; both images have the same rotary positions (0, row, column), unlike
FLUX.1-Kontext's. Text tokens are padded to a fixed length, and the denoiser, unlike the connector, sees the padding too.
Source: inference.py and modules/model_edit.py of stepfun-ai/Step1X-Edit at 570eba6 (documented behaviour).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from diffusers.models.transformers import FluxTransformer2DModel
from torch import Tensor, nn

from finetune.editing_model import Condition, padded
from finetune.exact_time import ExactTime
from finetune.flux_names import FLUX_FUSED
from finetune.packing import grid_positions, pack, unpack
from finetune.step1x.config import Step1XSizes
from finetune.step1x.connector import Connector


class Step1XEdit(nn.Module):
    """Connector and denoiser as one `EditingModel`. Its condition: "states" [length, vlm_width]; collated, "mask" [n, length] too."""

    block_lists = ("transformer.transformer_blocks", "transformer.single_transformer_blocks")
    connector_name = "connector"
    fused_projections = FLUX_FUSED
    idle_layers = ()
    last_time = None
    rescales_guidance = False

    def __init__(self, sizes: Step1XSizes, text_tokens: int) -> None:
        super().__init__()
        self.text_tokens = text_tokens
        self.connector = Connector(sizes)
        self.transformer = FluxTransformer2DModel(
            in_channels=4 * sizes.latent_channels,
            num_layers=sizes.double_blocks,
            num_single_layers=sizes.single_blocks,
            attention_head_dim=sum(sizes.rope_axes),
            num_attention_heads=sizes.heads,
            joint_attention_dim=sizes.connector_heads * sizes.connector_head_dim,
            pooled_projection_dim=sizes.pooled_width,
            axes_dims_rope=sizes.rope_axes,
        )
        self._exact_time = ExactTime(self.transformer.time_text_embed)

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        """States [n, text_tokens, vlm_width], zero where the mask [n, text_tokens] is false."""
        states, mask = padded([condition["states"] for condition in conditions], self.text_tokens)
        return {"states": states, "mask": mask}

    def resolution_shift(self, rows: int, columns: int) -> float:
        """e^mu, with mu linear in the number of target tokens: 0.5 at 256, 1.15 at 4096."""
        return math.exp(0.5 + (1.15 - 0.5) * (rows * columns // 4 - 256) / (4096 - 256))

    def forward(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        """Velocity [n, channels, rows, columns]; see `EditingModel.forward`."""
        assert time.dtype == torch.float32
        dtype = self.transformer.x_embedder.weight.dtype
        text, pooled = self.connector(condition["states"].to(dtype), time, condition["mask"])
        target_tokens, reference_tokens = pack(noisy.to(dtype)), pack(reference.to(dtype))
        positions = [grid_positions(latents.shape[2] // 2, latents.shape[3] // 2, noisy.device) for latents in (noisy, reference)]
        self._exact_time.set(time)
        velocity = self.transformer(
            hidden_states=torch.cat([target_tokens, reference_tokens], dim=1),
            encoder_hidden_states=text,
            pooled_projections=pooled,
            timestep=time,
            img_ids=torch.cat(positions),
            txt_ids=positions[0].new_zeros(text.shape[1], 3),
            return_dict=False,
        )[0]
        return unpack(velocity[:, : target_tokens.shape[1]], noisy.shape[2], noisy.shape[3])
