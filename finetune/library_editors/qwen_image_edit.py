"""Qwen-Image-Edit-2511: both halves from diffusers' parts.

The source is seen twice: by Qwen2.5-VL, whose hidden states are the condition, and as latents whose tokens follow the target's. In this
version reference tokens are modulated with time 0. diffusers 0.42.1 does not tell the vision-language model which tokens are the image's
(`finetune.image_positions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from diffusers.models import AutoencoderKLQwenImage
from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope, QwenImageTransformer2DModel
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import QwenImageEditPlusPipeline
from PIL import Image
from torch import Tensor, nn

from finetune.editing_model import Condition, Decoder, ExampleInput, Moments, padded
from finetune.exact_time import ExactTime
from finetune.image_positions import supply
from finetune.instruction_limits import control_token
from finetune.library_editors.config import QwenImageEditConfig
from finetune.library_editors.folder import (
    check_pipeline_folder,
    encoder_files,
    export_weights,
    open_part,
    open_pipeline,
    settings,
    shifted_by_tokens,
    stored_rows,
    weight_files,
)
from finetune.library_editors.sizes import at_area
from finetune.packing import pack, unpack
from finetune.pixels import from_unit_range, to_unit_range
from finetune.tested_versions import INSTALL

__all__ = [  # as a family: see `finetune.families`
    "check_folder",
    "encoder_files",
    "example_input",
    "export_weights",
    "new_model",
    "open_decoder",
    "open_encoders",
    "stored_rows",
    "weight_files",
]

_FIRST = "Picture 1: <|vision_start|>"
_NULL_INSTRUCTION = " "  # that of its authors
_WORDS = 64  # tokens of a usual instruction with the rest of the prompt


class QwenImageEditEncoders:
    """`Encoders` of Qwen-Image-Edit. Latents are the posterior's mean, as its pipeline takes them: deviations are 0.

    Checks prompt, positions and final norm of the installed versions when it is made.
    """

    def __init__(self, pipeline: QwenImageEditPlusPipeline, vlm_side: int, prefix_tokens: int) -> None:
        self.pipeline, self.vlm_side = pipeline, vlm_side
        pipeline.prompt_template_encode_start_idx = prefix_tokens
        supply(pipeline.text_encoder)
        self._check_prefix()
        self.encode_condition(Image.new("RGB", (4 * 28, 4 * 28)), "")

    @classmethod
    def load(cls, config: QwenImageEditConfig, device: torch.device) -> QwenImageEditEncoders:
        """Read vision-language model and VAE. ValueError when the folder is not readable."""
        return cls(open_pipeline(QwenImageEditPlusPipeline, config).to(device), config.vlm_side, config.prefix_tokens)

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        """The ratio at an area of about side ** 2, in multiples of 32."""
        return at_area(width, height, side, 32)

    @torch.no_grad()
    def encode_images(self, images: Sequence[Image.Image]) -> list[Moments]:
        """See `Encoders.encode_images`."""
        vae: Any = self.pipeline.vae
        frames = to_unit_range(images).to(vae.device, vae.dtype)[:, :, None]  # a video of one frame
        mean, deviation = _scale(vae)
        latents = ((vae.encode(frames).latent_dist.mean[:, :, 0] - mean) / deviation).float()
        return [Moments(latent, torch.zeros_like(latent)) for latent in latents]

    def unread(self, source: Image.Image, instruction: str) -> str:
        """See `Encoders.unread`: nothing is cut."""
        return ""

    @torch.no_grad()
    def encode_condition(self, source: Image.Image, instruction: str) -> Condition:
        """{"states": [length, width of the vision-language model]}. ValueError for an instruction with a special token."""
        refused = control_token(self.pipeline.tokenizer, instruction)
        if refused:
            raise ValueError(f"{refused}; remove it")
        width, height = at_area(*source.size, self.vlm_side, 32)
        seen = self.pipeline.image_processor.resize(source, height, width)
        images: Any = [seen]
        states, _ = self.pipeline.encode_prompt(instruction or _NULL_INSTRUCTION, images)
        return {"states": states[0]}

    def decode(self, latents: Tensor) -> list[Image.Image]:
        """See `Encoders.decode`."""
        return _decode(self.pipeline.vae, latents)

    def _check_prefix(self) -> None:
        tokenizer: Any = self.pipeline.tokenizer
        prefix = self.pipeline.prompt_template_encode_start_idx
        kept = tokenizer.decode(tokenizer(self.pipeline.prompt_template_encode.format(_FIRST))["input_ids"][prefix:])
        if not kept.startswith(_FIRST):
            raise ValueError(
                f"with this tokenizer and this diffusers, {kept[:40]!r} follows the {prefix} tokens of the prompt that are cut off, "
                f"expected {_FIRST!r}; use the tokenizer of the released folder, or {INSTALL}"
            )


class QwenImageEdit(nn.Module):
    """`EditingModel` of Qwen-Image-Edit. Its condition: "states" [length, width]; collated, "mask" [n, length] too."""

    block_lists = ("transformer.transformer_blocks",)
    connector_name = None
    fused_projections = ()
    rescales_guidance = True

    def __init__(self, config: QwenImageEditConfig) -> None:
        super().__init__()
        self._schedule = settings(config, "scheduler")
        self.last_time: float | None = self._schedule.get("shift_terminal")
        transformer: Any = QwenImageTransformer2DModel.from_config(settings(config, "transformer"))
        with torch.device("cpu"):  # its tables are no buffers: they must not stay on the meta device
            transformer.pos_embed = QwenEmbedRope(theta=10000, axes_dim=list(transformer.config.axes_dims_rope), scale_rope=True)
        self.transformer = transformer
        last = f"transformer.transformer_blocks.{len(transformer.transformer_blocks) - 1}"  # its text tokens are not used
        self.idle_layers = tuple(f"{last}.{part}" for part in ("attn.add_q_proj", "attn.norm_added_q", "attn.to_add_out", "txt_mlp"))
        self._exact_time = ExactTime(transformer.time_text_embed, scale=1.0)

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        """States padded to the longest, and their mask."""
        states, mask = padded([condition["states"] for condition in conditions], max(len(condition["states"]) for condition in conditions))
        return {"states": states, "mask": mask}

    def resolution_shift(self, rows: int, columns: int) -> float:
        """That of the folder's scheduler."""
        return shifted_by_tokens(self._schedule, rows * columns // 4)

    def forward(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        """Velocity [n, channels, rows, columns]; see `EditingModel.forward`."""
        assert time.dtype == torch.float32
        dtype = self.transformer.img_in.weight.dtype
        target_tokens, reference_tokens = pack(noisy.to(dtype)), pack(reference.to(dtype))
        shapes = [(1, latents.shape[2] // 2, latents.shape[3] // 2) for latents in (noisy, reference)]
        self._exact_time.set(torch.cat([time, 0 * time]) if self.transformer.zero_cond_t else time)
        velocity = self.transformer(
            hidden_states=torch.cat([target_tokens, reference_tokens], dim=1),
            encoder_hidden_states=condition["states"].to(dtype),
            encoder_hidden_states_mask=condition["mask"],
            timestep=time,
            img_shapes=[shapes] * len(noisy),
            return_dict=False,
        )[0]
        return unpack(velocity[:, : target_tokens.shape[1]], noisy.shape[2], noisy.shape[3])


open_encoders = QwenImageEditEncoders.load
new_model = QwenImageEdit


def check_folder(config: QwenImageEditConfig) -> None:
    """ValueError naming a file of the encoders that is missing or damaged."""
    check_pipeline_folder(QwenImageEditPlusPipeline, config)


def open_decoder(config: QwenImageEditConfig, device: torch.device) -> Decoder:
    """The VAE's decoder."""
    return partial(_decode, open_part(AutoencoderKLQwenImage, config, "vae").to(device))


def example_input(config: QwenImageEditConfig, side: int, device: torch.device) -> ExampleInput:
    """See `finetune.families.example_input`."""
    sizes = settings(config, "transformer")
    states = torch.zeros((config.vlm_side // 28) ** 2 + _WORDS, sizes["joint_attention_dim"], device=device)
    return ExampleInput((sizes["in_channels"] // 4, side // 32 * 4, side // 32 * 4), {"states": states})


@torch.no_grad()
def _decode(vae: Any, latents: Tensor) -> list[Image.Image]:
    mean, deviation = _scale(vae)
    return from_unit_range(vae.decode((latents.to(vae.device, vae.dtype) * deviation + mean)[:, :, None]).sample[:, :, 0])


def _scale(vae: Any) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [channels, 1, 1] of the VAE's latents."""
    pair = (torch.tensor(values, device=vae.device, dtype=vae.dtype) for values in (vae.config.latents_mean, vae.config.latents_std))
    mean, deviation = (values[:, None, None] for values in pair)
    return mean, deviation
