"""FLUX.1-Kontext: both halves from diffusers' parts.

The reference's tokens follow the target's, with 1 instead of 0 as the first rotary position (arXiv 2506.15742, section 3). Guidance is a
condition of the denoiser. The condition is T5's and CLIP's; it does not depend on the source image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from diffusers.models import AutoencoderKL
from diffusers.models.transformers import FluxTransformer2DModel
from diffusers.pipelines.flux.pipeline_flux_kontext import FluxKontextPipeline
from PIL import Image
from torch import Tensor, nn

from finetune.editing_model import Condition, Decoder, ExampleInput, Moments, longer
from finetune.exact_time import ExactTime
from finetune.flux_names import FLUX_FUSED
from finetune.instruction_limits import unknown_characters
from finetune.library_editors.config import KontextConfig
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
from finetune.packing import grid_positions, pack, unpack
from finetune.pixels import from_unit_range, to_unit_range
from finetune.tested_versions import refusal

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


class KontextEncoders:
    """`Encoders` of FLUX.1-Kontext. Latents are the posterior's mean, as its pipeline takes them: deviations are 0.

    Checks tokens and final norms of the installed versions when it is made.
    """

    def __init__(self, pipeline: FluxKontextPipeline, text_tokens: int) -> None:
        self.pipeline, self.text_tokens = pipeline, text_tokens
        self._check_tokens()
        self._check_norms()

    @classmethod
    def load(cls, config: KontextConfig, device: torch.device) -> KontextEncoders:
        """Read text encoders and VAE. ValueError when the folder is not readable."""
        return cls(open_pipeline(FluxKontextPipeline, config).to(device), config.text_tokens)

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        """The ratio at an area of about side ** 2, in multiples of 16."""
        return at_area(width, height, side, 16)

    @torch.no_grad()
    def encode_images(self, images: Sequence[Image.Image]) -> list[Moments]:
        """See `Encoders.encode_images`."""
        vae: Any = self.pipeline.vae
        mean = vae.encode(to_unit_range(images).to(vae.device, vae.dtype)).latent_dist.mean
        latents = ((mean - vae.config.shift_factor) * vae.config.scaling_factor).float()
        return [Moments(latent, torch.zeros_like(latent)) for latent in latents]

    def unread(self, source: Image.Image, instruction: str) -> str:
        """See `Encoders.unread`; of T5, since CLIP's pooled state is of the first 77 tokens by design."""
        tokenizer: Any = self.pipeline.tokenizer_2
        return longer(len(tokenizer(instruction)["input_ids"]), self.text_tokens)

    @torch.no_grad()
    def encode_condition(self, source: Image.Image, instruction: str) -> Condition:
        """{"states": [text_tokens, T5 width], "pooled": [CLIP width]}. ValueError for letters that T5 does not know."""
        unknown = unknown_characters(self.pipeline.tokenizer_2, instruction)
        if unknown:
            raise ValueError(unknown)
        states, pooled, _ = self.pipeline.encode_prompt(instruction, None, max_sequence_length=self.text_tokens)
        return {"states": states[0], "pooled": pooled[0]}

    def decode(self, latents: Tensor) -> list[Image.Image]:
        """See `Encoders.decode`."""
        return _decode(self.pipeline.vae, latents)

    def _check_tokens(self) -> None:
        clip, t5 = (tokenizer("go")["input_ids"] for tokenizer in (self.pipeline.tokenizer, self.pipeline.tokenizer_2))
        marks = {
            "CLIP's first token": (clip[0], self.pipeline.tokenizer.bos_token_id),
            "CLIP's last token": (clip[-1], self.pipeline.tokenizer.eos_token_id),
            "T5's last token": (t5[-1], self.pipeline.tokenizer_2.eos_token_id),
        }
        for what, (found, expected) in marks.items():
            if found != expected:
                raise ValueError(refusal(f"makes {found} of {what}, expected {expected}, that of its beginning or end"))

    def _check_norms(self) -> None:
        """The condition must be what the final norms give: all states of T5, and CLIP's at the end of the text."""
        normed: dict[str, Tensor] = {}
        parts = {"T5": self.pipeline.text_encoder_2, "CLIP": self.pipeline.text_encoder}
        hooks = [
            norm.register_forward_hook(lambda _, given, output, part=part: normed.update({part: output[0]}))
            for part, encoder in parts.items()
            for name, norm in encoder.named_modules()
            if name.rpartition(".")[2] == "final_layer_norm"
        ]
        try:
            condition = self.encode_condition(Image.new("RGB", (16, 16)), "go")
        finally:
            for hook in hooks:
                hook.remove()
        end = len(self.pipeline.tokenizer("go")["input_ids"]) - 1
        expected = {"T5": ("states", slice(None)), "CLIP": ("pooled", end)}
        for part, (name, place) in expected.items():
            if part not in normed or not torch.equal(condition[name], normed[part][place]):
                raise ValueError(refusal(f"does not give the states of {part} from behind its final norm"))


class Kontext(nn.Module):
    """`EditingModel` of FLUX.1-Kontext."""

    block_lists = ("transformer.transformer_blocks", "transformer.single_transformer_blocks")
    connector_name = None
    fused_projections = FLUX_FUSED
    idle_layers = ()
    last_time = None
    rescales_guidance = False

    def __init__(self, config: KontextConfig) -> None:
        super().__init__()
        self.embedded_guidance, self._schedule = config.embedded_guidance, settings(config, "scheduler")
        transformer: Any = FluxTransformer2DModel.from_config(settings(config, "transformer"))
        self.transformer = transformer
        self._exact_time = ExactTime(self.transformer.time_text_embed)

    def collate(self, conditions: Sequence[Condition]) -> Condition:
        """{"states": [n, text_tokens, width], "pooled": [n, width]}."""
        return {name: torch.stack([condition[name] for condition in conditions]) for name in ("states", "pooled")}

    def resolution_shift(self, rows: int, columns: int) -> float:
        """That of the folder's scheduler."""
        return shifted_by_tokens(self._schedule, rows * columns // 4)

    def forward(self, noisy: Tensor, reference: Tensor, time: Tensor, condition: Condition) -> Tensor:
        """Velocity [n, channels, rows, columns]; see `EditingModel.forward`."""
        assert time.dtype == torch.float32
        dtype = self.transformer.x_embedder.weight.dtype
        target_tokens, reference_tokens = pack(noisy.to(dtype)), pack(reference.to(dtype))
        positions = [
            grid_positions(latents.shape[2] // 2, latents.shape[3] // 2, noisy.device, image=image)
            for image, latents in enumerate((noisy, reference))
        ]
        self._exact_time.set(time)
        velocity = self.transformer(
            hidden_states=torch.cat([target_tokens, reference_tokens], dim=1),
            encoder_hidden_states=condition["states"].to(dtype),
            pooled_projections=condition["pooled"].to(dtype),
            timestep=time,
            guidance=torch.full_like(time, self.embedded_guidance) if self.transformer.config.guidance_embeds else None,
            img_ids=torch.cat(positions),
            txt_ids=positions[0].new_zeros(condition["states"].shape[1], 3),
            return_dict=False,
        )[0]
        return unpack(velocity[:, : target_tokens.shape[1]], noisy.shape[2], noisy.shape[3])


open_encoders = KontextEncoders.load
new_model = Kontext


def check_folder(config: KontextConfig) -> None:
    """ValueError naming a file of the encoders that is missing or damaged."""
    check_pipeline_folder(FluxKontextPipeline, config)


def open_decoder(config: KontextConfig, device: torch.device) -> Decoder:
    """The VAE's decoder."""
    return partial(_decode, open_part(AutoencoderKL, config, "vae").to(device))


def example_input(config: KontextConfig, side: int, device: torch.device) -> ExampleInput:
    """See `finetune.families.example_input`."""
    sizes = settings(config, "transformer")
    states = torch.zeros(config.text_tokens, sizes["joint_attention_dim"], device=device)
    condition = {"states": states, "pooled": torch.zeros(sizes["pooled_projection_dim"], device=device)}
    return ExampleInput((sizes["in_channels"] // 4, side // 16 * 2, side // 16 * 2), condition)


@torch.no_grad()
def _decode(vae: Any, latents: Tensor) -> list[Image.Image]:
    scaled = latents.to(vae.device, vae.dtype) / vae.config.scaling_factor + vae.config.shift_factor
    return from_unit_range(vae.decode(scaled).sample)
