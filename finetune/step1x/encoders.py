"""Step1X-Edit v1.0's frozen half: the VAE and the vision-language model, from the released folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from diffusers.models import AutoencoderKL
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2_5_VLModel

from finetune.complete_folder import check_model, check_tokenizer
from finetune.editing_model import Condition, Moments, longer
from finetune.loaded_weights import check_loaded
from finetune.pixels import from_unit_range, to_unit_range
from finetune.step1x.conditioning import Conditioner
from finetune.step1x.config import Step1XConfig, Step1XSizes

VAE_SCALE, VAE_SHIFT = 0.3611, 0.1159


class Step1XEncoders:
    """`Encoders` of Step1X-Edit v1.0. The VAE computes in float32, the vision-language model in its weights' type."""

    def __init__(self, vae: AutoencoderKL, conditioner: Conditioner) -> None:
        self.vae, self.conditioner = vae.eval().requires_grad_(False), conditioner

    @classmethod
    def load(cls, config: Step1XConfig, device: torch.device) -> Step1XEncoders:
        """Read the released files. ValueError naming the file that is missing, unreadable or of other sizes."""
        folder = vlm_folder(config)
        check_vlm(config)
        try:
            vlm = Qwen2_5_VLModel.from_pretrained(folder, dtype="auto", use_safetensors=True).to(device)
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ValueError(f"{folder} contains no readable Qwen2.5-VL ({str(error).splitlines()[0]}); download it again") from error
        assert isinstance(vlm, Qwen2_5_VLModel) and isinstance(tokenizer, PreTrainedTokenizerBase)
        check_loaded(vlm, folder)
        return cls(load_vae(config).to(device), Conditioner(vlm, tokenizer, config.conditioning))

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        """The longer side is ceil(side * sqrt(its ratio)), the shorter one follows the ratio, and both are floored to multiples of 16."""
        ratio = width / height
        if width > height:
            wide = math.ceil(math.sqrt(side * side * ratio))
            high = math.ceil(wide / ratio)
        else:
            high = math.ceil(math.sqrt(side * side / ratio))
            wide = math.ceil(high * ratio)
        wide, high = wide // 16 * 16, high // 16 * 16
        if not wide or not high:
            raise ValueError(f"an image of {width} x {height} pixels is too narrow to be edited at {side}")
        return wide, high

    @torch.no_grad()
    def encode_images(self, images: Sequence[Image.Image]) -> list[Moments]:
        """See `Encoders.encode_images`; moments are in the denoiser's scale."""
        posterior = self.vae.encode(to_unit_range(images).to(self.vae.device, self.vae.dtype)).latent_dist
        means, deviations = (posterior.mean - VAE_SHIFT) * VAE_SCALE, posterior.std * VAE_SCALE
        return [Moments(mean, deviation) for mean, deviation in zip(means, deviations, strict=True)]

    def unread(self, source: Image.Image, instruction: str) -> str:
        """See `Encoders.unread`."""
        return longer(self.conditioner.length(source, instruction), self.conditioner.config.max_tokens)

    def encode_condition(self, source: Image.Image, instruction: str) -> Condition:
        """{"states": [length, vlm_width]}; see `Conditioner.encode`."""
        return {"states": self.conditioner.encode(source, instruction)}

    def decode(self, latents: Tensor) -> list[Image.Image]:
        """See `Encoders.decode`."""
        return decode(self.vae, latents)


@torch.no_grad()
def decode(vae: AutoencoderKL, latents: Tensor) -> list[Image.Image]:
    """RGB images of latents [n, channels, rows, columns] in the denoiser's scale."""
    return from_unit_range(vae.decode(latents.to(vae.device, vae.dtype) / VAE_SCALE + VAE_SHIFT).sample)


def check_vlm(config: Step1XConfig) -> None:
    """ValueError naming the file of the vision-language model that is missing or damaged."""
    folder = vlm_folder(config)
    check_model(folder)
    check_tokenizer(folder)


def load_vae(config: Step1XConfig) -> AutoencoderKL:
    """The VAE in float32. ValueError when the file is missing, unreadable or of other sizes."""
    vae, path = new_vae(config.sizes), vae_path(config)
    try:
        vae.load_state_dict(convert_ldm_vae_checkpoint(load_file(path), vae.config))
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} is no readable VAE of the configured sizes ({reason}); expected the released vae.safetensors") from error
    return vae.float()


def new_vae(sizes: Step1XSizes) -> AutoencoderKL:
    """FLUX's autoencoder in these sizes."""
    levels = len(sizes.vae_channels)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        block_out_channels=sizes.vae_channels,
        layers_per_block=sizes.vae_layers,
        latent_channels=sizes.latent_channels,
        norm_num_groups=sizes.vae_groups,
        scaling_factor=VAE_SCALE,
        shift_factor=VAE_SHIFT,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def vae_path(config: Step1XConfig) -> Path:
    """The file of the VAE."""
    return Path(config.directory) / config.vae


def vlm_folder(config: Step1XConfig) -> Path:
    """The folder of the vision-language model."""
    return Path(config.directory) / config.vlm
